"""Dashboards and alerts as files: current, and each alert with a runbook that exists."""

import re
from pathlib import Path

import yaml

from deploy.grafana.__main__ import FOLDER, text_of
from deploy.grafana.boards import BOARDS

ROOT = Path(__file__).parents[3]


def test_dashboards_are_written_from_their_description():
    """`python -m deploy.grafana` was run after the last change, and nothing else lies there."""
    assert {file.stem for file in FOLDER.iterdir()} == {board.name for board in BOARDS}
    for board in BOARDS:
        assert (FOLDER / f"{board.name}.json").read_text() == text_of(board), board.name


def test_each_alert_has_its_runbook():
    """The link of each rule leads to a heading of the operations guide."""
    guide = (ROOT / "docs/operations.md").read_text()
    headings = {title.lower() for title in re.findall(r"^#+ (\w+)$", guide, re.MULTILINE)}
    (group,) = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())["groups"]
    for rule in group["rules"]:
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert page == "docs/operations.md"
        assert anchor == rule["alert"].lower()
        assert anchor in headings, f"no runbook for {rule['alert']}"
