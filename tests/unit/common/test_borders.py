"""Rules of the house that import-linter cannot say: where protobuf is known, what policy may use, who reads the environment."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_WIRE = ("headrace.v1", "headrace.internal", "google")
# The rooms in which messages of clients, workers and Redis are read and written.
_BORDERS = {
    "common": ("wire/",),
    "scheduler": ("serve.py", "worker_registry/"),
    "worker": ("session/",),
}
# The gateway is a border itself; what decides and what relays is not.
_INSIDE_THE_GATEWAY = ("validation/", "relay/", "policy.py", "admit.py", "quotas.py", "keyed.py")
# Clocks, chance and the outer world: what policy needs of them is passed in.
_IMPURE = {"datetime", "os", "pathlib", "random", "secrets", "socket", "threading", "time"}
# `RequestId.new` is where ids begin.
_BEGINNINGS = {"common/domain.py": {"secrets", "time"}}


def modules(package: str) -> Iterator[tuple[str, ast.Module]]:
    """Each module's path within its package, parsed."""
    folder = _ROOT / package
    for path in sorted(folder.rglob("*.py")):
        yield path.relative_to(folder).as_posix(), ast.parse(path.read_text())


def imported(tree: ast.Module) -> Iterator[str]:
    """Names of all modules that it imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def knows_wire(tree: ast.Module) -> bool:
    return any(name.startswith(_WIRE) for name in imported(tree))


def policy_modules() -> Iterator[tuple[str, ast.Module]]:
    """What the contract of that name in pyproject.toml lists."""
    contracts = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    (policy,) = [one for one in contracts if one["name"].startswith("Policy is pure")]
    for name in policy["source_modules"]:
        place = _ROOT / name.replace(".", "/")
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]:
            yield path.relative_to(_ROOT).as_posix(), ast.parse(path.read_text())


def reads_environment(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"}
        for node in ast.walk(tree)
    )


@pytest.mark.parametrize("package", _BORDERS)
def test_protobuf_is_known_at_the_borders_alone(package):
    """Everything behind them speaks of plain values."""
    found = [path for path, tree in modules(package) if knows_wire(tree)]
    assert found, "the rule is about something"
    assert [path for path in found if not path.startswith(_BORDERS[package])] == []


def test_what_decides_and_relays_in_the_gateway_knows_no_protobuf():
    """Validation, admission, idempotency, quotas and the relay are the same for gRPC and HTTP."""
    inside = [
        (path, tree) for path, tree in modules("gateway") if path.startswith(_INSIDE_THE_GATEWAY)
    ]
    assert inside, "the rule is about something"
    assert [path for path, tree in inside if knows_wire(tree)] == []


def test_policy_uses_the_standard_library_alone_and_no_clock():
    """The same state and the same time give the same decision: nothing else reaches it."""
    ours = {"common", "gateway", "scheduler", "worker"}
    found = [
        (path, name)
        for path, tree in policy_modules()
        for name in (whole.partition(".")[0] for whole in imported(tree))
        if name in _IMPURE - _BEGINNINGS.get(path, set())
        or name not in sys.stdlib_module_names | ours
    ]
    assert found == []


@pytest.mark.parametrize("package", ["common", "gateway", "scheduler", "worker"])
def test_only_main_reads_the_environment(package):
    """Settings are read once, where a process begins."""
    found = [path for path, tree in modules(package) if reads_environment(tree)]
    assert [path for path in found if not path.endswith("__main__.py")] == []
