"""Claims: they outlive their process, tell living from dead, and never need space that is not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from otel_gym.capture.claims import SLOT_BYTES, ClaimsFile, read_claims
from otel_gym.capture.identity import SILENCE_S, ProcessIdentity

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def claims(tmp_path: Path) -> ClaimsFile:
    return ClaimsFile(tmp_path / "p.claims", ProcessIdentity.mine(), 0o600)


def test_a_claim_is_readable_until_it_is_settled(claims: ClaimsFile) -> None:
    """What was begun is read back with all it said; settling frees it; the count of begun calls stays."""
    slot = claims.begin("r-1", "a" * 32, 3, 1700000000.25)
    [read] = read_claims(claims.path).slots
    assert (read.rollout_id, read.model_call_id, read.generation) == ("r-1", "a" * 32, 3)
    assert (read.state, read.started_at) == ("pending", 1700000000.25)
    claims.settle([slot])
    after = read_claims(claims.path)
    assert (after.slots, after.begun, after.damaged) == ((), 1, 0)
    assert after.identity == ProcessIdentity.from_mapping(claims._identity.as_mapping())


def test_the_table_grows_and_reuses(claims: ClaimsFile) -> None:
    """A thousand calls at once all stand in the table; the next thousand use the same slots."""
    for _ in range(2):
        slots = [claims.begin("r", f"{i:032x}", 0, 1.0) for i in range(1000)]
        assert len(read_claims(claims.path).slots) == 1000
        claims.settle(slots)
    assert claims.path.stat().st_size < 2200 * SLOT_BYTES
    assert read_claims(claims.path).begun == 2000


def test_lost_calls_stay_in_evidence(claims: ClaimsFile) -> None:
    """A lost claim is neither pending nor gone."""
    slot = claims.begin("r", "a" * 32, 0, 1.0)
    claims.lose(slot)
    assert [s.state for s in read_claims(claims.path).slots] == ["lost"]
    claims.close()
    assert claims.path.exists()


@pytest.mark.parametrize("call_id", ["", "with space", "é" * 300, "new\nline", "\ud800"])
def test_any_call_id_can_be_claimed(claims: ClaimsFile, call_id: str) -> None:
    """A strange or overlong call id breaks neither the slot nor its rollout."""
    claims.begin("r", call_id, 0, 1.0)
    read = read_claims(claims.path)
    assert read.damaged == 0
    assert [s.rollout_id for s in read.slots] == ["r"]


def test_a_damaged_slot_is_counted(claims: ClaimsFile) -> None:
    """A slot with a wrong checksum is damage, not a claim."""
    claims.begin("r", "a" * 32, 0, 1.0)
    data = bytearray(claims.path.read_bytes())
    data[data.index(b"aaaa")] = ord("b")
    claims.path.write_bytes(data)
    assert (read_claims(claims.path).slots, read_claims(claims.path).damaged) == ((), 1)
    claims.path.write_bytes(b"")
    assert read_claims(claims.path).identity is None


def test_a_removed_file_is_made_again(claims: ClaimsFile) -> None:
    """`restore` brings all outstanding claims back under the same path."""
    slots = [claims.begin("r", f"{i:032x}", 0, 1.0) for i in range(300)]
    claims.settle(slots[:100])
    claims.path.unlink()
    assert not claims.intact()
    claims.restore()
    assert claims.intact()
    assert len(read_claims(claims.path).slots) == 200
    claims.begin("r", "f" * 32, 0, 1.0)
    assert len(read_claims(claims.path).slots) == 201
    claims.settle(slots[100:])
    assert [s.model_call_id for s in read_claims(claims.path).slots] == ["f" * 32]


def test_claims_survive_kill_9(tmp_path: Path) -> None:
    """A process that is killed right after a claim leaves it, and is known to be dead."""
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from otel_gym.capture.claims import ClaimsFile\n"
        "from otel_gym.capture.identity import ProcessIdentity\n"
        "c = ClaimsFile(Path(sys.argv[1]), ProcessIdentity.mine(), 0o600)\n"
        "c.begin('r', 'k' * 32, 0, 1.0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "k.claims"
    done = subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    read = read_claims(path)
    assert [s.model_call_id for s in read.slots] == ["k" * 32]
    assert read.identity is not None and not read.identity.is_alive(None)


def test_living_and_dead_are_told_apart() -> None:
    """Alive is: this host, this boot, this pid and this start time; elsewhere, a heartbeat that is not old."""
    import time

    me = ProcessIdentity.mine()
    now = time.time()
    assert me.is_alive(None)
    other_boot = replace(me, boot_id="another")  # an earlier one, or a machine of the same name
    assert other_boot.is_alive(now) and not other_boot.is_alive(now - SILENCE_S - 1)
    assert not replace(me, start_ticks=me.start_ticks + 1).is_alive(now)
    elsewhere = replace(me, host="another-host")
    assert elsewhere.is_alive(now)
    assert not elsewhere.is_alive(now - SILENCE_S - 1)
    assert not elsewhere.is_alive(None)
    contained = replace(me, pid_namespace=me.pid_namespace + 1)
    assert contained.is_alive(now) and not contained.is_alive(None)


def test_a_zombie_is_dead() -> None:
    """A process that has ended and was not reaped writes no more."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ticks = int(Path(f"/proc/{child.pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    identity = replace(ProcessIdentity.mine(), pid=child.pid, start_ticks=ticks)
    assert identity.is_alive(None)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.is_alive(None)
    child.communicate()
    assert not identity.is_alive(None)
