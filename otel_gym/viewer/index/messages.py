"""The messages of a request as they stand, and digests that tell which of them an earlier call already had."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from otel_gym.viewer.nesting import shallow


def request_items(dialect: str, request: Mapping[str, Any]) -> list[Any]:
    """The parts of a request that make up its conversation, unchanged and in order: instructions first, then messages."""
    items: list[Any] = []
    for key in ("system", "instructions"):
        if request.get(key) not in (None, "", []):
            items.append({"role": "system", "content": request[key]})
    for key in ("messages", "input", "prompt"):
        value = request.get(key)
        if value is None:
            continue
        if isinstance(value, list) and (key != "prompt" or all(isinstance(v, str) for v in value)):
            items.extend(value)
        else:
            items.append(value)
    return items


def chain(items: Sequence[Any]) -> Iterator[str]:
    """The digest of the first item, of the first two, and so on: equal digests mean equal beginnings."""
    digest = hashlib.blake2b(digest_size=8)
    for item in items:
        data = canonical(item)
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
        yield digest.hexdigest()


def canonical(item: Any) -> bytes:
    """JSON of a value that is equal for equal values."""
    try:
        return orjson.dumps(item, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):
        # Nested too deep, numbers beyond 64 bits, lone surrogates.
        return json.dumps(shallow(item), sort_keys=True).encode()
