"""The distribution's metadata and its generated code agree."""

import re
import tomllib
from pathlib import Path

PROTOS = Path(__file__).parents[3] / "protos"


def _bound(name: str) -> tuple[int, ...]:
    project = tomllib.loads((PROTOS / "pyproject.toml").read_text())["project"]
    [found] = [item for item in project["dependencies"] if item.startswith(f"{name}>=")]
    return tuple(int(part) for part in found.split(">=")[1].split("."))


def test_the_lower_bounds_load_the_generated_code() -> None:
    """Generated code refuses older runtimes, so the bounds must not promise them."""
    stubs = PROTOS / "python/headrace/v1"
    messages = (stubs / "generation_pb2.py").read_text()
    calls = (stubs / "inference_service_pb2_grpc.py").read_text()
    made_for = re.search(r"# Protobuf Python Version: ([\d.]+)", messages)
    needs_grpc = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", calls)
    assert made_for is not None
    assert needs_grpc is not None
    assert _bound("protobuf") == tuple(map(int, made_for[1].split(".")))
    assert _bound("grpcio") == tuple(map(int, needs_grpc[1].split(".")))


def test_the_lock_file_names_no_registry() -> None:
    """Where packages come from is the matter of the machine that installs them."""
    lock = (PROTOS / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert "://" not in lock
