"""Kernels that do not compute what plain torch computes are found before they serve."""

import pytest

from common.domain import Quantization
from tests.support.tiny_models import make_tiny_model
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.kernels import reference
from worker.kernels.library import KernelsMissing, instruction_sets
from worker.kernels.structs import KvFormat
from worker.model.errors import ModelRefused
from worker.model.lean.self_check import check_kernels
from worker.model.lean.spec import NotLean
from worker.model.load import load_model
from worker.model.runner import TorchRunner

try:
    ISAS = instruction_sets()
except KernelsMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("how", sorted(set(Quantization) - {Quantization.NONE}))
@pytest.mark.parametrize("kv", list(KvFormat))
def test_sound_kernels_pass(isa, how, kv):
    """Every instruction set of this processor, in every format."""
    check_kernels(isa, how, kv)


@pytest.mark.parametrize("kernel", ["norm", "rope", "attention"])
def test_another_result_refuses_the_kernels(monkeypatch, kernel):
    """A kernel that leaves out its part is seen in the logits."""
    monkeypatch.setattr(reference, kernel, lambda x, *_: x)
    with pytest.raises(NotLean, match=r"differ from plain torch by \d+%"):
        check_kernels(ISAS[0], Quantization.INT8, KvFormat.BFLOAT16)


def test_the_generic_runner_serves_instead(monkeypatch, tmp_path):
    """With kernels that fail, auto falls back and says why; who asks for the lean decoder is refused."""
    monkeypatch.setattr(reference, "rope", lambda x, *_: x)
    folder = make_tiny_model("llama", tmp_path / "llama")
    settings = ModelSettings(model=str(folder), quantization=Quantization.INT8, kv_blocks=64)
    said = []
    assert isinstance(load_model(settings, said.append).runner, TorchRunner)
    assert sum("differ from plain torch" in line for line in said) == 1
    lean = ModelSettings(model=str(folder), runner=RunnerKind.LEAN, kv_blocks=64)
    with pytest.raises(ModelRefused, match="differ from plain torch"):
        load_model(lean, said.append)
