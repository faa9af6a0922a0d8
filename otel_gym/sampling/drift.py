"""What calls really sampled with, from their records: profiles, overrides, gaps, and calls that differ from what was required. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from otel_gym.dialects.names import DIALECTS
from otel_gym.sampling.parameters import PARAMETERS, SPELLINGS, by_parameter, sampling_of
from otel_gym.sampling.profile import same_value


@dataclass(frozen=True, slots=True)
class CallSampling:
    """One call's sampling parameters, under the names of reports; a null counts as absent."""

    server: str
    rollout_id: str
    model_call_id: str
    requested: dict[str, Any]
    pinned: dict[str, Any]
    effective: dict[str, Any]

    @property
    def overridden(self) -> list[str]:
        """Parameters for which the caller sent another value than the engine got."""
        return [
            name
            for name, value in self.requested.items()
            if name in self.effective and not same_value(value, self.effective[name])
        ]

    @property
    def shape(self) -> dict[str, Any]:
        """The effective parameters that shape a token's distribution: two calls that differ here were not sampled alike."""
        return {name: self.effective[name] for name in sorted(self.effective) if _shapes(name)}


def call_sampling(rollout_id: str, record: Mapping[str, Any]) -> CallSampling | None:
    """The sampling of one raw record; null where the call never reached an engine, or where neither its request nor its `sampling` can be read."""
    dialect = record.get("dialect")
    if dialect not in DIALECTS or record.get("response_source") == "local":
        return None
    request, account = record.get("request"), record.get("sampling")
    model_ref = record.get("model_ref")
    server = model_ref.get("name") if isinstance(model_ref, Mapping) else None
    if isinstance(account, Mapping):
        requested, pinned, effective = (
            _reported(dialect, account.get(key)) for key in ("requested", "pinned", "effective")
        )
    elif isinstance(request, Mapping):
        requested = by_parameter(dialect, sampling_of(dialect, request))
        pinned, effective = {}, requested
    else:
        return None
    return CallSampling(
        server=str(server or "-"),
        rollout_id=rollout_id,
        model_call_id=str(record.get("model_call_id")),
        requested=requested,
        pinned=pinned,
        effective=effective,
    )


@dataclass(slots=True)
class Group:
    """Calls of one server, or of one rollout on it."""

    calls: int = 0
    profiles: Counter[str] = field(default_factory=Counter)
    """Calls by what the server pinned, as JSON."""
    effective: Counter[str] = field(default_factory=Counter)
    """Calls by the parameters that shaped their tokens, as JSON."""
    overridden: Counter[str] = field(default_factory=Counter)
    """By parameter: calls whose caller sent something else than the engine got."""
    requested: Counter[str] = field(default_factory=Counter)
    """By parameter: calls whose caller sent one."""

    def add(self, call: CallSampling) -> None:
        self.calls += 1
        self.profiles[_json(call.pinned)] += 1
        self.effective[_json(call.shape)] += 1
        self.overridden.update(call.overridden)
        self.requested.update(call.requested.keys())

    def to_json(self, watched: set[str]) -> dict[str, Any]:
        """`watched` are the parameters whose absence is worth telling."""
        return {
            "calls": self.calls,
            "profiles": _counted(self.profiles, "pinned"),
            "effective": _counted(self.effective, "values"),
            "overridden": dict(sorted(self.overridden.items())),
            "without": {
                name: self.calls - self.requested[name]
                for name in sorted(watched)
                if self.requested[name] < self.calls
            },
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """A call whose engine got another value than the required one, or none (`effective` null)."""

    rollout_id: str
    model_call_id: str
    parameter: str
    required: Any
    effective: Any

    def to_json(self) -> dict[str, Any]:
        return {
            "rollout_id": self.rollout_id,
            "model_call_id": self.model_call_id,
            "parameter": self.parameter,
            "required": self.required,
            "effective": self.effective,
        }


class DriftReport:
    """Built call by call; `required` are values that every call's engine must have got, under any known name."""

    def __init__(self, required: Mapping[str, Any] | None = None) -> None:
        self.required = {_name(name): value for name, value in (required or {}).items()}
        self.servers: dict[str, Group] = {}
        self.rollouts: dict[tuple[str, str], Group] = {}
        self.differences: list[Difference] = []
        self.calls = 0
        self.unread = 0
        """Calls that never reached an engine, or whose parameters are not in the record."""
        self._watched: set[str] = set(self.required)

    def add(self, rollout_id: str, record: Mapping[str, Any]) -> None:
        """Take one raw record into account."""
        call = call_sampling(rollout_id, record)
        if call is None:
            self.unread += 1
            return
        self.calls += 1
        self.servers.setdefault(call.server, Group()).add(call)
        self.rollouts.setdefault((call.server, rollout_id), Group()).add(call)
        self._watched.update(name for name in call.effective if _shapes(name))
        self._watched.update(call.pinned)
        self.differences.extend(self._differences(call))

    def _differences(self, call: CallSampling) -> Iterator[Difference]:
        for name, value in self.required.items():
            effective = call.effective.get(name)
            if effective is None or not same_value(effective, value):
                yield Difference(call.rollout_id, call.model_call_id, name, value, effective)

    @property
    def mixed(self) -> list[str]:
        """Rollouts whose calls were not all sampled alike."""
        return sorted({key[1] for key, group in self.rollouts.items() if len(group.effective) > 1})

    def to_json(self) -> dict[str, Any]:
        """The report as `otel-gym sampling --json` prints it."""
        return {
            "calls": self.calls,
            "unread_calls": self.unread,
            "servers": [
                {
                    "server": server,
                    **group.to_json(self._watched),
                    "rollouts": [
                        {"rollout_id": key[1], **own.to_json(self._watched)}
                        for key, own in sorted(self.rollouts.items())
                        if key[0] == server
                    ],
                }
                for server, group in sorted(self.servers.items())
            ],
            "mixed_rollouts": self.mixed,
            "required": self.required,
            "differences": [difference.to_json() for difference in self.differences],
        }


def _shapes(name: str) -> bool:
    parameter = PARAMETERS.get(name)
    return parameter is None or parameter.shapes


def _name(spelling: str) -> str:
    parameter = SPELLINGS.get(spelling)
    return parameter.name if parameter else spelling


def _reported(dialect: Any, values: Any) -> dict[str, Any]:
    """A record's values under the names of reports, a name that the table lacks as it is."""
    if not isinstance(values, Mapping):
        return {}
    found = by_parameter(dialect, values)
    found.update(
        {
            str(name): value
            for name, value in values.items()
            if name not in SPELLINGS and value is not None
        }
    )
    return found


def _json(values: Mapping[str, Any]) -> str:
    try:
        return orjson.dumps(values, default=str, option=orjson.OPT_SORT_KEYS).decode()
    except (
        TypeError
    ):  # integers beyond 64 bits and lone surrogates, which only the standard writer takes
        return json.dumps(values, default=str, sort_keys=True)


def _counted(counter: Counter[str], key: str) -> list[dict[str, Any]]:
    return [{key: json.loads(text), "calls": calls} for text, calls in counter.most_common()]
