"""Which process wrote something, and whether that process still lives.

A process is named by host, boot, pid namespace, pid and start time: a pid alone is used again, and after a reboot or in another container it names
somebody else.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

HEARTBEAT_S: Final = 10.0
"""A producer rewrites its status file at least this often."""
SILENCE_S: Final = 60.0
"""A producer on another host counts as dead after this long without a heartbeat."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process that writes into a capture directory."""

    producer: str
    """Name of this producer, unique: `<host>-<pid>-<random>`."""
    host: str
    boot_id: str
    """Random id of the host's current boot; empty where the system has none."""
    pid_namespace: int
    """Inode of the pid namespace; 0 where the system has none."""
    pid: int
    start_ticks: int
    """Start time of the process in clock ticks since boot; 0 where the system does not say."""
    started_at: float
    """When this producer began, Unix seconds UTC."""

    @classmethod
    def mine(cls) -> Self:
        """A new producer of the calling process."""
        host, pid = socket.gethostname(), os.getpid()
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in host)[:64].lstrip(".")
        return cls(
            producer=f"{name or 'host'}-{pid}-{secrets.token_hex(4)}",
            host=host,
            boot_id=_boot_id(),
            pid_namespace=_pid_namespace(),
            pid=pid,
            start_ticks=_start_ticks(pid) or 0,
            started_at=time.time(),
        )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """The identity that `as_mapping` wrote. Raises `KeyError`, `TypeError` or `ValueError` for anything else."""
        return cls(
            producer=str(values["producer"]),
            host=str(values["host"]),
            boot_id=str(values["boot_id"]),
            pid_namespace=int(values["pid_namespace"]),
            pid=int(values["pid"]),
            start_ticks=int(values["start_ticks"]),
            started_at=float(values["started_at"]),
        )

    def as_mapping(self) -> dict[str, Any]:
        """A JSON object of the fields."""
        return asdict(self)

    def is_alive(self, last_heartbeat_at: float | None) -> bool:
        """Whether the process still lives.

        On this host, since its last boot and in this pid namespace that is certain. Elsewhere it is judged by `last_heartbeat_at` (Unix seconds of the file
        server's clock, null where there was none): another boot of a host of this name may be an earlier one, or another machine's, as those of containers
        and virtual machines that share a name.
        """
        if (self.host, self.boot_id, self.pid_namespace) == (
            socket.gethostname(),
            _boot_id(),
            _pid_namespace(),
        ):
            return self._runs_here()
        return last_heartbeat_at is not None and time.time() - last_heartbeat_at < SILENCE_S

    def _runs_here(self) -> bool:
        ticks = _start_ticks(self.pid)
        if ticks is not None:
            return self.start_ticks in (0, ticks)
        if self.start_ticks:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _start_ticks(pid: int) -> int | None:
    """Start time of a running process; null where there is none (a zombie has ended)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
