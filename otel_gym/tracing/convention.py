"""What a table of semantic conventions is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Type: TypeAlias = Literal["string", "int", "double", "boolean", "string[]", "any"]
Level: TypeAlias = Literal["required", "conditional", "recommended", "opt-in"]
SpanType: TypeAlias = Literal["inference", "invoke_agent"]

BOTH: Final[frozenset[SpanType]] = frozenset({"inference", "invoke_agent"})
INFERENCE: Final[frozenset[SpanType]] = frozenset({"inference"})
AGENT: Final[frozenset[SpanType]] = frozenset({"invoke_agent"})


@dataclass(frozen=True, slots=True)
class Attribute:
    """What a convention says of one attribute."""

    type: Type
    level: Level
    meaning: str
    spans: frozenset[SpanType] = INFERENCE
    """Span types that may carry it."""
    enum: tuple[str, ...] = ()
    """Well-known values; another value is allowed where `open_enum`."""
    open_enum: bool = True


@dataclass(frozen=True, slots=True)
class Instrument:
    """What a convention says of one metric."""

    kind: Literal["histogram", "counter"]
    unit: str
    meaning: str
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Convention:
    """One version of a convention."""

    name: str
    schema_url: str
    attributes: Mapping[str, Attribute]
    renames: Mapping[str, str] = field(default_factory=dict)
    """Canonical name -> the name in this version; a canonical name that is neither here nor in `attributes` is unknown to it."""
    deprecated: Mapping[str, str] = field(default_factory=dict)
    """Names that this version forbids -> what replaced them."""
    metrics: Mapping[str, Instrument] = field(default_factory=dict)
    """Metric name -> its instrument."""
    doubles: frozenset[str] = frozenset()
    """Canonical integer attributes that this version types as double."""
