"""Build the real backends (Jaeger, an OpenTelemetry Collector, Prometheus) from their Go modules, once.

Each backend is a folder beside this file with a pinned ``go.mod`` and ``go.sum``. The programs land in

    ``${OTEL_GYM_CACHE:-${XDG_CACHE_HOME:-~/.cache}/otel-gym}/backends/<name>-<version>-<digest>/``

where the digest covers everything the result depends on, so a changed pin builds anew and an unchanged one never does.
A lock makes parallel callers wait for one build instead of doing it twice; one backend is built at a time, because each
link takes two to three gigabytes of memory.

Run it by hand with ``python -m tools.backends.build [jaeger|collector|prometheus ...]``.
"""

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRESS_SECONDS = 15.0

Progress = Callable[[str], None]


class BackendUnavailable(Exception):
    """A backend's program can't be had on this machine; the message is the reason, in one line."""


@dataclass(frozen=True)
class Backend:
    """One backend: the folder that pins it, and the programs that come out of it."""

    name: str
    version: str
    programs: tuple[tuple[str, str], ...]
    """Pairs of (program file name, Go package)."""
    ldflags: str = "-s -w"
    tags: str = ""

    @property
    def source(self) -> Path:
        """The folder with the pinned module."""
        return HERE / self.name

    def digest(self) -> str:
        """Twelve hex digits over every input of the build, the platform included."""
        seen = hashlib.sha256()
        for part in (
            self.ldflags,
            self.tags,
            repr(self.programs),
            sys.platform,
            platform.machine(),
        ):
            seen.update(part.encode() + b"\0")
        for path in sorted(self.source.iterdir()):
            if path.name in ("go.mod", "go.sum") or path.suffix == ".go":
                seen.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return seen.hexdigest()[:12]

    def folder(self) -> Path:
        """Where the finished programs are, or will be."""
        return cache_root() / f"{self.name}-{self.version}-{self.digest()}"

    def needed_go(self) -> tuple[int, ...]:
        """The Go version that ``go.mod`` asks for."""
        found = re.search(r"^go (\S+)$", (self.source / "go.mod").read_text(), re.MULTILINE)
        if found is None:
            raise BackendUnavailable(f"{self.source / 'go.mod'} names no Go version")
        return _version(found.group(1))


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend(
            "jaeger",
            "2.13.0",
            (("jaeger", "github.com/jaegertracing/jaeger/cmd/jaeger"),),
            ldflags="-s -w -X github.com/jaegertracing/jaeger/internal/version.latestVersion=v2.13.0",
        ),
        Backend("collector", "0.161.0", (("otelcol", "."),), tags="grpcnotrace"),
        Backend(
            "prometheus",
            "3.16.0",
            (
                ("prometheus", "github.com/prometheus/prometheus/cmd/prometheus"),
                ("promtool", "github.com/prometheus/prometheus/cmd/promtool"),
            ),
            ldflags="-s -w -X github.com/prometheus/common/version.Version=3.16.0",
            tags="netgo",
        ),
        Backend("kafka", "0.0.0", (("kafka", "."),)),
        Backend("dashboards", "0.0.22", (("dashboards", "."),)),
    )
}


def cache_root() -> Path:
    """The folder of all built backends."""
    chosen = os.environ.get("OTEL_GYM_CACHE")
    if chosen:
        return Path(chosen).expanduser() / "backends"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "otel-gym" / "backends"


def program(name: str, progress: Progress | None = None) -> Path:
    """The path of a program (``jaeger``, ``otelcol``, ``prometheus``, ``promtool``), built first where need be.

    Raises :class:`BackendUnavailable` with the reason in one line.
    """
    for backend in BACKENDS.values():
        if name in dict(backend.programs):
            return ensure(backend, progress) / name
    raise BackendUnavailable(f"no backend carries a program called {name!r}")


def built(name: str) -> bool:
    """Whether a program is there already, so that asking for it costs nothing."""
    return any(
        (backend.folder() / name).exists()
        for backend in BACKENDS.values()
        if name in dict(backend.programs)
    )


def ensure(backend: Backend, progress: Progress | None = None) -> Path:
    """The folder with a backend's programs; builds them when they are not there yet."""
    report = progress or _to_stderr
    folder = backend.folder()
    if folder.is_dir():
        return folder
    if folder in _failed:
        raise BackendUnavailable(_failed[folder])
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        go = _go(backend)
        with only_one(folder.parent / "build.lock", report):
            if not folder.is_dir():
                _build(backend, go, folder, report)
    except BackendUnavailable as reason:
        _failed[folder] = str(reason)
        raise
    return folder


_failed: dict[Path, str] = {}
"""Builds that failed in this process, with the reason: no test after the first one tries again."""


def _build(backend: Backend, go: str, folder: Path, report: Progress) -> None:
    started = time.monotonic()
    environment = dict(os.environ, CGO_ENABLED="0")
    environment["GOFLAGS"] = f"{environment.get('GOFLAGS', '')} -p=2".strip()
    flags = [
        "-trimpath",
        f"-ldflags={backend.ldflags}",
        *([f"-tags={backend.tags}"] if backend.tags else []),
    ]
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{backend.name}-") as scratch:
        module = Path(scratch, "module")
        shutil.copytree(backend.source, module)
        result = Path(scratch, "result")
        result.mkdir()
        report(f"{backend.name} {backend.version}: fetching modules")
        packages = [package for _, package in backend.programs]
        listed = subprocess.run(
            [go, "list", "-deps", *flags[2:], *packages],
            cwd=module, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if listed.returncode:
            raise BackendUnavailable(
                f"{backend.name}: its modules can't be fetched: {_last(listed.stderr)}"
            )
        total = len(listed.stdout.split())
        for name, package in backend.programs:
            command = [go, "build", "-v", *flags, "-o", str(result / name), package]
            _run_with_progress(
                command, module, environment, f"{backend.name} {backend.version}", total, report
            )
        result.chmod(0o755)
        result.rename(folder)
    report(
        f"{backend.name} {backend.version}: built in {time.monotonic() - started:.0f} s at {folder}"
    )


def _run_with_progress(
    command: list[str],
    module: Path,
    environment: dict[str, str],
    title: str,
    total: int,
    report: Progress,
) -> None:
    """Run ``go build -v``, which names each package that it compiles on stderr, and report the count now and then."""
    lines: list[str] = []
    next_report = time.monotonic()
    with subprocess.Popen(
        command, cwd=module, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if time.monotonic() >= next_report:
                report(f"{title}: compiling, {len(lines)} of at most {total} packages")
                next_report = time.monotonic() + PROGRESS_SECONDS
    if process.returncode:
        raise BackendUnavailable(f"{title}: go build failed: {_last(''.join(lines))}")


def _go(backend: Backend) -> str:
    go = shutil.which("go")
    needed = backend.needed_go()
    wanted = ".".join(map(str, needed[:2]))
    if go is None:
        raise BackendUnavailable(
            f"{backend.name} is built from source, which needs Go >= {wanted}: no go in PATH"
        )
    found = _go_version(go)
    # From 1.21 on, Go fetches a newer toolchain by itself unless GOTOOLCHAIN says local.
    if found < (1, 26):
        raise BackendUnavailable(
            f"{backend.name} is built from source, which needs Go >= {wanted}: found {'.'.join(map(str, found))}"
        )
    return go


@cache
def _go_version(go: str) -> tuple[int, ...]:
    answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    return _version(answer.stdout.strip().removeprefix("go"))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


@contextmanager
def only_one(path: Path, progress: Progress | None = None) -> Iterator[None]:
    """Hold the lock file ``path``; waits, and says so, while another process holds it."""
    report = progress or _to_stderr
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another process is at work here: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"backends: {line}\n")
    sys.stderr.flush()


def main() -> int:
    """Build the named backends, or all of them; exit code 1 and the reason when one can't be had."""
    parser = argparse.ArgumentParser(
        description="Build the real backends from their Go modules, once."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(BACKENDS)}; all by default"
    )
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(BACKENDS))
    if unknown:
        parser.error(f"no backend called {unknown[0]!r}; there are {', '.join(BACKENDS)}")
    for name in arguments.names or BACKENDS:
        try:
            folder = ensure(BACKENDS[name])
        except BackendUnavailable as problem:
            _to_stderr(str(problem))
            return 1
        sys.stdout.write(f"{folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
