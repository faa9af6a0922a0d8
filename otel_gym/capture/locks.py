"""Advisory locks on capture files: flock(2), and what is done where a file system refuses them.

Locks are taken without blocking in the kernel, so that a stopped process that holds one costs a bounded wait and never a thread. NFS maps flock to
byte-range locks at the server (Linux 2.6.12 and later, not with `local_lock=all` or `nolock`); Lustre needs the mount option `flock`.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import logging
import time
from typing import Final

from otel_gym.capture.quick import PLAIN, PlainCalls
from otel_gym.counters import count

logger = logging.getLogger(__name__)

_UNSUPPORTED: Final = frozenset(
    {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
)
_FIRST_PAUSE_S: Final = 0.0002
_LONGEST_PAUSE_S: Final = 0.005

_warned = False


class Lock(enum.Enum):
    """Outcome of an attempt to lock."""

    HELD = "held"
    BUSY = "busy"
    UNSUPPORTED = "unsupported"
    """The file system refuses locks: appends fall back to one O_APPEND write."""


def try_lock(descriptor: int, *, shared: bool = False, calls: PlainCalls = PLAIN) -> Lock:
    """Lock the open file now or say why not. Raises `OSError` for anything but a held or an unsupported lock."""
    try:
        calls.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return Lock.BUSY
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        _warn_once(error)
        return Lock.UNSUPPORTED
    return Lock.HELD


def lock(descriptor: int, timeout_s: float, *, shared: bool = False) -> Lock:
    """Lock the open file, waiting at most `timeout_s`; `Lock.BUSY` where somebody held it all that time."""
    deadline = time.monotonic() + timeout_s
    pause = _FIRST_PAUSE_S
    while (outcome := try_lock(descriptor, shared=shared)) is Lock.BUSY:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)
    return outcome


def unlock(descriptor: int, calls: PlainCalls = PLAIN) -> None:
    """Release a lock that `try_lock` or `lock` reported as held."""
    calls.flock(descriptor, fcntl.LOCK_UN)


def _warn_once(error: OSError) -> None:
    global _warned
    count("locks.unsupported")
    if not _warned:
        _warned = True
        logger.warning(
            "The file system of the capture directory refuses flock (%s): appends are single O_APPEND writes without a lock. "
            "Several hosts must not write one rollout there; see docs/store.md.",
            error.strerror,
        )
