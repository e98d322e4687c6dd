"""The library that is tested is the one that the sources give."""

import importlib.util
from pathlib import Path

import pytest

from worker.kernels.library import KernelsMissing, load

ROOT = Path(__file__).parents[4]


def test_the_library_was_built_from_these_sources():
    """After a change of the kernels they must be built again: make venv."""
    try:
        built_from = load().hk_sources().decode()
    except KernelsMissing as missing:
        pytest.skip(str(missing))
    spec = importlib.util.spec_from_file_location("kernels_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert built_from == module.sources_digest()


def test_nothing_that_is_built_lies_among_the_sources():
    """The library is in the environment, as everything that an installation makes."""
    assert not list((ROOT / "worker").rglob("*.so"))
