"""The short system calls answer like those of `os`."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from otel_gym.capture import quick
from otel_gym.capture.quick import PLAIN, REMOTE, PlainCalls, QuickCalls, RemoteCalls, calls_for


@pytest.fixture(params=[PlainCalls, RemoteCalls, QuickCalls])
def calls(request: pytest.FixtureRequest) -> PlainCalls:
    """Each kind."""
    made: PlainCalls = request.param()
    return made


def test_a_look_tells_what_a_path_names(calls: PlainCalls, tmp_path: Path) -> None:
    """Device, inode and size are those of lstat; a link is not followed."""
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"x" * 12345)
    link.symlink_to(file)
    for path in (file, tmp_path, *([] if isinstance(calls, RemoteCalls) else [link])):
        found = os.lstat(path)
        assert calls.look(os.fsencode(path)) == (found.st_dev, found.st_ino, found.st_size)
    if isinstance(calls, RemoteCalls):
        with pytest.raises(OSError) as caught:
            calls.look(os.fsencode(link))
        assert caught.value.errno == errno.ELOOP
    with pytest.raises(FileNotFoundError):
        calls.look(os.fsencode(tmp_path / "none"))
    with pytest.raises(NotADirectoryError):
        calls.look(os.fsencode(file / "below"))


def test_locks_exclude_each_other(calls: PlainCalls, tmp_path: Path) -> None:
    """A held lock is a BlockingIOError to others until it is released, and a bad descriptor is an error."""
    first, second = (os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT) for _ in range(2))
    calls.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(BlockingIOError):
        calls.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    calls.flock(first, fcntl.LOCK_UN)
    calls.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for descriptor in (first, second):
        os.close(descriptor)
    with pytest.raises(OSError) as caught:
        calls.flock(first, fcntl.LOCK_UN)
    assert caught.value.errno == errno.EBADF


def test_writes_land_at_their_offset(calls: PlainCalls, tmp_path: Path) -> None:
    """`pwrite` writes in the middle, `exists` sees the file, and a refused write is an error."""
    path = tmp_path / "f"
    assert not calls.exists(os.fsencode(path))
    path.write_bytes(b"0123456789")
    assert calls.exists(os.fsencode(path))
    descriptor = os.open(path, os.O_RDWR)
    calls.pwrite(descriptor, b"ab", 4)
    os.close(descriptor)
    assert path.read_bytes() == b"0123ab6789"
    with pytest.raises(OSError):
        calls.pwrite(descriptor, b"ab", 4)


def test_slow_file_systems_get_the_plain_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quick calls are for local file systems only, and for C libraries that have them all."""
    assert isinstance(calls_for(tmp_path), QuickCalls)
    assert calls_for(tmp_path / "missing") is REMOTE
    monkeypatch.setattr(quick, "_type_of", lambda directory: 0x6969)
    assert calls_for(tmp_path) is REMOTE
    monkeypatch.undo()

    class Lacking:
        def __init__(self) -> None:
            raise AttributeError("statx")

    monkeypatch.setattr(quick, "QuickCalls", Lacking)
    assert calls_for(tmp_path) is PLAIN
