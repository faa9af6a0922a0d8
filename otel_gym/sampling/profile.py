"""What a model server pins: checked once at start, laid over each request's body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from otel_gym.dialects.names import DIALECTS, DialectName
from otel_gym.errors import SettingsError
from otel_gym.sampling.parameters import SPELLINGS, Parameter, nearest, unknown_parameter


@dataclass(frozen=True, slots=True)
class Pin:
    """One parameter whose value this server enforces."""

    parameter: Parameter
    written: str
    """The name under which a person configured it."""
    value: Any

    def names_in(self, dialect: DialectName, body: Mapping[str, Any]) -> tuple[str, ...]:
        """The names under which the value is written into `body`: those that the caller used, and always one that this path obeys.

        Empty on a path that does not take the parameter.
        """
        equivalent = self.parameter.names.get(dialect, ())
        if not equivalent:
            return ()
        used = tuple(name for name in self.parameter.names_on(dialect) if name in body)
        if any(name in equivalent for name in used):
            return used
        return (self.written if self.written in equivalent else equivalent[0], *used)


@dataclass(frozen=True, slots=True)
class Pinned:
    """A body with the pins laid over it."""

    body: dict[str, Any]
    pinned: dict[str, Any]
    """The pins under the names in which they stand in `body`."""
    changed: bool


@dataclass(frozen=True, slots=True)
class SamplingProfile:
    """All pins of a server; without any it is false and changes nothing."""

    pins: tuple[Pin, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pins)

    def describe(self) -> str:
        """For the start-up line: `pins temperature=1.0, top_k=-1`, or that nothing is pinned."""
        if not self.pins:
            return "pins nothing"
        return "pins " + ", ".join(f"{pin.written}={_shown(pin.value)}" for pin in self.pins)

    def values(self) -> dict[str, Any]:
        """The pins as a person wrote them."""
        return {pin.written: pin.value for pin in self.pins}

    def by_dialect(self) -> dict[str, dict[str, Any]]:
        """For each path's dialect, the pins under the names that are sent where the caller sent none."""
        return {
            dialect: {
                name: pin.value for pin in self.pins for name in pin.names_in(dialect, {})[:1]
            }
            for dialect in DIALECTS
        }

    def lay_over(self, dialect: DialectName, body: Mapping[str, Any]) -> Pinned:
        """`body` as the engine is to get it: a pin replaces what stands there, it does not only fill in."""
        result = dict(body)
        pinned: dict[str, Any] = {}
        changed = False
        for pin in self.pins:
            for name in pin.names_in(dialect, body):
                pinned[name] = pin.value
                if name not in body or not same_value(body[name], pin.value):
                    result[name] = pin.value
                    changed = True
        return Pinned(result, pinned, changed)

    def differing(self, sampling: Mapping[str, Any]) -> list[str]:
        """The names in `sampling` whose value is another than the pin's; a null asked for nothing and differs from nothing."""
        values = {pin.parameter.name: pin.value for pin in self.pins}
        found = []
        for name, value in sampling.items():
            known = SPELLINGS.get(name)
            key = known.name if known else name
            if value is not None and key in values and not same_value(value, values[key]):
                found.append(name)
        return found


def same_value(one: Any, other: Any) -> bool:
    """Whether two values ask an engine for the same: 1 and 1.0 do, 1 and true do not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, str) != isinstance(other, str):
        # One stop text, bare or as the only item of a list.
        one, other = _as_list(one), _as_list(other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    return bool(one == other)


def profile_of(
    overrides: Mapping[str, Any] | None,
    *,
    allow_unknown: bool = False,
    where: str = "sampling_overrides",
) -> SamplingProfile:
    """The profile of a configuration's `sampling_overrides`; a null value pins nothing.

    Raises `SettingsError` with key, value and rule: for a wrong type or range, for one parameter under two names, for a name that the table lacks unless `allow_unknown`.
    """
    pins: dict[str, Pin] = {}
    for name, value in (overrides or {}).items():
        if value is None:
            continue
        parameter = SPELLINGS.get(name)
        if parameter is None:
            if not allow_unknown:
                raise SettingsError(f"{where}.{name}: {_unknown(name)}")
            parameter = unknown_parameter(name)
        if (problem := parameter.problem(value)) is not None:
            raise SettingsError(f"{where}.{name}: {value!r}: {problem}")
        if parameter.name in pins:
            raise SettingsError(
                f"{where}.{name}: {pins[parameter.name].written} pins the same parameter; keep one"
            )
        if isinstance(value, tuple):
            value = list(value)
        pins[parameter.name] = Pin(parameter, name, value)
    return SamplingProfile(tuple(pins.values()))


def _unknown(name: str) -> str:
    near = nearest(name)
    hint = f"; did you mean {near!r}?" if near else ";"
    return f"is no known sampling parameter{hint} sampling_allow_unknown: true lets it through"


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _shown(value: Any) -> str:
    return repr(value) if not isinstance(value, bool) else str(value).lower()
