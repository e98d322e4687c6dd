"""Replacement linear layers: close to what they replace, and the same bits for a row in every batch."""

import pytest
import torch
from torch.nn.functional import linear

from common.domain import Quantization
from worker.model.four_bit_linear import FourBitLinear
from worker.model.int8_linear import Int8Linear
from worker.model.tiled_linear import EXACT_TILES, TiledLinear

SHAPES = [(64, 64), (96, 160), (70, 100), (576, 1536)]


def weight_and_bias(shape):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator), torch.randn(shape[0], generator=generator)


def relative_error(layer, weight, bias):
    inputs = torch.randn(9, weight.shape[1], generator=torch.Generator().manual_seed(1))
    expected = linear(inputs, weight, bias)
    return float((layer(inputs) - expected).norm() / expected.norm())


@pytest.mark.parametrize("shape", SHAPES)
def test_int8_is_close(shape):
    """Eight bits of weight are what is lost; activations cost next to nothing."""
    weight, bias = weight_and_bias(shape)
    assert relative_error(Int8Linear.from_weight(weight, bias), weight, bias) < 0.012


@pytest.mark.parametrize("double_quant", [False, True])
@pytest.mark.parametrize("how", [Quantization.NF4, Quantization.FP4])
@pytest.mark.parametrize("shape", SHAPES)
def test_four_bits_are_close_whatever_the_shape(shape, how, double_quant):
    """Rows that are no multiple of a quantization block are computed right, too."""
    weight, bias = weight_and_bias(shape)
    layer = FourBitLinear.from_weight(
        weight, bias, how, double_quant=double_quant, compute_dtype=torch.float32
    )
    assert relative_error(layer, weight, bias) < 0.14


def test_int8_is_what_bitsandbytes_stores():
    """Weights and scales equal those of its Linear8bitLt."""
    bnb = pytest.importorskip("bitsandbytes")
    weight, _ = weight_and_bias((64, 96))
    stored = bnb.nn.Int8Params(weight.clone(), requires_grad=False, has_fp16_weights=False).to(
        "cpu"
    )
    ours = Int8Linear.from_weight(weight.half(), None)
    assert (stored.CB.int() - ours.weight.int()).abs().max() <= 1
    torch.testing.assert_close(stored.SCB.flatten() / 127, ours.row_scale, rtol=1e-3, atol=0)


@pytest.mark.parametrize("shape", [(192, 576), (576, 1536), (1, 100)])
@pytest.mark.parametrize("kind", ["int8", "float32", "bfloat16"])
def test_a_row_has_the_same_bits_in_every_batch(shape, kind):
    """Among 1 to 300 rows, at any place, a row's result is the one it has alone."""
    weight, bias = weight_and_bias(shape)
    dtype = torch.float32 if kind == "float32" else torch.bfloat16
    layer = (
        Int8Linear.from_weight(weight, bias)
        if kind == "int8"
        else TiledLinear(torch.nn.Parameter(weight.to(dtype)), bias.to(dtype), EXACT_TILES[dtype])
    )
    inputs = torch.randn(300, shape[1], generator=torch.Generator().manual_seed(2)).to(dtype)
    with torch.inference_mode():
        alone = torch.cat([layer(inputs[i : i + 1]) for i in (0, 1, 2, 3)])
        for count in (4, 5, 12, 15, 16, 17, 31, 33, 47, 48, 49, 64, 97, 129, 200, 300):
            assert torch.equal(layer(inputs[:count])[:4], alone), count
            assert torch.equal(layer(inputs[:count].flip(0))[-4:].flip(0), alone), count


def test_a_row_of_zeros_and_a_row_of_nan():
    """Zeros give the bias; NaN stays in its row."""
    weight, bias = weight_and_bias((64, 64))
    layer = Int8Linear.from_weight(weight, bias)
    inputs = torch.stack((torch.zeros(64), torch.full((64,), float("nan")), torch.randn(64)))
    out = layer(inputs)
    assert torch.equal(out[0], bias)
    assert out[1].isnan().all()
    assert torch.equal(out[2], layer(inputs[2:])[0])
