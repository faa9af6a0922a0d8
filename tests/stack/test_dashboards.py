"""The dashboards: generated, well-formed, and only about data that the stack has."""

import json
import re
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.files import boards, files

REPOSITORY = Path(__file__).resolve().parents[2]
PROVISIONING = REPOSITORY / "collector_config" / "grafana" / "provisioning"
BOARDS = boards()


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for part in value.values() for text in _texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in _texts(part)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_the_committed_files_are_what_the_code_generates(path: Path) -> None:
    """Each JSON file and the page that explains them are up to date."""
    assert path.read_text() == files()[path], "run: python -m dashboards"


@pytest.mark.stack
def test_the_published_schema_takes_every_field(schema_checker: Path, tmp_path: Path) -> None:
    """Grafana's published schema, read strictly, finds no unknown, missing or mistyped field; a wrong one it does find."""
    paths = [path for path in files() if path.suffix == ".json"]
    assert len(paths) == len(BOARDS)
    checked = subprocess.run([schema_checker, *paths], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    wrong = json.loads(paths[0].read_text())
    wrong["panels"][0]["options"]["colorMood"] = "none"
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    checked = subprocess.run(
        [schema_checker, tmp_path / "wrong.json"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 1
    assert "colorMood" in checked.stdout


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_each_panel_says_what_it_shows(board: dict[str, Any]) -> None:
    """Every panel has a title of its own, a description that asks or states, a unit and an id; none overlap."""
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        assert "?" in panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
    for one, other in combinations(panels, 2):
        a, b = one["gridPos"], other["gridPos"]
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (one["title"], other["title"])
        assert a["x"] + a["w"] <= 24


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_each_data_source_is_provisioned(board: dict[str, Any]) -> None:
    """Every panel, query and variable names a data source that the provisioning files define, by uid and type."""
    provisioned = {
        (source["uid"], source["type"])
        for source in yaml.safe_load((PROVISIONING / "datasources" / "stack.yaml").read_text())[
            "datasources"
        ]
    }
    named = [panel["datasource"] for panel in board["panels"]]
    named += [t["datasource"] for p in board["panels"] for t in p["targets"] if "datasource" in t]
    named += [v["datasource"] for v in board["templating"]["list"] if "datasource" in v]
    assert {(source["uid"], source["type"]) for source in named} <= provisioned


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_each_variable_and_link_leads_somewhere(board: dict[str, Any]) -> None:
    """Used variables are defined, defined ones used, and links between dashboards name real ones and their variables."""
    variables = {variable["name"] for variable in board["templating"]["list"]}
    texts = _texts(board["panels"])
    used = {name for text in texts for name in re.findall(r"\$\{?([a-z_]+)\b", text)}
    built_in = {name for name in used if name.startswith("__")}
    assert used - built_in <= variables
    assert variables - used <= {"jaeger"}
    by_uid = {other["uid"]: other for other in BOARDS.values()}
    for text in texts:
        if text.startswith("/d/"):
            target = by_uid[text.removeprefix("/d/").split("?")[0]]
            names = {variable["name"] for variable in target["templating"]["list"]}
            assert set(re.findall(r"var-(\w+)=", text)) <= names


def test_uids_are_unique_and_exemplars_lead_to_the_jaeger_source() -> None:
    """Dashboards have distinct uids; Prometheus links its exemplars' trace ids to the provisioned Jaeger."""
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)
    sources = yaml.safe_load((PROVISIONING / "datasources" / "stack.yaml").read_text())
    by_uid = {source["uid"]: source for source in sources["datasources"]}
    internal, browser = by_uid["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert internal == {"name": "trace_id", "datasourceUid": "jaeger"}
    assert browser["url"].endswith("/trace/$${__value.raw}")
