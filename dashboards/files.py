"""The files that the dashboards become: one JSON each, and the page in `docs/`."""

import json
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import capture_health, one_rollout, rollouts

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "dashboards.md"
SCHEMA_VERSION = 41
STAT_OPTIONS = {
    "wideLayout": True,
    "showPercentChange": False,
    "percentChangeColorMode": "standard",
}
HEATMAP_TOOLTIP = {"mode": "single", "yHistogram": False, "showColorScale": True}
INTRODUCTION = """\
# Dashboards

Grafana of the [tracing stack](stack.md) shows these at <http://localhost:3000>, in the folder *otel-gym*. They are
written in Python (`dashboards/`); `python -m dashboards` writes their JSON and this page. Each panel answers one
question.

Figures of calls come from the spans, as the Collector counts them; tokens and the time to the first chunk come from
otel-gym's own meters. Both count each call once, when it ends; a backfill (`otel-gym export`) through the Collector's
backfill port counts nothing. In the heat maps a dot is one call: a click on it opens its trace.
"""


def boards() -> dict[str, dict[str, Any]]:
    """Each dashboard's JSON by its file name."""
    made = {}
    for name, module in (
        ("rollouts", rollouts),
        ("one_rollout", one_rollout),
        ("capture_health", capture_health),
    ):
        board = json.loads(json.dumps(module.dashboard().build(), cls=JSONEncoder))
        made[name] = _in_the_current_schema(board)
    return made


def _in_the_current_schema(board: dict[str, Any]) -> dict[str, Any]:
    """What releases of the SDK for older Grafana leave out or still write; a panel's id is its place."""
    board["schemaVersion"] = SCHEMA_VERSION
    board.pop("style", None)
    for variable in board["templating"]["list"]:
        variable.pop("id", None)
    for number, panel in enumerate(board["panels"], 1):
        panel["id"] = number
        if panel["type"] == "stat":
            panel["options"] = {**STAT_OPTIONS, **panel["options"]}
        if panel["type"] == "heatmap":
            panel["options"]["tooltip"] = HEATMAP_TOOLTIP
    return board


def files() -> dict[Path, str]:
    """The content of every generated file by its path."""
    made = boards()
    texts = {
        REPOSITORY / "dashboards" / "json" / f"{name}.json": json.dumps(
            board, indent=1, sort_keys=True, ensure_ascii=False
        )
        + "\n"
        for name, board in made.items()
    }
    texts[PAGE] = _page(made)
    return texts


def _page(made: dict[str, dict[str, Any]]) -> str:
    parts = [INTRODUCTION]
    for board in made.values():
        parts.append(
            f"\n## {board['title']}\n\n{board['description']}\n\n| panel | question |\n|---|---|\n"
        )
        parts += [f"| {panel['title']} | {panel['description']} |\n" for panel in board["panels"]]
    return "".join(parts)
