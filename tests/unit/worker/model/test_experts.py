"""Mixtures of experts: what is quantized of them, what is not, and what is refused."""

import pytest
import torch
import transformers

from common.domain import Quantization
from tests.support.drive_runner import Stream, drive
from tests.support.tiny_models import MIXTURES, make_tiny_model, tiny_config
from worker.engine.model_settings import ModelSettings
from worker.model.errors import ModelRefused
from worker.model.experts import Experts, TiledRouter, replace_experts
from worker.model.int8_linear import Int8Linear
from worker.model.load import load_model
from worker.model.quantize import PlainLayers
from worker.model.tiled_linear import TiledLinear
from worker.quality.measure import weight_bytes
from worker.quantize_command import quantize

pytestmark = pytest.mark.timeout(600)


def load(folder, how: Quantization):
    settings = ModelSettings(model=str(folder), quantization=how, kv_blocks=64, dtype="float32")
    return load_model(settings, lambda _: None)


@pytest.mark.parametrize("family", MIXTURES)
def test_experts_are_quantized_and_routers_are_not(family, tmp_path):
    """int8 leaves about a quarter of the memory, each expert is a layer of its own, and a token's mates change nothing."""
    folder = make_tiny_model(family, tmp_path / family)
    exact, loaded = load(folder, Quantization.NONE), load(folder, Quantization.INT8)
    modules = list(loaded.runner.model.modules())
    mixtures = [module for module in modules if isinstance(module, Experts)]
    assert len(mixtures) == 3
    layers = [layer for mixture in mixtures for layer in (*mixture.up, *mixture.down)]
    assert all(isinstance(layer, Int8Linear) for layer in layers)
    routers = [module for module in modules if isinstance(module, TiledRouter)]
    assert {router.source.weight.dtype for router in routers} == {torch.float32}
    gates = [module for module in modules if getattr(module, "out_features", 0) == 1]
    assert all(isinstance(gate, TiledLinear) for gate in gates)
    assert bool(gates) == (family == "qwen2-moe")
    assert weight_bytes(loaded.runner) < 0.6 * weight_bytes(
        exact.runner
    )  # embeddings and head stay
    prompts = [[5, 6, 7, n] for n in range(10, 18)]
    together = [Stream(prompt, 8) for prompt in prompts]
    drive(loaded.runner, together)
    for stream in together:
        alone = Stream(stream.prompt, 8)
        drive(loaded.runner, [alone])
        assert alone.tokens == stream.tokens


def test_experts_that_look_otherwise_are_refused_by_name():
    """One without a gate would be computed wrongly."""
    model = transformers.AutoModelForCausalLM.from_config(tiny_config("mixtral"))
    model.model.layers[1].mlp.experts.has_gate = False
    with pytest.raises(ModelRefused, match="MixtralExperts: experts without a gate"):
        replace_experts(model, PlainLayers(torch.float32), lambda _: None)


def test_a_mixture_is_not_written_as_a_checkpoint_of_bitsandbytes(tmp_path, capsys):
    """Such a checkpoint would hold its experts as they were, and so be hardly smaller."""
    folder = make_tiny_model("mixtral", tmp_path / "mixtral")
    assert quantize([str(folder), str(tmp_path / "out")]) == 1
    assert "no form for mixtures of experts" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
