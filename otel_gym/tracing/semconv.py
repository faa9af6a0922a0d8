"""The semantic conventions as data: one table per version.

`genai-0.1`: https://github.com/open-telemetry/semantic-conventions-genai v0.1.0. `genai-1.41`: the last core release with GenAI definitions, v1.41.1.
`openinference`: https://github.com/Arize-ai/openinference semantic conventions 0.1. Everything the bridge computes has a canonical name, which is its
`genai-0.1` name; a table says under which name (if any) its version knows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from otel_gym.tracing.convention import Attribute, Convention
from otel_gym.tracing.semconv_genai import GENAI_0_1, GENAI_1_41
from otel_gym.tracing.semconv_openinference import OPENINFERENCE
from otel_gym.tracing.semconv_own import COMMON, OWN
from otel_gym.tracing.span_data import AttributeValue

CONVENTIONS: Final[Mapping[str, Convention]] = MappingProxyType(
    {table.name: table for table in (GENAI_0_1, GENAI_1_41, OPENINFERENCE)}
)
"""Every version that `otel_gym.semconv` may name."""

SCOPE_NAME: Final = "otel_gym"


@dataclass(frozen=True, slots=True)
class Naming:
    """How the canonical attributes of a span are named under a choice of versions."""

    versions: tuple[str, ...]
    schema_url: str
    names: Mapping[str, tuple[str, ...]]
    """Canonical name -> all the names to write; absent: as it is."""
    hidden: frozenset[str]
    """Canonical names that none of the versions knows."""
    doubles: frozenset[str]
    openinference: bool

    def apply(self, facts: dict[str, AttributeValue]) -> dict[str, AttributeValue]:
        """`facts` under the names of the chosen versions, in the same order; `facts` itself where no name changes."""
        names = self.names
        if names.keys().isdisjoint(facts):
            return facts
        named: dict[str, AttributeValue] = {}
        for key, value in facts.items():
            also = names.get(key)
            if also is None:
                named[key] = value
            else:
                for name in also:
                    named[name] = value
        return named


@lru_cache(maxsize=16)
def naming(versions: tuple[str, ...]) -> Naming:
    """The naming of `versions`: the first is primary, the rest add the names in which they differ."""
    chosen = [CONVENTIONS[version] for version in versions]
    names: dict[str, tuple[str, ...]] = {}
    for canonical in sorted({key for table in CONVENTIONS.values() for key in _canonical(table)}):
        written: list[str] = []
        for table in chosen:
            name = table.renames.get(canonical)
            if name is None and canonical in table.attributes:
                name = canonical
            if name is not None and name not in written:
                written.append(name)
        if written != [canonical]:
            names[canonical] = tuple(written)
    return Naming(
        versions=versions,
        schema_url=chosen[0].schema_url,
        names=MappingProxyType(names),
        hidden=frozenset(key for key, written in names.items() if not written),
        doubles=chosen[0].doubles,
        openinference="openinference" in versions,
    )


def known_attributes(versions: Iterable[str]) -> dict[str, Attribute]:
    """Every attribute that a span may carry under `versions`; where two type it differently, the first counts."""
    known: dict[str, Attribute] = {}
    for version in versions:
        for name, attribute in CONVENTIONS[version].attributes.items():
            known.setdefault(name, attribute)
    return {**known, **COMMON, **OWN}


def deprecated_names(versions: Iterable[str]) -> dict[str, str]:
    """Names that no chosen version allows -> what replaced them."""
    tables = [CONVENTIONS[version] for version in versions]
    allowed = {name for table in tables for name in table.attributes}
    return {
        old: new for table in tables for old, new in table.deprecated.items() if old not in allowed
    }


def _canonical(table: Convention) -> set[str]:
    """The canonical names that `table` speaks of."""
    if table.name == "openinference":
        return set(table.renames)
    renamed = set(table.renames.values())
    return {name for name in table.attributes if name not in renamed} | set(table.renames)
