"""The files that the dashboards become: one JSON each, and the page in `docs/`."""

import json
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import capture_health, one_rollout, rollouts

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "dashboards.md"
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
        for number, panel in enumerate(board["panels"], 1):
            panel["id"] = number
        made[name] = board
    return made


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
