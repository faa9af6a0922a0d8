"""The rollout prefix `/ng-rollout/<id>`: added to URLs and paths, taken off an ASGI scope.

The URL is what correlates: agents and SDKs keep a base URL through every call and retry, and almost none of them sends trace context.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

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


_ENDS_PREFIXED = re.compile(r"/ng-rollout/[^/?#]+(?:/training-token-capture)?/*\Z")


def rollout_path_prefix(rollout_id: str | None, *, token_capture: bool = False) -> str:
    """`/ng-rollout/<id>`, with the token capture segment where asked; empty without an id. Raises `InvalidRolloutId`."""
    if not rollout_id:
        return ""
    return f"{ROLLOUT_PATH_PREFIX}/{checked(rollout_id)}{TOKEN_CAPTURE_SEGMENT if token_capture else ''}"


def apply_rollout_prefix(
    base_url: str, rollout_id: str | None, *, token_capture: bool = False
) -> str:
    """`base_url` (a root URL, without /v1) with the rollout prefix appended; unchanged without an id.

    A prefix with which `base_url` already ends is replaced: a launcher may have given its agent a URL that names the rollout. Raises `InvalidRolloutId`.
    """
    if not rollout_id:
        return base_url
    root = _ENDS_PREFIXED.sub("", base_url).rstrip("/")
    return root + rollout_path_prefix(rollout_id, token_capture=token_capture)


class Prefixed(NamedTuple):
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
    match = _PREFIXED.fullmatch(path, len(mount))
    if match is None:
        return None
    rollout_id, _, rest = match.groups()
    stripped = dict(scope)
    stripped["path"] = served = mount + (rest or "/")
    raw: bytes | None = scope.get("raw_path")
    if raw is not None:
        as_served = served.encode()
        # Nearly always the path has no escapes, and both forms are the same text.
        plain = raw == path.encode() and b"?" not in raw
        stripped["raw_path"] = as_served if plain else _strip_raw(raw, mount, as_served)
    return Prefixed(rollout_id, stripped)


def _strip_raw(raw: bytes, mount: str, otherwise: bytes) -> bytes:
    """`raw` without the prefix, its escapes kept; `otherwise` where it does not show the prefix."""
    raw_mount, raw_rest = _split_raw(raw, mount)
    match = _RAW_PREFIXED.fullmatch(raw_rest)
    return raw_mount + (match["rest"] or b"/") if match else otherwise


def _split_raw(raw: bytes, mount: str) -> tuple[bytes, bytes]:
    """`raw` split at the mount's path; a server may leave the mount out of the raw path."""
    raw = raw.partition(b"?")[0]
    encoded = mount.encode()
    return (
        (encoded, raw[len(encoded) :]) if encoded and raw.startswith(encoded + b"/") else (b"", raw)
    )
