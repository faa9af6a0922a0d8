"""The package's public face."""

from __future__ import annotations

import subprocess
import sys

import otel_gym
from otel_gym import _HOMES


def test_the_public_names_are_sorted_complete_and_importable() -> None:
    """`__all__` is sorted, says what can be imported, and nothing else is offered."""
    assert sorted(otel_gym.__all__) == list(otel_gym.__all__) == sorted(_HOMES)
    for name in otel_gym.__all__:
        value = getattr(otel_gym, name)
        assert value.__doc__, f"{name} has no docstring"
        assert value.__module__.startswith("otel_gym.")


def _modules_after(code: str) -> set[str]:
    code += "\nimport sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_else() -> None:
    """`import otel_gym` is free: no web framework, no OpenTelemetry."""
    loaded = _modules_after("import otel_gym")
    assert not loaded & {"starlette", "pydantic", "opentelemetry", "httpx"}


def test_with_observability_off_no_opentelemetry_sdk_is_loaded() -> None:
    """An application with the middleware installed and capture off loads neither the SDK nor an exporter."""
    loaded = _modules_after(
        "from starlette.applications import Starlette\n"
        "from otel_gym import install_model_call_capture\n"
        "install_model_call_capture(Starlette(), {'observability_enabled': False})"
    )
    assert not [
        name
        for name in loaded
        if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "grpc"))
    ]
