"""A real Prometheus (Debian's) that scrapes a stack each second, with our rules made impatient."""

import contextlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.support.polling import eventually
from tests.support.processes import ServiceProcess
from tests.support.stack import Stack

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/rules.yml"
FIRED: set[str] = set()
"""Every alert that a test has waited for and seen."""


def alert_rules() -> list[dict[str, Any]]:
    """The rules as they are delivered."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return group["rules"]


def impatient_rules(thresholds: Mapping[str, str]) -> str:
    """The same without `for`, and with short windows of rates; `thresholds` replaces the last number of an alert."""
    rules = alert_rules()
    for rule in rules:
        rule["for"] = "0s"
        rule["expr"] = re.sub(r"(rate\([^\[]*)\[\dm\]", r"\1[20s]", rule["expr"])
        if rule["alert"] in thresholds:
            rule["expr"] = re.sub(r"[\d.]+\s*$", thresholds[rule["alert"]], rule["expr"])
    return yaml.safe_dump({"groups": [{"name": "headrace", "interval": "1s", "rules": rules}]})


@dataclass
class Prometheus:
    """One that runs."""

    address: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """An instant query's result."""
        return self._get("query", query=expression)["result"]

    def firing(self) -> set[str]:
        """Names of the alerts that fire now."""
        alerts = self._get("alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    def wait_for(self, *alerts: str, within_s: float) -> None:
        """Return once each of these has fired."""
        missing = set(alerts)

        def all_seen() -> bool:
            missing.difference_update(self.firing())
            return not missing

        try:
            eventually(all_seen, within_s=within_s, every_s=0.5)
        except AssertionError as error:
            error.add_note(f"never fired: {sorted(missing)}; firing: {sorted(self.firing())}")
            raise
        FIRED.update(alerts)

    def is_ready(self) -> bool:
        """Whether it answers queries; it listens earlier."""
        try:
            with urlopen(f"http://{self.address}/-/ready", timeout=60):
                return True
        except HTTPError:
            return False

    def healthy_targets(self) -> int:
        """Targets whose last scrape worked."""
        return sum(one["health"] == "up" for one in self._get("targets")["activeTargets"])

    def _get(self, what: str, **arguments: str) -> Any:
        url = f"http://{self.address}/api/v1/{what}?{urlencode(arguments)}"
        with urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]


@contextlib.contextmanager
def running_prometheus(
    stack: Stack, *, thresholds: Mapping[str, str] | None = None
) -> Iterator[Prometheus]:
    """Scrapes every process of `stack`, whose metrics ports stay as they are."""
    targets = {
        "headrace-gateway": stack.gateways,
        "headrace-scheduler": stack.schedulers,
        "headrace-worker": stack.workers,
    }
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [{"targets": [metrics_address(p) for p in processes]}],
            }
            for job, processes in targets.items()
        ],
    }
    with tempfile.TemporaryDirectory(prefix="headrace-prometheus-") as name:
        folder = Path(name)
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        (folder / "rules.yml").write_text(impatient_rules(thresholds or {}))
        log = folder / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    "--web.listen-address=127.0.0.1:0",
                ],
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        try:
            yield _wait_until_ready(log, process, sum(map(len, targets.values())))
        finally:
            process.terminate()
            process.wait(60)


def _wait_until_ready(log: Path, process: subprocess.Popen[bytes], targets: int) -> Prometheus:
    def address() -> str:
        assert process.poll() is None, log.read_text()
        found = re.search(r"Listening on.*?address=(\S+)", log.read_text())
        return found[1] if found else ""

    prometheus = Prometheus(eventually(address, within_s=120))
    eventually(prometheus.is_ready, within_s=120)
    eventually(lambda: prometheus.healthy_targets() == targets, within_s=120, every_s=0.2)
    return prometheus


def metrics_address(process: ServiceProcess) -> str:
    return process.endpoints["metrics"].removeprefix("http://").removesuffix("/metrics")
