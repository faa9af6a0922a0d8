"""Which path a caller meant."""

from __future__ import annotations

import pytest

from otel_gym.capture.routes import CAPTURED_PATHS, repaired_path


@pytest.mark.parametrize("route", CAPTURED_PATHS)
@pytest.mark.parametrize(
    "spelling",
    ["{}", "/v1{}", "//v1{rest}", "{rest}", "/v1/{rest}", "{}/", "/v1//v1{rest}", "{rest}/"],
)
def test_every_spelling_of_a_model_route_is_that_route(route: str, spelling: str) -> None:
    """A missing or doubled /v1, a doubled slash and a trailing one do not make another route."""
    assert repaired_path(spelling.format(route, rest=route.removeprefix("/v1"))) == route


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/v1/v1/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/models", "/v1/models"),
        ("/v1/models/", "/v1/models/"),
        ("/api/hello", "/api/hello"),
        ("//api//hello", "/api/hello"),
        ("/tokenize", "/tokenize"),
        ("/", "/"),
        ("/responsesx", "/responsesx"),
        ("/v1", "/v1"),
    ],
)
def test_other_paths_go_to_the_engine_as_they_are_meant(path: str, expected: str) -> None:
    """API paths that are not model calls are mended too; unknown ones are left to the engine."""
    assert repaired_path(path) == expected
