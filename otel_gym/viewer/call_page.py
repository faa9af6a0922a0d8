"""What the page of one model call shows, and its JSON twin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from otel_gym.viewer.bodies import Body, bodies
from otel_gym.viewer.conversation import Message, request_messages, response_messages
from otel_gym.viewer.curl import curl_command
from otel_gym.viewer.index.indexer import Index
from otel_gym.viewer.index.messages import canonical, request_items
from otel_gym.viewer.rollout_page import shown_call

_FACTS = (
    "model_ref",
    "trace",
    "engine",
    "client",
    "client_session_id",
    "stream",
    "resend",
    "upstream_attempted",
    "upstream_status_code",
    "response_source",
    "local_response_reason",
    "exception",
    "unmerged",
    "request_cut",
    "response_cut",
    "stream_usage_requested",
)
"""Keys of the raw record that the page shows as they are."""

SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "seed",
    "stop",
    "stop_sequences",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logprobs",
    "top_logprobs",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "reasoning",
    "reasoning_effort",
    "thinking",
    "stream",
)
"""Parameters of a request that say how the model samples, in the order of the table."""


class CallPage:
    """Data of the call page."""

    def __init__(self, index: Index, jaeger_ui: str | None) -> None:
        self._index = index
        self._jaeger_ui = jaeger_ui

    def find(self, rollout_id: str, number: int) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """(row of the rollout, row of the call), null where there is none."""
        rollout = self._index.rollout(rollout_id)
        if rollout is None or not 0 <= number < 2**63:
            return None
        call = self._index.database.row(
            "SELECT * FROM calls WHERE rollout=? AND number=?", (rollout["id"], number)
        )
        return None if call is None else (rollout, call)

    def number_of(self, rollout_id: str, name: str) -> int | None:
        """The number of the call with this model call id or span id."""
        rollout = self._index.rollout(rollout_id)
        if rollout is None:
            return None
        found = self._index.database.row(
            "SELECT number FROM calls WHERE rollout=? AND (model_call_id=? OR span_id=?) LIMIT 1",
            (rollout["id"], name, name),
        )
        return found["number"] if found else None

    def bodies(self, rollout_id: str, number: int) -> dict[str, Body] | None:
        """The bodies of a call, null where there is none. Raises `StoreError`."""
        found = self.find(rollout_id, number)
        if found is None:
            return None
        line = self._index.line(rollout_id, found[1])
        return bodies(self._index.raw_record(rollout_id, found[1]), line)

    def curl(self, rollout_id: str, number: int) -> str | None:
        """The call as a curl command, null where there is none or its request is no JSON object. Raises `StoreError`."""
        found = self.find(rollout_id, number)
        if found is None:
            return None
        raw = self._index.raw_record(rollout_id, found[1])
        request = raw.get("request")
        return curl_command(raw, request) if isinstance(request, dict) else None

    def data(self, rollout_id: str, number: int) -> dict[str, Any] | None:
        """The call, null where there is none. Raises `StoreError` where its line is not there any more."""
        found = self.find(rollout_id, number)
        if found is None:
            return None
        rollout, call = found
        raw = self._index.raw_record(rollout_id, call)
        asked, answered = conversation(raw)
        before, repeated = self._before(rollout_id, rollout, call, raw)
        kept = bodies(raw, b"")
        shown = shown_call(call)
        begin = rollout["started_at"]
        if begin is not None and call["started_at"] is not None:
            shown["start_s"] = call["started_at"] - begin
        return {
            "version": "1",  # a line never changes
            "rollout_id": rollout_id,
            "trace_id": rollout["trace_id"],
            "call": shown,
            "file": self._index.layout.records(rollout_id).name,
            "extends": before,
            "repeated": [asdict(message) for message in asked[:repeated]],
            "new": [asdict(message) for message in asked[repeated:]],
            "answer": [asdict(message) for message in answered],
            "tools": tools(raw.get("request")),
            "sampling": sampling(raw),
            "facts": {key: raw[key] for key in _FACTS if raw.get(key) is not None},
            "bodies": {
                kind: {
                    "size_bytes": call["length_bytes"] if kind == "line" else len(body.data),
                    "media_type": body.media_type,
                    "note": body.note,
                }
                for kind, body in kept.items()
            },
            "previous": self._neighbour(rollout, call, "<", "DESC"),
            "next": self._neighbour(rollout, call, ">", "ASC"),
            "calls": rollout["calls"],
            "jaeger_url": f"{self._jaeger_ui}/trace/{rollout['trace_id']}?uiFind={call['span_id']}"
            if self._jaeger_ui
            else None,
        }

    def _before(
        self, rollout_id: str, rollout: dict[str, Any], call: dict[str, Any], raw: dict[str, Any]
    ) -> tuple[int | None, int]:
        """(call whose messages this one repeats, how many of them it repeats)."""
        if call["extends"] is not None:
            return call["extends"], call["repeated"]
        # Nothing is repeated whole: what the call before has in common is still not new.
        previous = self._index.database.row(
            "SELECT * FROM calls WHERE rollout=? AND number<? ORDER BY number DESC LIMIT 1",
            (rollout["id"], call["number"]),
        )
        if previous is None:
            return None, 0
        earlier = self._index.raw_record(rollout_id, previous)
        same = common_beginning(_items(earlier), _items(raw))
        return (previous["number"], same) if same else (None, 0)

    def _neighbour(
        self, rollout: dict[str, Any], call: dict[str, Any], comparison: str, direction: str
    ) -> int | None:
        found = self._index.database.row(
            f"SELECT number FROM calls WHERE rollout=? AND number{comparison}? ORDER BY number {direction} LIMIT 1",
            (rollout["id"], call["number"]),
        )
        return found["number"] if found else None


def conversation(raw: Mapping[str, Any]) -> tuple[list[Message], list[Message]]:
    """(messages of the request, messages of the response) of a raw record."""
    request, response = raw.get("request"), raw.get("response")
    return (
        request_messages(str(raw.get("dialect")), request if isinstance(request, dict) else None),
        response_messages(response if isinstance(response, dict) else None),
    )


def common_beginning(first: list[Any], second: list[Any]) -> int:
    """How many items both begin with."""
    same = 0
    for one, other in zip(first, second, strict=False):
        if canonical(one) != canonical(other):
            break
        same += 1
    return same


def tools(request: Any) -> list[dict[str, Any]]:
    """Name and definition of every tool that the request offers."""
    offered = request.get("tools") if isinstance(request, dict) else None
    found = []
    for tool in offered if isinstance(offered, list) else ():
        inner = tool.get("function") if isinstance(tool, dict) else None
        name = inner.get("name") if isinstance(inner, dict) else None
        if name is None and isinstance(tool, dict):
            name = tool.get("name") or tool.get("type")
        found.append({"name": name if isinstance(name, str) else "?", "definition": tool})
    return found


def sampling(raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every sampling parameter that was asked for, pinned or effective; `changed` where the effective value is another one."""
    request = raw.get("request") if isinstance(raw.get("request"), dict) else {}
    noted = raw.get("sampling") if isinstance(raw.get("sampling"), dict) else {}
    assert isinstance(request, dict) and isinstance(noted, dict)
    asked = {key: request[key] for key in SAMPLING if request.get(key) is not None}
    asked.update(_object(noted.get("requested")))
    effective = {**asked, **_object(noted.get("effective"))}
    pinned = noted.get("pinned")
    names = {str(name) for name in pinned} if isinstance(pinned, (dict, list)) else set()
    known = noted.get("effective") is not None
    rows = []
    for key in sorted(
        {*asked, *effective, *names}, key=lambda k: (SAMPLING.index(k) if k in SAMPLING else 99, k)
    ):
        rows.append(
            {
                "parameter": key,
                "asked": asked.get(key),
                "effective": effective.get(key) if known else asked.get(key),
                "pinned": key in names,
                "changed": known and asked.get(key) != effective.get(key),
            }
        )
    return rows


def _items(raw: Mapping[str, Any]) -> list[Any]:
    return request_items(str(raw.get("dialect")), _object(raw.get("request")))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
