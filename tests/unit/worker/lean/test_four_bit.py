"""bitsandbytes' 4-bit weights: the very codes and scales that it makes, from floats and from its checkpoints."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

from common.domain import Quantization
from tests.support.tiny_models import make_tiny_model
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.engine.runner import Row
from worker.kernels.codes import GROUP, LEVELS, STEPS
from worker.kernels.library import KernelsMissing, load
from worker.model.lean.four_bit import FORMATS, VALUES, from_stored, quantize
from worker.model.lean.runner import LeanRunner
from worker.model.lean.spec import NotLean
from worker.model.load import load_model
from worker.model.quiet_bitsandbytes import bitsandbytes
from worker.model.runner import TorchRunner
from worker.model.save_quantized import save_quantized

pytestmark = pytest.mark.timeout(600)

try:
    load()
except KernelsMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)

HOWS = sorted(FORMATS)


def weights(*shape, dtype=torch.float32):
    """Some of a usual size, and a row of zeros."""
    out = torch.randn(shape, generator=torch.Generator().manual_seed(0)) / 20
    out[3] = 0
    return out.to(dtype)


def by_bitsandbytes(weight, how, *, double_quant=False, block=GROUP):
    """Codes [n, k] of padded weights, their largest magnitudes by group, and what a checkpoint stores of them."""
    functional = bitsandbytes().functional
    filled = pad(weight, (0, -weight.shape[1] % 64, 0, -weight.shape[0] % 32)).contiguous()
    pairs, state = functional.quantize_4bit(
        filled, blocksize=block, quant_type=how.value, compress_statistics=double_quant
    )
    largest = state.absmax
    if double_quant:
        largest = functional.dequantize_blockwise(largest, state.state2) + state.offset
    codes = torch.stack((pairs >> 4, pairs & 15), dim=-1).view(filled.shape)
    groups = largest.repeat_interleave(block // GROUP).view(len(filled), -1)
    return codes, groups, {"": pairs, **state.as_dict(packed=True)}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("double_quant", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(64, 128), (40, 100), (300, 576)])
def test_floats_become_what_bitsandbytes_makes_of_them(how, double_quant, dtype, shape):
    """Every code is the same, also of rows that are no multiple of a block, and every scale but for half precision."""
    weight = weights(*shape, dtype=dtype)
    found = quantize(weight, how, double_quant=double_quant)
    codes, largest, _ = by_bitsandbytes(weight, how, double_quant=double_quant)
    n, k = shape
    assert np.array_equal(found.codes, codes[:n, :k].numpy())
    assert np.array_equal(found.scales, largest[:n].numpy().astype(np.float16))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("double_quant", [False, True])
@pytest.mark.parametrize("block", [64, 128, 1024])
def test_what_is_stored_is_taken_as_it_is(how, double_quant, block):
    """Blocks of 64 and more, which may run on into the next row, and scales that are stored in 8 bits."""
    codes, largest, parts = by_bitsandbytes(
        weights(96, 192), how, double_quant=double_quant, block=block
    )
    found = from_stored("w", parts, (96, 192), how)
    assert np.array_equal(found.codes, codes.numpy())
    np.testing.assert_allclose(found.scales.astype(np.float32), largest.numpy(), rtol=1e-3)


@pytest.mark.parametrize("how", HOWS)
def test_the_values_are_bitsandbytes_own(how):
    """Its table bit for bit; the kernels' steps are as near to it as steps can be."""
    values = VALUES[FORMATS[how]]
    expected = bitsandbytes().functional.get_4bit_type(how.value, device="cpu")
    assert np.array_equal(values, expected.numpy())
    steps = STEPS[FORMATS[how]]
    assert np.array_equal(np.rint(values.astype(np.float64) * steps), LEVELS[FORMATS[how]])


def changed(parts, **about):
    """What is stored, with something else said of it."""
    name = "quant_state.bitsandbytes__nf4"
    told = json.loads(parts[name].numpy().tobytes()) | about
    return parts | {name: torch.tensor(list(json.dumps(told).encode()), dtype=torch.uint8)}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda parts: changed(parts, blocksize=32), "blocks of 32"),
        (lambda parts: changed(parts, shape=[32, 128]), r"\(32, 128\)"),
        (lambda parts: parts | {"quant_map": parts["quant_map"] * 2}, "values"),
        (lambda parts: {"": parts[""]}, "not stored"),
    ],
)
def test_what_is_stored_otherwise_is_refused(change, reason):
    """Other blocks, shapes, values, and plain numbers among quantized ones are named."""
    _, _, parts = by_bitsandbytes(weights(64, 64), Quantization.NF4)
    with pytest.raises(NotLean, match=reason):
        from_stored("w", change(parts), (64, 64), Quantization.NF4)


@pytest.mark.parametrize(
    ("how", "double_quant"), [(Quantization.NF4, True), (Quantization.FP4, False)]
)
def test_a_stored_checkpoint_runs_as_if_quantized_at_load(tmp_path, how, double_quant):
    """The lean decoder takes both, with the same logits, near those of the generic runner, which has another fingerprint."""
    source = make_tiny_model("qwen2", tmp_path / "source", intermediate_size=192)
    settings = ModelSettings(
        model=str(source), quantization=how, double_quant=double_quant, kv_blocks=8
    )
    save_quantized(settings, tmp_path / "stored", lambda _: None)
    at_load = load_model(settings, lambda _: None)
    stored = load_model(ModelSettings(model=str(tmp_path / "stored"), kv_blocks=8), lambda _: None)
    generic = load_model(dataclasses.replace(settings, runner=RunnerKind.GENERIC), lambda _: None)
    assert isinstance(at_load.runner, LeanRunner)
    assert isinstance(stored.runner, LeanRunner)
    assert isinstance(generic.runner, TorchRunner)
    tokens = list(range(20))
    rows = [Row(tokens, 0, [0, 1], None)]
    found = [loaded.runner.decoder.logits(rows, [0])[0] for loaded in (at_load, stored)]
    assert np.array_equal(*found)
    expected = generic.runner._decoder.reference(tokens)[-1].float().numpy()
    assert np.linalg.norm(found[0] - expected) < 0.1 * np.linalg.norm(expected)
    assert generic.card.revision == at_load.card.revision
    assert generic.card.fingerprint != at_load.card.fingerprint
