"""A model's answer becomes a turn.

The captured response stays separate evidence: a turn keeps the items, not the response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from otel_gym.replay.errors import CaptureError
from otel_gym.replay.native import DESCRIPTION_FIELDS, NativeItems, output_items, read_response
from otel_gym.replay.response_facts import ResponseFacts
from otel_gym.replay.scope import ReplayScope
from otel_gym.replay.turn import Turn


@runtime_checkable
class CapturedCall(Protocol):
    """A record of our own store: all that is needed of it is the response object, null if none came."""

    @property
    def response(self) -> dict[str, Any] | None: ...


def capture_turn(
    response: Mapping[str, Any] | bytes | bytearray | memoryview | CapturedCall,
    scope: ReplayScope | None,
) -> Turn:
    """The turn of a Responses API answer, given as an object, as its bytes, or as a captured record.

    From bytes no list of token metadata is ever made. A null scope makes a turn that replays only as
    public text and calls. Raises `CaptureError` naming the field that cannot be kept exactly.
    """
    if isinstance(response, bytes | bytearray | memoryview):
        described, native = read_response(bytes(response))
    else:
        if not isinstance(response, Mapping):
            if not isinstance(response, CapturedCall):
                raise CaptureError(f"response: cannot capture a {type(response).__name__}")
            if response.response is None:
                raise CaptureError("record.response: the call has no parsed response")
            response = response.response
        described = {key: response[key] for key in DESCRIPTION_FIELDS if key in response}
        items = output_items(dict(response))
        try:
            native = NativeItems.from_values(items)
        except ValueError as error:
            raise CaptureError(f"response.output: {error}") from error
    turn = Turn(native_items=native, scope=scope, facts=ResponseFacts.of(described))
    try:
        _ = turn.digest  # computed here, so that neither snapshots nor checkpoints wait for it
    except ValueError as error:
        raise CaptureError(f"response.usage: {error}") from error
    return turn
