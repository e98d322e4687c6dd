"""Dashboards and alerts as files: current, about metrics that exist, and each alert with a runbook that exists."""

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from common.instruments import Gauge
from common.metrics import Metrics
from common.tallies import Spread
from deploy.grafana.__main__ import FOLDER, text_of
from deploy.grafana.boards import BOARDS

ROOT = Path(__file__).parents[3]


def test_dashboards_are_written_from_their_description():
    """`python -m deploy.grafana` was run after the last change, and nothing else lies there."""
    assert {file.stem for file in FOLDER.iterdir()} == {board.name for board in BOARDS}
    for board in BOARDS:
        assert (FOLDER / f"{board.name}.json").read_text() == text_of(board), board.name


@pytest.fixture(scope="module")
def known_names() -> set[str]:
    """Everything that some service can show, by the names of a scrape."""
    metrics = Metrics()
    for instrument in [*vars(metrics).values(), *vars(metrics.speculation).values()]:
        if isinstance(instrument, Gauge):
            instrument.watch(lambda: [(1, {})])
        elif hasattr(instrument, "add"):
            instrument.add(1, {})
        elif isinstance(instrument, Spread) or hasattr(instrument, "record"):
            instrument.record(1, {})
    names = set()
    for family in text_string_to_metric_families(metrics.scrape()[0].decode()):
        names |= {sample.name for sample in family.samples}
        if family.type == "histogram":  # spoken of as one
            names.add(family.name)
    metrics.shutdown(1)
    return names


@pytest.mark.parametrize(
    "path",
    [
        "deploy/prometheus/rules.yml",
        "deploy/helm/headrace/templates/worker.yaml",
        "docs/operations.md",
    ]
    + [f"deploy/grafana/dashboards/{board.name}.json" for board in BOARDS],
)
def test_what_is_looked_at_exists(known_names: set[str], path: str):
    """No panel, rule, scaler or sentence names a metric that nothing shows: `or vector(0)` would hide that from Prometheus."""
    pattern = r"\b(?:headrace|process|rpc_server|gen_ai_server)_[a-z_]*[a-z]\b"
    found = set(re.findall(pattern, (ROOT / path).read_text()))
    assert found
    assert not found - known_names, sorted(found - known_names)


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
