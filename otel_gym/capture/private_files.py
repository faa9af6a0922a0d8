"""Small files of a capture directory: made with exactly their mode, replaced as a whole, and read without ever waiting for a pipe."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from pathlib import Path

from otel_gym.errors import StoreError


def open_file(path: Path, mode: int) -> int:
    """A descriptor for reading and writing; a file that is missing is made, with `mode` whatever the umask. Raises `OSError`."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    while True:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            pass
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            continue
        set_mode(descriptor, mode)
        return descriptor


def set_mode(descriptor: int, mode: int) -> None:
    """Give an open file the mode that the umask may have kept from it; a file system without modes keeps its own."""
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, mode)


def is_at(path: Path, descriptor: int) -> bool:
    """Whether the path names the open file, without following a link. Raises `OSError` for anything but a missing path."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def read_file(path: Path) -> bytes:
    """All bytes of a regular file. Raises `StoreError` for anything else, `OSError` where it cannot be read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StoreError(f"{path}: is not a regular file")
        return file.read()


def replace_file(path: Path, data: bytes, mode: int) -> None:
    """Replace a small file as a whole: readers see the old or the new one. Raises `OSError`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode
    )
    try:
        try:
            set_mode(descriptor, mode)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
