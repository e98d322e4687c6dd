"""A dashboard as Grafana wants it, from what is worth saying about its panels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
MODEL = 'model_name=~"$model"'
"""Selects the chosen models."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph: legend → expression; ``help`` says what to look for."""

    title: str
    help: str
    queries: Mapping[str, str]
    unit: str = "short"


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard, whose file is named after ``name``."""

    name: str
    title: str
    panels: Sequence[Panel]


def quantiles(metric: str, *shares: float, by: str = "", select: str = MODEL) -> dict[str, str]:
    """Quantiles of a histogram, by labels beside ``le``."""
    group = f"le, {by}" if by else "le"
    legend = "".join(f" {{{{{label}}}}}" for label in by.split(", ") if label)
    return {
        f"p{share * 100:g}{legend}": (
            f"histogram_quantile({share}, sum by ({group})"
            f" (rate({metric}_bucket{{{select}}}[$__rate_interval])))"
        )
        for share in shares
    }


def rate(metric: str, by: str = "", select: str = MODEL) -> str:
    """A counter's rate; 0 while nothing was counted, so that a quiet panel is not an empty one."""
    braces = f"{{{select}}}" if select else ""
    if not by:
        return f"sum(rate({metric}{braces}[$__rate_interval])) or vector(0)"
    return f"sum by ({by}) (rate({metric}{braces}[$__rate_interval])) or vector(0)"


def board_json(board: Board) -> dict[str, Any]:
    """The dashboard's JSON model."""
    return {
        "uid": f"headrace-{board.name}",
        "title": board.title,
        "tags": ["headrace"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "editable": True,
        "graphTooltip": 1,
        "templating": {"list": [_datasource(), _models()]},
        "links": [{"type": "dashboards", "tags": ["headrace"], "title": "Headrace"}],
        "panels": [_panel(place, panel) for place, panel in enumerate(board.panels)],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}


def _models() -> dict[str, Any]:
    return {
        "name": "model",
        "type": "query",
        "datasource": _SOURCE,
        "query": "label_values(headrace_num_requests_waiting, model_name)",
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(place: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(place, _COLUMNS)
    return {
        "id": place + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": column * _WIDTH, "y": row * _HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 8}},
            "overrides": [],
        },
        "options": {"tooltip": {"mode": "multi"}, "legend": {"displayMode": "list"}},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": expr,
                "legendFormat": legend,
            }
            for number, (legend, expr) in enumerate(panel.queries.items())
        ],
    }
