"""docs/operations.md is complete: each setting, each alert's runbook, each command that it names."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from deploy.local.settings import LocalSettings
from gateway.settings import GatewaySettings
from scheduler.settings import SchedulerSettings
from tests.support.redis_user import documented_user
from worker.settings import WorkerSettings

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs/operations.md").read_text()


@pytest.mark.parametrize(
    "settings", [GatewaySettings, SchedulerSettings, WorkerSettings, LocalSettings]
)
def test_each_setting_is_named(settings: type):
    """By its flag, in code style, wherever the guide treats it."""
    code = " ".join(re.findall(r"```.*?```|`[^`\n]+`", GUIDE, flags=re.DOTALL))
    named = set(re.findall(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*", code))
    names = {field.name.replace("_", "-") for field in fields(settings)}
    assert not names - named, sorted(names - named)


def test_each_alert_has_its_runbook():
    """Under its own name, where the rule's annotation points."""
    (group,) = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())["groups"]
    headings = {line.lstrip("# ").lower() for line in GUIDE.splitlines() if line.startswith("#")}
    for rule in group["rules"]:
        file, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert (file, anchor) == ("docs/operations.md", rule["alert"].lower())
        assert anchor in headings


def test_the_user_of_redis_may_run_every_script():
    """What a script calls is granted by name: a command that comes in later is not forgotten."""
    granted = set(re.findall(r"\+([a-z|]+)", documented_user("secret")))
    scripts = list((ROOT / "common/streams/scripts").glob("*.lua"))
    called = {
        command.lower()
        for script in scripts
        for command in re.findall(r"\bp?call\(\s*'([A-Z]+)'", script.read_text())
    }
    assert len(called) > 20
    assert called <= granted, sorted(called - granted)
