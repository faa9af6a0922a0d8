"""The Dockerfile itself, built and run, where there is its base image and this is asked for.

    OTEL_GYM_DOCKERFILE=1 python -m pytest tests/stack/test_dockerfile.py

It needs a Docker engine that has `python:…-slim` of `.env` or can pull it, and a package index.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("OTEL_GYM_DOCKERFILE"),
        reason="builds an image from a base image and a package index: set OTEL_GYM_DOCKERFILE=1",
    ),
]

REPOSITORY = Path(__file__).resolve().parents[2]
CONFINED = ("--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")
PATIENCE_SECONDS = 30.0


def _docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The image that the Dockerfile makes of this tree."""
    tag = dict(re.findall(r"^(\w+)=(\S+)$", (REPOSITORY / ".env").read_text(), re.MULTILINE))
    name = f"otel-gym:test-{os.getpid()}"
    python = f"PYTHON_TAG={tag['PYTHON_TAG']}"
    _docker("build", "--network=host", f"--build-arg={python}", f"--tag={name}", str(REPOSITORY))
    yield name
    _docker("rmi", name)


@pytest.mark.timeout(900)
def test_the_image_has_the_pinned_versions_and_no_others(image: str) -> None:
    """The command runs as another user than root on a read-only root; every package is at a version of constraints.txt."""
    assert re.match(r"otel-gym, version \S+", _docker("run", "--rm", *CONFINED, image, "--version"))
    inside = "import importlib.metadata as m, os; print(os.getuid(), *sorted(f'{d.name}=={d.version}' for d in m.distributions()))"
    user, *found = _docker(
        "run", "--rm", *CONFINED, "--entrypoint=python", image, "-c", inside
    ).split()
    assert user == "10001"
    pinned = re.findall(
        r"^([A-Za-z0-9].*==[^ ;]+)", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE
    )
    known = {each.lower().replace("_", "-") for each in pinned}
    extra = {each.lower().replace("_", "-") for each in found} - known
    assert {each.split("==")[0] for each in extra} <= {"otel-gym", "pip", "setuptools"}


@pytest.mark.timeout(900)
def test_the_image_serves_and_records(image: str) -> None:
    """A call through `otel-gym serve` in the image is a durable record; asked to stop, it ends by itself, without an error."""
    container = _docker(
        "run", "--detach", *CONFINED, "--tmpfs=/captures:mode=1777", image,
        "serve", "--engine=http://127.0.0.1:9", "--capture-dir=/captures", "--port=8080",
    )  # fmt: skip
    try:
        call = """
import json, urllib.error, urllib.request
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
url = "http://127.0.0.1:8080/ng-rollout/0-0/v1/chat/completions"
try:
    urllib.request.urlopen(urllib.request.Request(url, body, {"content-type": "application/json"}))
except urllib.error.HTTPError as answer:
    print(answer.code)
"""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            done = subprocess.run(
                ["docker", "exec", container, "python", "-c", call],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0:
                break
            assert time.monotonic() < deadline, done.stderr
            time.sleep(0.2)
        assert done.stdout.strip() == "502"
        report = json.loads(_docker("exec", container, "otel-gym", "doctor", "/captures", "--json"))
        assert report["totals"]["recorded"] == 1
        _docker("stop", "--time=20", container)
        assert _docker("inspect", "--format={{.State.ExitCode}}", container) == "0"
    finally:
        _docker("rm", "--force", container)
