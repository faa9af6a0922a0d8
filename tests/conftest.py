"""Fixtures for every room's tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--reference-python", help="Python of an environment with nemo-gym 0.7.0, to compare with."
    )


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of recorded exchanges and reference facts beside the checkout; tests that need it skip outside CI when it is absent."""
    folder = Path(os.environ.get("OTEL_GYM_SHARED", REPOSITORY.parent / "shared"))
    if not (folder / "corpus").is_dir():
        reason = f"no recorded exchanges at {folder}; set OTEL_GYM_SHARED to their folder"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return folder


@pytest.fixture(autouse=True)
def _no_otel_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests start without the OTEL_* variables of whoever runs them."""
    for name in list(os.environ):
        if name.startswith("OTEL_") and not name.startswith("OTEL_GYM_"):
            monkeypatch.delenv(name)
