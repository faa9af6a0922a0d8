"""The tables of `docs/attributes.md` and `docs/metrics.md`, made from the code: `python -m tests.docs.tracing_tables` writes them anew."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from otel_gym.counters import COUNTERS
from otel_gym.tracing.convention import Attribute, Instrument
from otel_gym.tracing.metrics import GAUGES, HISTOGRAMS
from otel_gym.tracing.providers import DIALECTS, HOSTS, PORTS, SERVERS
from otel_gym.tracing.semconv import CONVENTIONS
from otel_gym.tracing.semconv_genai import GENAI_0_1, GENAI_1_41
from otel_gym.tracing.semconv_openinference import OPENINFERENCE
from otel_gym.tracing.semconv_own import COMMON, OWN, TEMPLATES

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join([_row(*head), _row(*("---" for _ in head)), *(_row(*row) for row in rows)])


def _attributes(table: Mapping[str, Attribute], suffix: str = "") -> str:
    return _table(
        ("attribute", "type", "level", "on", "meaning"),
        (
            (
                f"`{name}{suffix}`",
                each.type,
                each.level,
                "call, rollout"
                if len(each.spans) == 2
                else "call"
                if "inference" in each.spans
                else "rollout",
                each.meaning,
            )
            for name, each in table.items()
        ),
    )


def _metrics(table: Mapping[str, Instrument]) -> str:
    return _table(
        ("metric", "kind", "unit", "meaning"),
        ((f"`{name}`", each.kind, each.unit, each.meaning) for name, each in table.items()),
    )


def tables() -> dict[str, dict[str, str]]:
    """Page -> mark -> what stands between its marks."""
    names = sorted(
        {name for table in (GENAI_1_41, OPENINFERENCE) for name in table.renames}
        | set(GENAI_0_1.attributes)
    )
    return {
        "attributes.md": {
            "genai": _attributes(GENAI_0_1.attributes),
            "common": _attributes(COMMON),
            "own": _attributes(OWN),
            "templates": _attributes(TEMPLATES, "<key>"),
            "openinference": _attributes(OPENINFERENCE.attributes),
            "versions": _table(
                ("`genai-0.1`", "`genai-1.41`", "`openinference`"),
                (
                    (
                        f"`{name}`",
                        _under("genai-1.41", name),
                        _under("openinference", name),
                    )
                    for name in names
                    if _under("genai-1.41", name) != f"`{name}`"
                    or _under("openinference", name) != "-"
                ),
            ),
            "providers": _table(
                ("where", "what", "provider"),
                [
                    *(("host ends with", f"`{ending}`", f"`{name}`") for ending, name in HOSTS),
                    *(("port", f"`{port}`", f"`{name}`") for port, name in PORTS.items()),
                    *(
                        ("model server's name holds", f"`{part}`", f"`{name}`")
                        for part, name in SERVERS
                    ),
                    *(
                        ("dialect", f"`{dialect}`", f"`{name}`")
                        for dialect, name in DIALECTS.items()
                    ),
                ],
            ),
        },
        "metrics.md": {
            "genai-0.1": _metrics(CONVENTIONS["genai-0.1"].metrics),
            "genai-1.41": _metrics(CONVENTIONS["genai-1.41"].metrics),
            "gauges": _table(
                ("metric", "unit", "meaning"),
                ((f"`{name}`", unit, text) for name, (unit, text) in GAUGES.items()),
            ),
            "histograms": _table(
                ("metric", "unit", "meaning"),
                ((f"`{name}`", unit, text) for name, (unit, text, _) in HISTOGRAMS.items()),
            ),
            "counters": _table(
                ("metric", "meaning"),
                ((f"`otel_gym.{name}`", text) for name, text in COUNTERS.items()),
            ),
        },
    }


def filled(page: str) -> str:
    """The page with its tables made anew."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for mark, table in tables()[page].items():
        pattern = re.compile(rf"(<!-- {re.escape(mark)} -->\n).*?(<!-- end -->)", re.DOTALL)
        assert len(pattern.findall(text)) == 1, f"{page}: mark {mark}"
        text = pattern.sub(lambda found, table=table: found[1] + table + "\n" + found[2], text)  # type: ignore[misc]
    return text


def _under(version: str, canonical: str) -> str:
    table = CONVENTIONS[version]
    name = table.renames.get(canonical, canonical if canonical in table.attributes else None)
    return f"`{name}`" if name is not None else "-"


if __name__ == "__main__":
    for name in tables():
        (DOCS / name).write_text(filled(name), encoding="utf-8")
