"""Which paths are model calls, and which spelling of a path the caller meant.

Clients disagree on whether a base URL ends in /v1. Under a rollout prefix a missing /v1, a doubled one, a doubled slash and a trailing slash all mean
the same route; anything else gets whatever the application below answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from otel_gym.dialects import DialectName

CAPTURED_PATHS: Final[Mapping[str, DialectName]] = {
    "/v1/responses": "responses",
    "/v1/chat/completions": "chat",
    "/v1/messages": "messages",
    "/v1/completions": "completions",
}
"""The paths whose POST is a model call."""

_SLASHES: Final = re.compile(r"/{2,}")
_VERSIONS: Final = re.compile(r"(?:/v1)+(?=/|$)")
_API: Final = re.compile(
    r"/(?:responses|chat/completions|messages|completions|models|embeddings)(?=/|$)", re.ASCII
)


def repaired_path(path: str) -> str:
    """The path that the caller of a prefixed URL meant; `path` itself where it is no API path."""
    if path in CAPTURED_PATHS:
        return path
    collapsed = _SLASHES.sub("/", path)
    versions = _VERSIONS.match(collapsed)
    rest = collapsed[versions.end() :] if versions else collapsed
    if not _API.match(rest):
        return collapsed if versions is None else f"/v1{rest}"
    repaired = f"/v1{rest}"
    if repaired.endswith("/") and repaired[:-1] in CAPTURED_PATHS:
        return repaired[:-1]
    return repaired
