"""The rollout prefix on URLs and in ASGI scopes."""

from __future__ import annotations

from typing import Any

import pytest

from otel_gym.correlation.prefix import apply_rollout_prefix, rollout_path_prefix, strip_prefix
from otel_gym.errors import InvalidRolloutId


def scope(path: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"beta=true",
        **more,
    }


def test_the_prefix_is_appended_to_a_root_url() -> None:
    """A base URL keeps its own path, loses a trailing slash and gains the rollout."""
    assert apply_rollout_prefix("http://h:1/", "7-2") == "http://h:1/ng-rollout/7-2"
    assert (
        apply_rollout_prefix("http://h:1/x", "7-2", token_capture=True)
        == "http://h:1/x/ng-rollout/7-2/training-token-capture"
    )
    assert apply_rollout_prefix("http://h:1/", None) == "http://h:1/"
    for refused in ("../x", 7):
        with pytest.raises(InvalidRolloutId):
            rollout_path_prefix(refused)  # type: ignore[arg-type]


def test_without_an_id_there_is_no_prefix() -> None:
    """Neither a null id nor an empty one changes a path or a base URL."""
    for nothing in (None, ""):
        assert rollout_path_prefix(nothing, token_capture=True) == ""
        assert apply_rollout_prefix("http://h:1/", nothing, token_capture=True) == "http://h:1/"


@pytest.mark.parametrize(
    "given",
    [
        "http://h:1/ng-rollout/a",
        "http://h:1/ng-rollout/a/training-token-capture",
        "http://h:1/ng-rollout/7-2/",
    ],
)
def test_a_prefix_that_is_there_is_replaced(given: str) -> None:
    """A base URL that already names a rollout names the new one after that, and no path has two prefixes."""
    assert apply_rollout_prefix(given, "7-2") == "http://h:1/ng-rollout/7-2"
    assert apply_rollout_prefix(given, None) == given
    inner = "http://h:1/ng-rollout/a/more"
    assert apply_rollout_prefix(inner, "7-2") == inner + "/ng-rollout/7-2"


@pytest.mark.parametrize(
    ("path", "rollout_id", "rest"),
    [
        ("/ng-rollout/7-2/v1/responses", "7-2", "/v1/responses"),
        ("/ng-rollout/7-2/training-token-capture/v1/responses", "7-2", "/v1/responses"),
        ("/ng-rollout/7-2/training-token-capturex", "7-2", "/training-token-capturex"),
        ("/ng-rollout/7-2", "7-2", "/"),
        ("/ng-rollout/7-2/", "7-2", "/"),
        ("/ng-rollout/7-2//v1/messages", "7-2", "//v1/messages"),
        ("//ng-rollout/7-2/v1/messages", "7-2", "/v1/messages"),
        ("/ng-rollout/a b/v1/x\ny", "a b", "/v1/x\ny"),
    ],
)
def test_a_prefixed_path_gives_its_rollout_and_the_rest(
    path: str, rollout_id: str, rest: str
) -> None:
    """The id is taken as it came, the rest stays as it was."""
    found = strip_prefix(scope(path))
    assert found is not None
    assert (found.rollout_id, found.scope["path"]) == (rollout_id, rest)
    assert found.scope["query_string"] == b"beta=true"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/responses",
        "/ng-rollout",
        "/ng-rollout/",
        "/x/ng-rollout/7-2/v1/responses",
        "/ng-rolloutx/7/v1",
    ],
)
def test_other_paths_have_no_prefix(path: str) -> None:
    """Only a path that begins with the prefix and names a rollout has one."""
    assert strip_prefix(scope(path)) is None


def test_the_callers_own_escapes_survive_in_the_raw_path() -> None:
    """`raw_path` loses the prefix and nothing else."""
    given = scope(
        "/ng-rollout/7-2/v1/files/a/b c", raw_path=b"/ng-rollout/7%2D2/v1/files/a%2Fb%20c"
    )
    found = strip_prefix(given)
    assert found is not None
    assert found.scope["raw_path"] == b"/v1/files/a%2Fb%20c"
    assert given["path"].startswith("/ng-rollout"), "the server's own scope was changed"


def test_a_server_that_gives_no_raw_path_gets_none() -> None:
    """`raw_path` is optional in ASGI."""
    without = {"type": "http", "path": "/ng-rollout/7-2/v1/responses", "query_string": b""}
    found = strip_prefix(without)
    assert found is not None and "raw_path" not in found.scope


@pytest.mark.parametrize(
    "raw", [b"/api/ng-rollout/7-2/v1/responses", b"/ng-rollout/7-2/v1/responses"]
)
def test_behind_a_mount_the_prefix_follows_root_path(raw: bytes) -> None:
    """An application mounted below another sees its own path again, the mount kept, however the server writes raw_path."""
    found = strip_prefix(scope("/api/ng-rollout/7-2/v1/responses", root_path="/api", raw_path=raw))
    assert found is not None
    assert found.scope["path"] == "/api/v1/responses"
    assert found.scope["root_path"] == "/api"
    assert found.scope["raw_path"] == raw.replace(b"/ng-rollout/7-2", b"")


def test_a_proxy_that_set_root_path_without_keeping_it_in_the_path_works() -> None:
    """A stripping proxy leaves the prefix at the start of the path."""
    found = strip_prefix(scope("/ng-rollout/7-2/v1/responses", root_path="/api"))
    assert found is not None and found.scope["path"] == "/v1/responses"
