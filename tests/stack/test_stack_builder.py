"""The builder of the backends, with a Go that only writes down what it is asked."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.backends.build import BACKENDS, Backend, BackendUnavailable, built, cache_root, ensure

REPOSITORY = Path(__file__).resolve().parents[2]
GO = """\
#!/bin/sh
case "$1" in
  env) echo go{version} ;;
  list) echo one; echo two ;;
  build) echo "$*" >> {log}; sleep 0.5; {result} ;;
esac
"""
WRITE_IT = 'while [ "$1" != -o ]; do shift; done; echo program > "$2"; chmod +x "$2"; echo one >&2'


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `go` in PATH that takes half a second for each program, and a cache of the test's own; its log is returned."""
    log = tmp_path / "builds"
    _write_go(tmp_path, log, "1.26.8", WRITE_IT)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("OTEL_GYM_CACHE", str(tmp_path / "cache"))
    return log


def _write_go(folder: Path, log: Path, version: str, result: str) -> None:
    go = folder / "bin" / "go"
    go.parent.mkdir(exist_ok=True)
    go.write_text(GO.format(version=version, log=log, result=result))
    go.chmod(0o755)


def test_callers_at_the_same_time_share_one_build(fake_go: Path) -> None:
    """Three processes that want a backend at once build each of its programs once, and a fourth builds nothing."""
    command = [sys.executable, "-m", "tools.backends.build", "prometheus"]
    running = [
        subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    folders = {process.communicate(timeout=60)[0].strip() for process in running}
    folders.add(str(ensure(BACKENDS["prometheus"], lambda line: None)))
    (folder,) = folders
    assert sorted(path.name for path in Path(folder).iterdir()) == ["prometheus", "promtool"]
    assert Path(folder).parent == cache_root()
    assert built("promtool")
    assert len(fake_go.read_text().splitlines()) == 2


def test_a_changed_pin_is_another_build() -> None:
    """The digest covers the flags, the programs and the pinned files: another one of them is another folder."""
    one = Backend("jaeger", "1", (("jaeger", "a"),))
    assert one.digest() == Backend("jaeger", "1", (("jaeger", "a"),)).digest()
    others = {
        Backend("jaeger", "1", (("jaeger", "b"),)).digest(),
        Backend("jaeger", "1", (("jaeger", "a"),), tags="t").digest(),
        Backend("prometheus", "1", (("jaeger", "a"),)).digest(),
    }
    assert len(others | {one.digest()}) == 4


def test_an_old_go_is_named_in_the_reason(fake_go: Path, tmp_path: Path) -> None:
    """With a Go that is too old the reason says which one is needed and which one is there."""
    _write_go(tmp_path, fake_go, "1.22.1", WRITE_IT)
    with pytest.raises(BackendUnavailable, match=r"needs Go >= 1\.26: found 1\.22\.1"):
        ensure(BACKENDS["collector"])


def test_a_failed_build_leaves_nothing_and_is_not_tried_again(
    fake_go: Path, tmp_path: Path
) -> None:
    """A build that fails gives the last line of its output as the reason, at once when asked again, and no half folder."""
    _write_go(tmp_path, fake_go, "1.26.8", "echo no space left >&2; exit 1")
    for _ in range(2):
        with pytest.raises(BackendUnavailable, match="no space left"):
            ensure(BACKENDS["kafka"], lambda line: None)
    assert len(fake_go.read_text().splitlines()) == 1
    assert [path.name for path in cache_root().iterdir()] == ["build.lock"]


def test_no_pinned_module_names_a_registry() -> None:
    """The modules' files hold module paths and checksums, no address of a proxy."""
    for backend in BACKENDS.values():
        for name in ("go.mod", "go.sum"):
            text = (backend.source / name).read_text()
            assert "proxy." not in text and "sum.golang" not in text, (backend.name, name)
