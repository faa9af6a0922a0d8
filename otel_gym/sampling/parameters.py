"""The table of sampling parameters: type, range, and the name of each on every generation path.

OpenAI and Anthropic name the same thing differently (`max_completion_tokens`, `max_output_tokens`, `stop_sequences`); the extensions of vLLM, SGLang and llama.cpp
have one name on every path, because those engines accept them there.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from otel_gym.dialects.names import DIALECTS, DialectName

Kind = Literal["number", "integer", "boolean", "strings", "integers", "object", "any"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One sampling parameter."""

    name: str
    """Its name in reports."""
    kind: Kind
    minimum: float | None = None
    maximum: float | None = None
    above_minimum: bool = False
    """Whether the minimum itself is outside the range."""
    shapes: bool = True
    """Whether it shapes the distribution that a token is drawn from; lengths, stops and seeds do not."""
    names: Mapping[DialectName, tuple[str, ...]] = field(default_factory=dict)
    """Its names on a path, equivalent there, the usual one first; a path that is missing does not take it."""
    shadows: tuple[str, ...] = ()
    """Further names that some engine obeys on any path; a pin replaces them where a caller sent one."""

    def names_on(self, dialect: DialectName) -> tuple[str, ...]:
        """Every name under which a caller can have sent it on this path."""
        return (*self.names.get(dialect, ()), *self.shadows) if dialect in self.names else ()

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value, as the rule that it breaks; null where nothing is."""
        if not self._has_type(value):
            return f"must be {self._article()}{self._range()}"
        if self.kind in ("number", "integer") and not self._in_range(value):
            return f"must be {self._article()}{self._range()}"
        return None

    def _has_type(self, value: Any) -> bool:
        match self.kind:
            case "number":
                return type(value) is int or (type(value) is float and math.isfinite(value))
            case "integer":
                return type(value) is int
            case "boolean":
                return type(value) is bool
            case "strings":
                return type(value) is str or _is_list_of(value, str)
            case "integers":
                return _is_list_of(value, int)
            case "object":
                return isinstance(value, Mapping)
        return True

    def _in_range(self, value: float) -> bool:
        if self.minimum is not None and (
            value < self.minimum or (self.above_minimum and value == self.minimum)
        ):
            return False
        return self.maximum is None or value <= self.maximum

    def _article(self) -> str:
        return {
            "number": "a number",
            "integer": "an integer",
            "boolean": "true or false",
            "strings": "a text or a list of texts",
            "integers": "a list of integers",
            "object": "a mapping",
            "any": "a value",
        }[self.kind]

    def _range(self) -> str:
        low, high = self.minimum, self.maximum
        if low is None and high is None:
            return ""
        if high is None:
            return f" above {low:g}" if self.above_minimum else f" of at least {low:g}"
        if low is None:
            return f" of at most {high:g}"
        return (
            f" above {low:g}, up to {high:g}"
            if self.above_minimum
            else f" from {low:g} to {high:g}"
        )


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list | tuple) and all(type(item) is kind for item in value)


def _everywhere(name: str) -> dict[DialectName, tuple[str, ...]]:
    return dict.fromkeys(DIALECTS, (name,))


def _same(
    name: str, kind: Kind, low: float | None = None, high: float | None = None, **more: Any
) -> Parameter:
    """A parameter that has one name on every path."""
    return Parameter(name, kind, low, high, names=_everywhere(name), **more)


_TABLE: Final = (
    _same("temperature", "number", 0, 2),
    _same("top_p", "number", 0, 1, above_minimum=True),
    _same("top_k", "integer", -1),
    _same("min_p", "number", 0, 1),
    _same("typical_p", "number", 0, 1, above_minimum=True),
    _same("presence_penalty", "number", -2, 2),
    _same("frequency_penalty", "number", -2, 2),
    _same("repetition_penalty", "number", 0, above_minimum=True),
    _same("length_penalty", "number"),
    _same("logit_bias", "object"),
    _same("allowed_token_ids", "integers"),
    _same("bad_words", "strings"),
    Parameter(
        "max_tokens",
        "integer",
        1,
        shapes=False,
        names={
            "chat": ("max_completion_tokens", "max_tokens"),
            "responses": ("max_output_tokens",),
            "messages": ("max_tokens",),
            "completions": ("max_tokens",),
        },
        shadows=("n_predict", "max_new_tokens"),
    ),
    _same("min_tokens", "integer", 0, shapes=False),
    Parameter(
        "stop",
        "strings",
        shapes=False,
        names={
            "chat": ("stop",),
            "responses": ("stop",),
            "messages": ("stop_sequences",),
            "completions": ("stop",),
        },
    ),
    _same("stop_token_ids", "integers", shapes=False),
    _same("include_stop_str_in_output", "boolean", shapes=False),
    _same("ignore_eos", "boolean", shapes=False),
    _same("skip_special_tokens", "boolean", shapes=False),
    _same("spaces_between_special_tokens", "boolean", shapes=False),
    _same("seed", "integer", shapes=False),
    Parameter("n", "integer", 1, shapes=False, names={"chat": ("n",), "completions": ("n",)}),
    Parameter(
        "best_of",
        "integer",
        1,
        shapes=False,
        names={"chat": ("best_of",), "completions": ("best_of",)},
    ),
    # llama.cpp's own
    _same("repeat_penalty", "number", 0),
    _same("repeat_last_n", "integer", -1),
    _same("dynatemp_range", "number", 0),
    _same("dynatemp_exponent", "number", 0),
    _same("top_n_sigma", "number"),
    _same("xtc_probability", "number", 0, 1),
    _same("xtc_threshold", "number", 0, 1),
    _same("dry_multiplier", "number", 0),
    _same("dry_base", "number"),
    _same("dry_allowed_length", "integer", 0),
    _same("dry_penalty_last_n", "integer", -1),
    _same("mirostat", "integer", 0, 2),
    _same("mirostat_tau", "number", 0),
    _same("mirostat_eta", "number", 0),
)

PARAMETERS: Final[Mapping[str, Parameter]] = {parameter.name: parameter for parameter in _TABLE}
"""Every known parameter by its name in reports; `docs/sampling.md` lists the same."""


def _by_spelling() -> dict[str, Parameter]:
    spellings: dict[str, Parameter] = {}
    for parameter in _TABLE:
        for dialect in DIALECTS:
            for name in parameter.names_on(dialect):
                spellings[name] = parameter
        spellings[parameter.name] = parameter
    return spellings


SPELLINGS: Final[Mapping[str, Parameter]] = _by_spelling()
"""Every name that is known on any path."""


def unknown_parameter(name: str) -> Parameter:
    """A parameter that the table lacks, sent as it is on every path."""
    return _same(name, "any", shapes=False)


def nearest(name: str) -> str | None:
    """The known name that looks most like `name`, null where none does."""
    near = difflib.get_close_matches(name.lower(), SPELLINGS, n=1)
    return near[0] if near else None


def sampling_of(dialect: DialectName, body: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling parameters in a request's body, under the names in which they stand there."""
    names = _KNOWN[dialect]
    return {name: value for name, value in body.items() if name in names}


def by_parameter(dialect: DialectName, sampling: Mapping[str, Any]) -> dict[str, Any]:
    """`sampling` under the names of reports; a null or a name that the table lacks is left out."""
    found: dict[str, Any] = {}
    for name, value in sampling.items():
        parameter = _KNOWN[dialect].get(name)
        if parameter is not None and value is not None:
            found.setdefault(parameter.name, value)
    return found


_KNOWN: Final[Mapping[DialectName, Mapping[str, Parameter]]] = {
    dialect: {name: parameter for parameter in _TABLE for name in parameter.names_on(dialect)}
    for dialect in DIALECTS
}
