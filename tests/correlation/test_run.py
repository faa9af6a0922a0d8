"""`run.json`, made once by whoever comes first."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from otel_gym.correlation.run import RUN_FILE, default_resource, open_run, read_run
from otel_gym.errors import StoreError


def test_the_first_producer_makes_the_run_and_others_read_it(tmp_path: Path) -> None:
    """Opening a directory twice gives the same run, and only the run file is left there."""
    assert read_run(tmp_path) is None
    first = open_run(tmp_path)
    assert open_run(tmp_path) == first == read_run(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [RUN_FILE]
    assert stat.S_IMODE((tmp_path / RUN_FILE).stat().st_mode) == 0o600


def test_producers_that_start_at_once_agree(tmp_path: Path) -> None:
    """Of eight processes that open a new directory together, all come to the same run."""
    code = f"from pathlib import Path; from otel_gym.correlation.run import open_run; print(open_run(Path({str(tmp_path)!r})).run_id)"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    found = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert len(found) == 1 and found != {""}


def test_a_given_run_id_names_a_new_run_and_must_match_an_old_one(tmp_path: Path) -> None:
    """A chosen id is taken for a new directory; another one for an existing run is refused with both names."""
    assert open_run(tmp_path, run_id="exp-1").run_id == "exp-1"
    with pytest.raises(StoreError, match=r"'exp-1'.*'exp-2'"):
        open_run(tmp_path, run_id="exp-2")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"run_id": ""}'])
def test_a_damaged_run_file_is_told_and_left_alone(tmp_path: Path, content: bytes) -> None:
    """A run file that cannot be read is never replaced: its trace ids may already be out."""
    (tmp_path / RUN_FILE).write_bytes(content)
    with pytest.raises(StoreError, match=RUN_FILE):
        open_run(tmp_path)
    assert (tmp_path / RUN_FILE).read_bytes() == content


def test_the_resource_comes_from_the_standard_variables() -> None:
    """OTEL_SERVICE_NAME wins over OTEL_RESOURCE_ATTRIBUTES, which wins over our defaults; values are percent-decoded."""
    environment = {
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=a,team=b%20c,broken,=x",
        "OTEL_SERVICE_NAME": "mine",
    }
    resource = default_resource(environment)
    assert (
        resource["service.name"] == "mine"
        and resource["team"] == "b c"
        and resource["host.name"] == os.uname().nodename
    )
    assert default_resource({})["service.name"] == "otel-gym"


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_the_run_has_the_mode_of_the_records(tmp_path: Path, mode: int) -> None:
    """Whoever may read the records may read the run that their trace ids come from, whatever the umask."""
    before = os.umask(0o077)
    try:
        open_run(tmp_path, file_mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "run.json").stat().st_mode) == mode
