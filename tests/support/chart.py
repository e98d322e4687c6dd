"""The Helm chart as a cluster would get it, rendered without a cluster."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from helm_python import Chart

CHART = Path(__file__).parents[2] / "deploy/helm/headrace"
REDIS = {"redis": {"url": "redis://redis:6379/0"}}
EVERYTHING = {
    **REDIS,
    "telemetry": {
        "monitors": True,
        "rules": True,
        "dashboards": True,
        "otlpEndpoint": "collector:4317",
    },
    "encryption": {"enabled": True},
    "gateway": {
        "autoscaling": {"enabled": True},
        "admin": {"allowFrom": [{"podSelector": {"matchLabels": {"app": "operators"}}}]},
        "settings": {"queue-max-requests": "500"},
    },
    "scheduler": {"settings": {"partitions": 2}},
    "models": {
        "image": "models:1",
        "command": ["cp", "--recursive", "/all/.", "."],
        "checksums": "0  default/config.json\n",
    },
    "workers": [
        {
            "name": "default",
            "model": "default",
            "path": "default",
            "drainGraceS": 300,
            "settings": {"quantization": "nf4", "max-seqs": 32},
            "resources": {"limits": {"nvidia.com/gpu": 1}},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "nodeSelector": {"gpu": "yes"},
            "autoscaling": {
                "enabled": True,
                "min": 0,
                "max": 4,
                "waitingPerWorker": 8,
                "cooldownS": 300,
            },
        }
    ],
}
"""Every option of the chart in use."""


@cache
def chart() -> Chart:
    """The chart, loaded once."""
    return Chart.load(CHART)


def manifests(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What would be applied with these values."""
    rendered = chart().render(dict(values), name="hr", namespace="llm")
    return [
        document
        for path, text in rendered.items()
        if not path.endswith(".txt")
        for document in yaml.safe_load_all(text)
        if document
    ]


def pods(values: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and pod template of each workload."""
    for document in manifests(values):
        if document["kind"] in ("Deployment", "Job"):
            yield document["metadata"]["name"], document["spec"]["template"]
