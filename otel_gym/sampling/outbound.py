"""What a caller's generation request becomes before it leaves for the engine: defaults filled in, then the pins laid over it, last."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from otel_gym.dialects.encoding import decode_body
from otel_gym.dialects.jsontext import loads_noting
from otel_gym.dialects.names import DialectName
from otel_gym.errors import DialectError
from otel_gym.sampling.parameters import SPELLINGS, sampling_of
from otel_gym.sampling.profile import SamplingProfile

MAX_DECODED_BYTES: Final = 256 * 1024 * 1024
"""Bound on what a compressed request may expand to, in bytes."""


_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_ESCAPED_LETTER: Final = re.compile(rb"\\u00(?:5[fF]|6[1-9a-fA-F]|7[0-9aA])")  # those of names
_JSON_NAMES: Final = {list: "an array", str: "a text", bool: "true or false", type(None): "null"}


class UnreadableBody(DialectError):
    """A request body that is no JSON object, so that nothing can be laid over it."""


class Ambiguous(dict[str, Any]):
    """An object in whose text one key may stand twice; the last one counts here.

    Readers disagree (some take the first, some refuse), so under pins its text never goes out as it came.
    """


@dataclass(frozen=True, slots=True)
class JsonBody:
    """A request's body as a JSON object."""

    value: dict[str, Any]
    standard: bool = True
    """Whether a standard writer writes it again without loss; not so with NaN, lone surrogates and the longest integers."""

    def written(self, value: Mapping[str, Any]) -> bytes:
        """`value`, made from this one, as bytes; what this one had beyond the standard is written as it was read."""
        if self.standard:
            try:
                return orjson.dumps(value)
            except TypeError:
                # A configured value may be beyond what the fast writer takes.
                pass
        return json.dumps(value, separators=(",", ":")).encode()


def read_object(body: bytes, encoding: str = "") -> JsonBody:
    """A request's body, content encodings removed. Raises `UnreadableBody`."""
    try:
        decoded = decode_body(encoding, body, MAX_DECODED_BYTES) if encoding else body
        value, standard = loads_noting(decoded.removeprefix(_BYTE_ORDER_MARK))
    except (DialectError, ValueError) as error:
        raise UnreadableBody(str(error)) from None
    if not isinstance(value, dict):
        raise UnreadableBody(f"{_JSON_NAMES.get(type(value), 'a number')}, not an object")
    return JsonBody(Ambiguous(value) if _may_repeat(decoded, value) else value, standard)


def _may_repeat(text: bytes, value: Mapping[str, Any]) -> bool:
    """Whether a sampling parameter may stand in `text` more often than once: it does, or escapes could hide that."""
    if _ESCAPED_LETTER.search(text):
        return True
    return any(text.count(b'"%s"' % name.encode()) > 1 for name in value if name in SPELLINGS)


def with_defaults(caller: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """`caller` with each default whose key it lacks; `caller` itself where that is none. A caller's null is a value."""
    missing = {key: value for key, value in defaults.items() if key not in caller}
    return {**caller, **missing} if missing else caller


@dataclass(frozen=True, slots=True)
class SamplingAccount:
    """What became of one call's sampling parameters; `record` is what its line says.

    Names are those of the path that the caller used, as in the bodies themselves.
    """

    requested: dict[str, Any]
    pinned: dict[str, Any]
    effective: dict[str, Any]
    overridden: list[str]

    def record(self, outbound_sha256: str) -> dict[str, Any]:
        """The `sampling` of a record."""
        return {
            "requested": self.requested,
            "pinned": self.pinned,
            "effective": self.effective,
            "overridden": self.overridden,
            "outbound_sha256": outbound_sha256,
        }


def lay_pins(
    profile: SamplingProfile,
    dialect: DialectName,
    body: dict[str, Any],
    *,
    caller_dialect: DialectName,
    caller: Mapping[str, Any],
) -> tuple[dict[str, Any], SamplingAccount]:
    """`body` (for a path of `dialect`) with the pins over it (`body` itself where nothing changed), and the account for the caller.

    `caller` is the body as the caller sent it, to a path of `caller_dialect`; the two differ where chat is served through completions.
    """
    laid = profile.lay_over(dialect, body)
    sent = laid.body if laid.changed or (profile and isinstance(body, Ambiguous)) else body
    effective = _seen_from(caller_dialect, caller, _sampling_and(sent, dialect, laid.pinned))
    pinned = _seen_from(caller_dialect, caller, laid.pinned)
    asked = _sampling_and(caller, caller_dialect, pinned)
    return sent, SamplingAccount(asked, pinned, effective, sorted(profile.differing(asked)))


def _sampling_and(
    body: Mapping[str, Any], dialect: DialectName, names: Mapping[str, Any]
) -> dict[str, Any]:
    """The sampling parameters of a body, and those of `names` that the table lacks."""
    found = sampling_of(dialect, body)
    found.update({name: body[name] for name in names if name in body})
    return found


def _seen_from(
    dialect: DialectName, caller: Mapping[str, Any], sampling: Mapping[str, Any]
) -> dict[str, Any]:
    """`sampling` under the names of the caller's path: those that the caller used, else as sent where that name is known there, else the usual one."""
    seen: dict[str, Any] = {}
    for name, value in sampling.items():
        parameter = SPELLINGS.get(name)
        names = parameter.names_on(dialect) if parameter else ()
        used = [own for own in names if own in caller]
        if name in used or not names:
            seen[name] = value
        elif used:
            seen.update(dict.fromkeys(used, value))
        else:
            seen[name if name in names else names[0]] = value
    return seen
