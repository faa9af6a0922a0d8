"""The rollout prefix `/ng-rollout/<id>`: added to URLs and paths, taken off an ASGI scope.

The URL is what correlates: agents and SDKs keep a base URL through every call and retry, and almost none of them sends trace context.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from starlette.types import Scope

from otel_gym.correlation.rollout_id import checked

ROLLOUT_PATH_PREFIX: Final = "/ng-rollout"
TOKEN_CAPTURE_SEGMENT: Final = "/training-token-capture"

_PREFIXED = re.compile(
    r"/+ng-rollout/(?P<id>[^/]+)(?P<token>/training-token-capture(?=/|$))?(?P<rest>/.*|)", re.DOTALL
)
_RAW_PREFIXED = re.compile(
    rb"/+ng-rollout/[^/]+(?:/training-token-capture(?=/|$))?(?P<rest>/.*|)", re.DOTALL
)


def rollout_path_prefix(rollout_id: str, *, token_capture: bool = False) -> str:
    """`/ng-rollout/<id>`, with the token capture segment where asked. Raises `InvalidRolloutId`."""
    return f"{ROLLOUT_PATH_PREFIX}/{checked(rollout_id)}{TOKEN_CAPTURE_SEGMENT if token_capture else ''}"


def apply_rollout_prefix(
    base_url: str, rollout_id: str | None, *, token_capture: bool = False
) -> str:
    """`base_url` (a root URL, without /v1) with the rollout prefix appended; unchanged without an id."""
    if rollout_id is None:
        return base_url
    return base_url.rstrip("/") + rollout_path_prefix(rollout_id, token_capture=token_capture)


@dataclass(frozen=True, slots=True)
class Prefixed:
    """A scope from which the prefix was taken."""

    rollout_id: str
    """The id as it arrived, percent-escapes decoded; not yet checked against the grammar."""
    scope: Scope
    """A copy with `path` and `raw_path` without the prefix; `raw_path` keeps the caller's own escapes."""


def strip_prefix(scope: Scope) -> Prefixed | None:
    """The rollout that an HTTP or WebSocket scope names, or null where there is no prefix.

    The prefix is found at the start of the path and behind `root_path` (an application mounted below another one, where ASGI keeps the mount's path
    in both). `query_string` is left alone.
    """
    path: str = scope["path"]
    if "/ng-rollout/" not in path:
        return None
    root: str = scope.get("root_path", "") or ""
    mount = root if root and path.startswith(root + "/") else ""
    match = _PREFIXED.fullmatch(path[len(mount) :])
    if match is None:
        return None
    stripped = dict(scope)
    stripped["path"] = mount + (match["rest"] or "/")
    raw: bytes | None = scope.get("raw_path")
    if raw is not None:
        raw_mount, raw_rest = _split_raw(raw, mount)
        raw_match = _RAW_PREFIXED.fullmatch(raw_rest)
        stripped["raw_path"] = (
            raw_mount + (raw_match["rest"] or b"/") if raw_match else stripped["path"].encode()
        )
    return Prefixed(rollout_id=match["id"], scope=stripped)


def _split_raw(raw: bytes, mount: str) -> tuple[bytes, bytes]:
    """`raw` split at the mount's path; a server may leave the mount out of the raw path."""
    raw = raw.partition(b"?")[0]
    encoded = mount.encode()
    return (
        (encoded, raw[len(encoded) :]) if encoded and raw.startswith(encoded + b"/") else (b"", raw)
    )
