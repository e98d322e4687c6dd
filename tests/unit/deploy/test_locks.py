"""The images' lock files: everything that pyproject.toml asks for and nothing else, at the versions that are tested, with digests."""

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[3]
IMAGES = {
    "gateway": "gateway",
    "scheduler": "scheduler",
    "worker-cpu": "worker",
    "worker-cuda": "worker",
}
# CUDA's libraries, which torch brings: they are installed where these tests run only if torch is of that build.
CUDA = re.compile(r"(nvidia-(?!ml-py$)|cuda-|triton$)")
# What an image is: the environment of the markers in requirements.
PLATFORM = {
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "os_name": "posix",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "python_version": "3.11",
    "python_full_version": "3.11.14",
}
OURS = {"headrace-server": "pyproject.toml", "headrace": "protos/pyproject.toml"}
LOCKED = pytest.mark.parametrize("image", IMAGES)


def pins(text: str) -> dict[str, Version]:
    """Package and version of each line that has them."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\]+)", text, re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in found}


def lock_file(image: str) -> str:
    return (ROOT / f"deploy/docker/locks/{image}.txt").read_text()


def requires(name: str, extra: str) -> list[Requirement]:
    """What the package asks for beside itself, or for one of its extras; of ours, as the files say now."""
    if name in OURS:
        project = tomllib.loads((ROOT / OURS[name]).read_text())["project"]
        named = project["optional-dependencies"][extra] if extra else project["dependencies"]
        found = [Requirement(one) for one in named]
    else:
        found = [Requirement(one) for one in distribution(name).requires or ()]
    environment = {**PLATFORM, "extra": extra}
    return [one for one in found if one.marker is None or one.marker.evaluate(environment)]


def needed(extra: str) -> dict[str, list[Requirement]]:
    """Every package that the extra comes to need, by what is installed here, and what is asked of it."""
    found: dict[str, list[Requirement]] = {}
    todo = [Requirement(f"headrace-server[{extra}]"), Requirement("setuptools")]
    seen = set()
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        if not CUDA.match(name):
            found.setdefault(name, []).append(wanted)
        for chosen in {"", *wanted.extras}:
            if (name, chosen) in seen or CUDA.match(name):
                continue
            seen.add((name, chosen))
            todo += requires(name, chosen)
    return {name: asked for name, asked in found.items() if name not in OURS}


@LOCKED
def test_each_package_has_digests(image: str):
    """Nothing but packages at one version each, with the digests of their files; no place to get them from."""
    lines = lock_file(image).replace("\\\n", " ").splitlines()
    form = re.compile(r"[a-z0-9.-]+==\S+(\s+--hash=sha256:[0-9a-f]{64})+")
    assert len(lines) > 20
    assert [line for line in lines if not form.fullmatch(line.strip())] == []


@LOCKED
def test_it_is_what_pyproject_asks_for(image: str):
    """No package too few and none too many, each within every bound: `deploy/lock.sh` was run after the last change."""
    locked = pins(lock_file(image))
    wanted = needed(IMAGES[image])
    assert {name for name in locked if not CUDA.match(name)} == wanted.keys()
    for name, requirements in wanted.items():
        assert all(one.specifier.contains(locked[name], prereleases=True) for one in requirements)


@LOCKED
def test_versions_are_those_that_are_tested(image: str):
    """Those of deploy/constraints.txt, by which the tests' environment is made; torch is the installer's."""
    tested = pins((ROOT / "deploy/constraints.txt").read_text())
    locked = {n: version for n, version in pins(lock_file(image)).items() if not CUDA.match(n)}
    torch = locked.pop("torch", None)
    assert locked.items() <= tested.items()
    if image.startswith("worker"):
        spec = re.search(
            r"TORCH_SPEC:-torch==([\d.]+)\}", (ROOT / "deploy/install.sh").read_text()
        )
        assert spec is not None
        assert torch is not None
        assert torch.public == spec.group(1)
        assert torch.local == ("cpu" if image == "worker-cpu" else None)
        cuda = [name for name in pins(lock_file(image)) if CUDA.match(name)]
        assert bool(cuda) == (image == "worker-cuda")
