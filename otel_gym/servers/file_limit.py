"""How many files and sockets this process may have open."""

from __future__ import annotations

import contextlib
import resource
from typing import Final

WANTED: Final = 65536


def raise_file_limit() -> None:
    """Raise the soft limit as far as the hard one allows, up to 65,536: the usual 1024 would stop at a few hundred calls. For processes that are ours."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def file_limit() -> int:
    """The limit as it stands."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return WANTED if soft == resource.RLIM_INFINITY else soft
