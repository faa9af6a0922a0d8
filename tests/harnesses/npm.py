"""Command line harnesses from npm at pinned versions, installed once into a user cache folder.

${OTEL_GYM_CACHE:-${XDG_CACHE_HOME:-~/.cache}/otel-gym}/harnesses/<name>-<version>/
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

INSTALL_TIMEOUT_S = 900


@dataclass(frozen=True)
class NpmPackage:
    """One npm package with a command."""

    package: str
    version: str
    command: str

    def installed(self) -> Path:
        """Path of the command; installs the package first where that was never done. Skips the test where there is no npm."""
        npm, node = shutil.which("npm"), shutil.which("node")
        if npm is None or node is None:
            unavailable(f"{self.package}: npm and node are not installed")
        assert npm is not None
        folder = _cache() / f"{self.command}-{self.version}"
        command = folder / "node_modules" / ".bin" / self.command
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not command.exists():
                self._install(npm, folder)
        return command

    def _install(self, npm: str, folder: Path) -> None:
        """Install beside `folder` and move into place, so that a broken download is never taken for a package."""
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        partial.mkdir()
        flags = ["--no-audit", "--no-fund", "--no-save", "--loglevel=error"]
        done = subprocess.run(
            [npm, "install", "--prefix", str(partial), *flags, f"{self.package}@{self.version}"],
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            unavailable(f"{self.package}@{self.version} could not be installed: {last}")
        partial.rename(folder)


def unavailable(reason: str) -> None:
    """Skip with `reason`; where `CI=true`, fail with it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _cache() -> Path:
    own = os.environ.get("OTEL_GYM_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(own) if own else Path(base) / "otel-gym").expanduser() / "harnesses"


CODEX = NpmPackage("@openai/codex", "0.171.0", "codex")
CLAUDE_CODE = NpmPackage("@anthropic-ai/claude-code", "2.1.332", "claude")
