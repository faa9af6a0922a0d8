"""Debian's Chromium for the tests: found, or installed in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--font-render-hinting=none",
]


class NoBrowser(Exception):
    """There is no Chromium; the text says why."""


def chromium() -> str:
    """Path of the program. With CI=true, as root on a Debian, it is installed where it is missing. Raises `NoBrowser`."""
    found = _find()
    if found is None and os.environ.get("CI") == "true" and shutil.which("apt-get"):
        if os.getuid() == 0:
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (["update", "-qq"], ["install", "-y", "-qq", "chromium"]):
                subprocess.run(["apt-get", *command], check=False, env=environment, timeout=800)
        found = _find()
    if found is None:
        raise NoBrowser("no Chromium on this machine; install Debian's package chromium")
    return found


def _find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def artefacts() -> Path:
    """Where screenshots are kept, outside of version control."""
    root = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get("OTEL_GYM_ARTEFACTS", root / ".artefacts")) / "viewer"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
