"""A real Prometheus scrapes the running system: every expression of every panel, rule and scaler finds data there."""

import asyncio
import json
import math
import re
import subprocess

import pytest

from deploy.grafana.boards import BOARDS
from headrace.client import AsyncClient
from tests.support.chart import EVERYTHING, manifests
from tests.support.outcomes import collect
from tests.support.prometheus import ROOT, RULES, Prometheus, alert_rules, running_prometheus
from tests.support.stack import SIMULATED, running_stack

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

STACK = {
    "worker_flags": [*SIMULATED, "--step-ms", "5", "--max-seqs", "4", "--quality-sample", "1"],
    "gateway_flags": ["--queue-max-requests", "8"],
    "scheduler_flags": ["--metric-tenants", "default"],
}


def test_promtool_accepts_the_rules_and_their_tests():
    """Syntax, and what each rule says of given series."""
    for arguments in (["check", "rules", str(RULES)], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run(
            ["promtool", *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=ROOT / "deploy/prometheus",
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_scrape_configuration(tmp_path):
    """As the compose file mounts it: beside the rules."""
    for source in (ROOT / "deploy/compose/prometheus.yml", RULES):
        (tmp_path / source.name).write_text(source.read_text())
    done = subprocess.run(
        ["promtool", "check", "config", tmp_path / "prometheus.yml"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def panel_expressions() -> list[tuple[str, str]]:
    """Every expression of the delivered dashboards, as Grafana would send it."""
    found = []
    for board in BOARDS:
        file = ROOT / f"deploy/grafana/dashboards/{board.name}.json"
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                expression = target["expr"].replace("$model", ".*")
                expression = expression.replace("$__rate_interval", "30s")
                found.append((f"{board.name}: {panel['title']}", expression))
    return found


def rule_expressions() -> list[tuple[str, str]]:
    """What each rule compares, without the comparison: that has a value also while all is well."""
    return [
        (rule["alert"], re.sub(r"\s[<>=]=?\s*[\d.]+\s*$", "", part))
        for rule in alert_rules()
        for part in re.split(r"\bunless\b", rule["expr"])
    ]


def scaling_expressions() -> list[tuple[str, str]]:
    """What KEDA asks in the chart, for the model that is served here."""
    return [
        (one["metadata"]["name"], trigger["metadata"]["query"].replace('"default"', '"sim"'))
        for one in manifests(EVERYTHING)
        if one["kind"] == "ScaledObject"
        for trigger in one["spec"]["triggers"]
    ]


async def load(client: AsyncClient) -> None:
    """More than fits, so that some of it is refused."""
    outcomes = await asyncio.gather(
        *(
            collect(client, f"number {n}", model="sim", max_tokens=20, ignore_eos=True)
            for n in range(40)
        )
    )
    reasons = {one.error.reason for one in outcomes if one.error is not None}
    assert reasons == {"QUEUE_FULL"}


def without_data(
    prometheus: Prometheus, expressions: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Those that return nothing, or nothing but NaN."""
    missing = []
    for name, expression in expressions:
        values = [float(one["value"][1]) for one in prometheus.query(expression)]
        if not any(not math.isnan(value) for value in values):
            missing.append((name, expression))
    return missing


async def test_every_panel_and_every_rule_finds_data():
    """No panel is empty and no rule or scaler looks at a name that does not exist, in a system under load."""
    with running_stack(**STACK) as stack, running_prometheus(stack) as prometheus:
        expressions = panel_expressions() + rule_expressions() + scaling_expressions()
        assert len(expressions) > 60
        async with AsyncClient(stack.targets) as client:
            missing = expressions
            for _ in range(60):  # rates need two scrapes in which something happened
                await load(client)
                missing = await asyncio.to_thread(without_data, prometheus, missing)
                if not missing:
                    break
        assert not missing, "\n".join(map(": ".join, missing))
