"""The pages about the stack name what the files have."""

import re
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "stack.md").read_text()


def test_each_variable_is_explained_and_each_explained_one_exists() -> None:
    """The variables of the compose files, `.env` and the configuration are those of the page's tables."""
    configuration = [*(REPOSITORY / "collector_config").rglob("*.yaml")]
    used = {
        name for path in configuration for name in re.findall(r"\$\{env:(\w+)", path.read_text())
    }
    for name in ("docker-compose.yml", "docker-compose.scale.yml"):
        used |= set(re.findall(r"\$\{([A-Z_]+)", (REPOSITORY / name).read_text()))
    used |= set(re.findall(r"^(\w+)=", (REPOSITORY / ".env").read_text(), re.MULTILINE))
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    explained = {name for row in rows for name in re.findall(r"`([A-Z][A-Z_]+)`", row)}
    assert len(used) > 40
    assert used == explained


def test_each_alert_and_option_is_explained() -> None:
    """Every alert of the rules and every option file has its row."""
    rules = REPOSITORY / "collector_config" / "prometheus" / "rules" / "otel_gym.yml"
    groups = yaml.safe_load(rules.read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    assert set(re.findall(r"^\| `(OtelGym\w+)`", PAGE, re.MULTILINE)) == alerts
    options = {path.name for path in (REPOSITORY / "collector_config" / "options").iterdir()}
    assert set(re.findall(r"^\| `(\w+\.yaml)`", PAGE, re.MULTILINE)) == options


def test_each_file_that_a_page_names_exists() -> None:
    """Files and folders named in the pages about the stack are there."""
    for page in ("stack.md", "sizing.md"):
        text = (REPOSITORY / "docs" / page).read_text()
        for name in re.findall(r"`((?:collector_config/)?[\w/-]+\.ya?ml)`", text):
            if name == "docker-compose.override.yml":
                continue
            places = [REPOSITORY, *(REPOSITORY / "collector_config").rglob("*/")]
            places.append(REPOSITORY / "collector_config")
            assert any((place / name).exists() for place in places), (page, name)
