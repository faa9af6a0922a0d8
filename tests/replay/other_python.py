"""Virtual environments of a newer Python, for packages that this one can't install.

They live in the user's cache folder and are made once for each list of pinned requirements.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
MINORS = (12, 13)


def environment(name: str) -> Path:
    """The interpreter of the environment `name`, with `<name>-requirements.txt` installed.

    Skips where the machine has no Python 3.12 or newer, or can't install; with CI=true the latter fails.
    """
    python = _python()
    if python is None:
        pytest.skip(f"{name} needs Python 3.12 or newer, and this machine has none")
    requirements = HERE / f"{name}-requirements.txt"
    identity = hashlib.sha256(f"{python}\n{requirements.read_text()}".encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "otel-gym"
    folder = cache / f"{name}-{identity}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".ready").exists():
            _make(python, folder, requirements)
    return folder / "bin" / "python"


def _make(python: str, folder: Path, requirements: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--no-deps", "-r", str(requirements)]
    for command in ([python, "-m", "venv", str(folder)], pip):
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            reason = f"cannot make {folder.name}: {made.stderr.strip()[-500:]}"
            if os.environ.get("CI") == "true":
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)
    (folder / ".ready").touch()


def _python() -> str | None:
    """An interpreter of a fitting version: this one, one on the PATH, or one of pyenv's."""
    if sys.version_info[1] in MINORS:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for minor in MINORS:
        candidates = [shutil.which(f"python3.{minor}")]
        candidates += [str(path / "bin" / "python") for path in sorted(pyenv.glob(f"3.{minor}.*"))]
        for candidate in candidates:
            if candidate and _works(candidate, minor):
                return candidate
    return None


def _works(candidate: str, minor: int) -> bool:
    """Whether it runs and is what its name says; pyenv's shims exist for versions that are not chosen."""
    try:
        shown = subprocess.run(
            [candidate, "-c", "import sys, venv; print(sys.version_info[1])"],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    except OSError:
        return False
    return shown.returncode == 0 and shown.stdout.strip() == str(minor)
