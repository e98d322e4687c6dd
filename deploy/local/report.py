"""What the launcher tells: all endpoints, as a ready file for programs and as lines for people."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy.local.child import Child


def endpoints_report(children: Sequence[Child]) -> dict[str, object]:
    """Every endpoint and process id by child, and those most asked for at the top."""
    by_name = {child.spec.name: dict(child.endpoints) for child in children}
    gateway = by_name["gateway"]
    asked_for: dict[str, str] = {
        kind: gateway[kind] for kind in ("grpc", "http") if kind in gateway
    }
    return {
        "service": "headrace-local",
        "pid": os.getpid(),
        "endpoints": asked_for | {"redis": by_name["redis"]["redis"]},
        "workers": [name for name in by_name if name.startswith("worker-")],
        "children": {
            child.spec.name: {
                "pid": child.pid,
                "log": str(child.log_path),
                "endpoints": by_name[child.spec.name],
            }
            for child in children
        },
    }


def write_ready_file(path: Path, report: dict[str, object]) -> None:
    """All or nothing: a reader that sees the file sees all of it."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(json.dumps(report, indent=2) + "\n")
    draft.replace(path)


def endpoint_lines(children: Sequence[Child]) -> Iterator[str]:
    """One line per endpoint."""
    for child in children:
        for kind, address in child.endpoints.items():
            yield f"{child.spec.name:<10} {kind:<8} {address}"
