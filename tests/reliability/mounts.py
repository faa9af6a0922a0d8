"""Real file systems that can be filled, broken and repaired; they need root and the right to mount."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def run(*command: str | Path) -> None:
    """Run a system command. Raises `CalledProcessError`."""
    subprocess.run([str(part) for part in command], check=True, capture_output=True, timeout=60)


class Mount:
    """A mount point; unmounted at the end whoever still holds it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self._mounted = 0

    def tmpfs(self, options: str) -> None:
        """Mount a tmpfs, or skip the test where that is not allowed."""
        self._attempt("mount", "-t", "tmpfs", "-o", options, "tmpfs", self.path)

    def ext4(self, image: Path) -> None:
        """Mount an ext4 image by a loop device, or skip the test where that is not allowed."""
        self.image("ext4", image, 16)

    def image(self, kind: str, image: Path, size_mib: int) -> None:
        """Mount an image of a file system by a loop device, made where it is missing, or skip the test where that is not allowed."""
        if not image.exists():
            if shutil.which(f"mkfs.{kind}") is None:
                pytest.skip(f"mkfs.{kind} is not installed")
            with image.open("wb") as file:
                file.truncate(size_mib * 1024 * 1024)
            run(f"mkfs.{kind}", "-q", image)
        self._attempt("mount", "-t", kind, "-o", "loop", image, self.path)

    def overlay(self, below: Path) -> None:
        """Mount an overlay, as containers have it, or skip the test where that is not allowed."""
        for name in ("lower", "upper", "work"):
            (below / name).mkdir()
        layers = f"lowerdir={below}/lower,upperdir={below}/upper,workdir={below}/work"
        self._attempt("mount", "-t", "overlay", "-o", layers, "overlay", self.path)

    def remount(self, options: str) -> None:
        """Change the options of what is mounted."""
        run("mount", "-o", f"remount,{options}", self.path)

    def detach(self) -> None:
        """Unmount, lazily: files that are open stay open on the old file system."""
        run("umount", "-l", self.path)
        self._mounted -= 1

    def close(self) -> None:
        """Unmount all that is left."""
        while self._mounted:
            self.detach()

    def _attempt(self, *command: str | Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("mounting needs root")
        try:
            run(*command)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"mounting is not allowed here: {error.stderr.decode().strip()}")
        self._mounted += 1
