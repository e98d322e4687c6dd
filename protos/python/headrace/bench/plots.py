"""Plots of a run: throughput and latency against load, as a picture or as a page that needs nothing else."""

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.bench.results import HEAD, Results, load_name, row


class PlotsUnavailable(Exception):
    """The library that draws is not installed."""


def check_can_plot() -> None:
    """Fail before a long run rather than behind it.

    Raises:
        PlotsUnavailable: and what to do.
    """
    try:
        import matplotlib  # noqa: F401 - whether it is there
    except ImportError as error:
        raise PlotsUnavailable("plots need matplotlib: pip install 'headrace[bench]'") from error


def write_plot(runs: Sequence[tuple[str, Results]], path: Path) -> None:
    """Draw one or several runs into ``path``; its ending says how."""
    picture = _draw(runs)
    if path.suffix.lower() == ".html":
        path.write_text(_page(runs, picture), encoding="utf-8")
    else:
        path.write_bytes(picture)


_PANELS = (
    ("Tokens each second", [("tokens_per_s", "all")]),
    ("Good answers each second", [("goodput_per_s", "good"), ("requests_per_s", "all")]),
    ("Time to first token, ms", [("first_p50_ms", "p50"), ("first_p99_ms", "p99")]),
    ("Time per output token, ms", [("per_token_p50_ms", "p50"), ("per_token_p99_ms", "p99")]),
)


def _draw(runs: Sequence[tuple[str, Results]]) -> bytes:
    # Not pyplot: it would look for a display.
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(11, 7.5), layout="constrained")
    for axes, (title, lines) in zip(figure.subplots(2, 2).flat, _PANELS, strict=True):
        for name, results in runs:
            loads = [load_name(level) for level in results.levels]
            for field, label in lines:
                values = [getattr(level, field) for level in results.levels]
                axes.plot(loads, values, marker="o", label=f"{name} {label}".strip())
        axes.set_title(title)
        axes.set_xlabel("load")
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()


def _page(runs: Sequence[tuple[str, Results]], picture: bytes) -> str:
    parts = [
        "<!doctype html><meta charset=utf-8><title>headrace bench</title>",
        "<style>body{font:14px sans-serif;margin:2em}td,th{padding:.2em .8em;text-align:right}</style>",
        f'<img alt="throughput and latency" src="data:image/png;base64,{base64.b64encode(picture).decode()}">',
    ]
    for name, results in runs:
        parts.append(f"<h2>{html.escape(name or results.model)}</h2>")
        parts.append(
            f"<p>{html.escape(results.model)}: {html.escape(results.workload)}</p><table>"
        )
        parts.append(_cells("th", HEAD))
        parts += [_cells("td", row(level)) for level in results.levels]
        parts.append("</table>")
    return "\n".join(parts) + "\n"


def _cells(kind: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in cells) + "</tr>"
