"""The built wheel works with what it declares and nothing else, so certainly without torch or redis."""

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
PROTOS = Path(__file__).parents[3] / "protos"


def _declared(wheel: Distribution) -> dict[str, Distribution]:
    """What the wheel requires, with what that requires; extras aside."""
    found: dict[str, Distribution] = {}
    waiting = [wheel]
    while waiting:
        for requirement in waiting.pop().requires or []:
            name = re.split(r"[^\w.-]", requirement)[0]
            if "extra ==" not in requirement and name not in found:
                found[name] = distribution(name)
                waiting.append(found[name])
    return found


def _link(source: Distribution, site: Path) -> None:
    """Puts an installed distribution into another environment, file by file: some share a package."""
    for file in source.files or []:
        if ".." not in file.parts:
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(Path(str(source.locate_file(file))).resolve())


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """A virtual environment with the wheel and its declared dependencies; made without any network."""
    tree = tmp_path / "protos"
    # Built from a copy, so that no old build folder is used; none is left there.
    skipped = shutil.ignore_patterns("node_modules", "build", "*.egg-info", "__pycache__")
    shutil.copytree(PROTOS, tree, ignore=skipped)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(tree)]
    subprocess.run([*pip, *build], check=True, capture_output=True, timeout=240)
    assert not (tree / "build").exists()
    assert not [*tree.glob("python/*.egg-info")]
    [wheel] = tmp_path.glob("headrace-*.whl")
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv/bin/python"
    install = ["--python", str(python), "install", "--no-index", "--no-deps", str(wheel)]
    subprocess.run([*pip, *install], check=True, capture_output=True, timeout=240)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "venv")}))
    [installed] = site.glob("headrace-*.dist-info")
    for dependency in _declared(Distribution.at(installed)).values():
        _link(dependency, site)
    return tmp_path / "venv/bin"


def test_the_wheel_works_in_a_clean_environment(clean: Path) -> None:
    """Both clients, the internal stubs, the type marker and the command are there; heavy packages are not."""
    program = """
import importlib.util, pathlib
import headrace.client, headrace.internal.v1.worker_service_pb2_grpc, headrace
package = pathlib.Path(headrace.__file__).parent
assert (package / "py.typed").exists() and (package / "v1/generation_pb2.pyi").exists()
heavy = ["torch", "redis", "transformers", "opentelemetry", "numpy"]
assert [name for name in heavy if importlib.util.find_spec(name)] == []
assert headrace.client.TraceContext.for_call(None).trace_id
with headrace.client.Client("127.0.0.1:1") as client:
    try:
        client.models()
    except headrace.client.Unavailable:
        print("works")
"""
    python = [str(clean / "python"), "-I", "-c", program]
    run = subprocess.run(python, capture_output=True, text=True, timeout=240, check=False)
    assert (run.returncode, run.stdout) == (0, "works\n"), run.stderr
    command = [str(clean / "headrace"), "--help"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stderr
    assert "exit codes" in run.stdout
