"""Every kernel of every instruction set this processor has, against plain torch, on shapes drawn at random."""

import ctypes

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.domain import Quantization
from worker.kernels import reference
from worker.kernels.arrays import (
    Blocks,
    pack_bfloat16,
    pack_blocks,
    pack_int8,
    padded,
    round_up,
    zeros,
)
from worker.kernels.codes import LEVELS, STEPS, Codes, pack_codes
from worker.kernels.library import KernelsMissing, instruction_sets, load
from worker.kernels.structs import KvFormat, Layer, Linear, Model, Step, WeightFormat
from worker.model.lean.blocks import blocks_of_4, blocks_of_8, values
from worker.model.lean.four_bit import quantize
from worker.model.lean.packing import PackedLinear
from worker.model.lean.weights import interleaved

pytestmark = pytest.mark.timeout(600)

try:
    ISAS = instruction_sets()
except KernelsMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)

EXAMPLES = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
ROWS = st.integers(1, 40)
WIDTHS = st.sampled_from([64, 128, 192, 576, 1536])
SEEDS = st.integers(0, 2**31)


class Engine:
    """Calls single kernels with torch tensors."""

    def __init__(self, isa, threads=2):
        self.library = load()
        self.handle = self.library.hk_engine_new(isa.encode(), threads)
        assert self.handle

    def close(self):
        self.library.hk_engine_free(self.handle)

    def quantized(self, rows, k):
        groups = (rows, k // 64)
        return (
            torch.zeros((rows, k), dtype=torch.int8),
            torch.zeros(groups),
            torch.zeros((rows, k // 32), dtype=torch.int32),
        )

    def quantize(self, x):
        out = self.quantized(*x.shape)
        self.library.hk_quantize(self.handle, x.data_ptr(), *x.shape, *addresses(out))
        return out

    def matmul(self, linear, inputs, out, accumulate):
        rows = inputs[0].shape[0]
        self.library.hk_matmul(
            self.handle,
            ctypes.byref(linear),
            *addresses(inputs),
            rows,
            out.data_ptr(),
            int(accumulate),
        )


def addresses(tensors):
    return [tensor.data_ptr() for tensor in tensors]


@pytest.fixture(params=ISAS)
def engine(request):
    engine = Engine(request.param)
    yield engine
    engine.close()


def normal(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def whole(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)


@EXAMPLES
@given(rows=ROWS, k=WIDTHS, seed=SEEDS, scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_quantize(engine, rows, k, seed, scale):
    """Values are at most one step from plain torch's, scales and sums belong to them."""
    x = normal(seed, rows, k) * scale
    steps, scales, sums = engine.quantize(x)
    expected, expected_scales = reference.quantize(x)
    assert (steps.int() - expected.int()).abs().max() <= 1
    assert (steps != expected).float().mean() < 0.01
    torch.testing.assert_close(scales, expected_scales, rtol=1e-6, atol=0)
    assert torch.equal(sums, offsets(steps))


def offsets(steps):
    """-128 times the sum of each 32."""
    return -128 * steps.view(len(steps), -1, 32).int().sum(dim=-1, dtype=torch.int32)


@EXAMPLES
@given(rows=ROWS, width=st.sampled_from([48, 64, 100, 576, 1000]), seed=SEEDS)
def test_norm(engine, rows, width, seed):
    """The norm divides by the true width, whatever padding follows."""
    k = round_up(width)
    x, weight = torch.zeros(rows, k), torch.zeros(k)
    x[:, :width], weight[:width] = normal(seed, rows, width) * 3, normal(seed + 1, width)
    out = engine.quantized(rows, k)
    engine.library.hk_norm_quantize(
        engine.handle, x.data_ptr(), weight.data_ptr(), rows, width, k, 1e-5, *addresses(out)
    )
    expected = reference.norm(x[:, :width], weight[:width], 1e-5)
    error = reference.dequantize(*out[:2])[:, :width] - expected
    limit = out[1].repeat_interleave(64, dim=1)[:, :width]
    assert (error.abs() <= limit * 0.51 + 1e-6).all()


FOUR_BIT = {"nf4": WeightFormat.NF4, "fp4": WeightFormat.FP4}


def halves(values):
    return values.numpy().astype(np.float16)


def random_weights(seed, kind, n, k):
    """A layer's weights in one of the formats: what they stand for, and the packed form with row scales."""
    if kind == "int8":
        steps, scales = whole(seed, n, k), normal(seed + 1, n).abs() / 100
        return steps.double() * scales.double()[:, None], pack_int8(steps.numpy()), scales
    if kind in FOUR_BIT:
        steps = (whole(seed, n, k).to(torch.uint8) & 15).numpy()
        codes = Codes(FOUR_BIT[kind], steps, halves(normal(seed + 1, n, k // 64).abs()))
        return exactly(codes), pack_codes(codes), None
    scales = halves(normal(seed + 1, n, k // 32) / 100)
    if kind == "blocks8":
        blocks = Blocks(whole(seed, n, k).numpy(), scales, None)
    else:
        steps = (whole(seed, n, k).to(torch.uint8) & 15).numpy()
        blocks = Blocks(steps, scales, halves(normal(seed + 5, n, k // 32) / 10))
    return torch.from_numpy(values(blocks)).double(), pack_blocks(blocks), None


def exactly(codes):
    """What the kernels multiply by, in float64."""
    levels = torch.tensor(LEVELS[codes.format]).double() / STEPS[codes.format]
    scales = torch.from_numpy(codes.scales).double().repeat_interleave(64, dim=1)
    return levels[torch.from_numpy(codes.codes).int()] * scales


def linear_struct(packed, scales, bias):
    """The layer as the kernels see it; arrays must be kept while it is used."""
    kept = PackedLinear(
        packed,
        None if scales is None else padded(scales.numpy(), packed.n),
        None if bias is None else padded(bias.numpy(), packed.n),
    )
    return kept.struct, kept


KINDS = st.sampled_from(["int8", "blocks8", "blocks4", "nf4", "fp4"])


@EXAMPLES
@given(
    rows=ROWS,
    n=st.sampled_from([1, 32, 70, 192, 576]),
    k=WIDTHS,
    seed=SEEDS,
    kind=KINDS,
    biased=st.booleans(),
    accumulate=st.booleans(),
)
def test_matmul(engine, rows, n, k, seed, kind, biased, accumulate):
    """Products of quantized activations and weights, extremes included, differ from float64 by rounding alone."""
    weight, packed, scales = random_weights(seed, kind, n, k)
    bias = normal(seed + 2, n) if biased else None
    linear, arrays = linear_struct(packed, scales, bias)
    inputs = engine.quantize(normal(seed + 3, rows, k))
    inputs[0][0, : k // 2], inputs[0][-1, k // 2 :] = 127, -127
    inputs[2][:] = offsets(inputs[0])
    before = normal(seed + 4, rows, linear.n)
    out = before.clone()
    engine.matmul(linear, inputs, out, accumulate)
    expected = reference.linear(*inputs[:2], weight, bias)
    if accumulate:
        expected = expected + before[:, :n]
    torch.testing.assert_close(out[:, :n], expected, rtol=1e-4, atol=2e-3)
    assert arrays


@EXAMPLES
@given(rows=ROWS, width=st.sampled_from([64, 160, 576]), k=WIDTHS, seed=SEEDS, kind=KINDS)
def test_gate_up(engine, rows, width, k, seed, kind):
    """Silu of the gate times up, quantized; padding gives zeros."""
    groups = round_up(width) // 64
    weight, packed, scales = gate_up_weights(seed, kind, width, k)
    linear, arrays = linear_struct(packed, scales, None)
    inputs = engine.quantize(normal(seed + 3, rows, k) * 2)
    out = engine.quantized(rows, groups * 64)
    engine.library.hk_gate_up(
        engine.handle, ctypes.byref(linear), *addresses(inputs), rows, *addresses(out)
    )
    both = reference.linear(*inputs[:2], weight, None).view(rows, groups, 2, 64)
    gate, up = both[:, :, 0].reshape(rows, -1), both[:, :, 1].reshape(rows, -1)
    error = reference.dequantize(*out[:2]) - torch.nn.functional.silu(gate) * up
    limit = out[1].repeat_interleave(64, dim=1)
    assert (error.abs() <= limit * 0.52 + 1e-5).all()
    assert not out[0][:, width:].any()
    assert arrays


def gate_up_weights(seed, kind, width, k):
    """Gate and up in groups of 64, with zeros where the last group is not full."""
    order = interleaved(width)
    if kind == "int8":
        steps = whole(seed, 2 * width, k)[order].numpy()
        steps[order < 0] = 0
        scales = torch.full((len(order),), 1 / (127 * k**0.5))
        return torch.from_numpy(steps) * scales.double()[:, None], pack_int8(steps), scales
    weight = normal(seed, 2 * width, k) / k**0.5
    if kind in FOUR_BIT:
        codes = quantize(weight, Quantization(kind)).rows(order)
        return exactly(codes), pack_codes(codes), None
    blocks = (blocks_of_8 if kind == "blocks8" else blocks_of_4)(weight).rows(order)
    return torch.from_numpy(values(blocks)).double(), pack_blocks(blocks), None


@EXAMPLES
@given(
    rows=ROWS,
    vocab=st.sampled_from([3, 64, 100, 384]),
    width=st.sampled_from([64, 100, 576]),
    seed=SEEDS,
)
def test_head(engine, rows, vocab, width, seed):
    """Logits in 16 bit weights: some instruction sets round their inputs to 16 bits too."""
    k = round_up(width)
    weight = normal(seed, vocab, width)
    x = torch.zeros(rows, k)
    x[:, :width] = normal(seed + 1, rows, width)
    expected = x[:, :width] @ weight.bfloat16().float().t()
    out = logits(engine, pack_bfloat16(weight.numpy()), x, vocab)
    torch.testing.assert_close(out, expected, rtol=2e-2, atol=2e-2 * width**0.5)


@EXAMPLES
@given(rows=ROWS, vocab=st.sampled_from([3, 64, 100, 384]), k=WIDTHS, seed=SEEDS)
def test_head_in_blocks(engine, rows, vocab, k, seed):
    """Logits from blocks of 8 bits and quantized inputs differ from float64 by rounding alone."""
    blocks = blocks_of_8(normal(seed, vocab, k))
    x = normal(seed + 1, rows, k)
    inputs = engine.quantize(x)
    expected = reference.linear(*inputs[:2], torch.from_numpy(values(blocks)).double(), None)
    out = logits(engine, pack_blocks(blocks), x.clone(), vocab)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=2e-3)


def logits(engine, packed, x, vocab):
    head, kept = linear_struct(packed, None, None)
    out = torch.zeros(len(x), vocab)
    engine.library.hk_head(
        engine.handle, ctypes.byref(head), x.data_ptr(), len(x), vocab, out.data_ptr()
    )
    assert kept
    return out


SHAPES = st.sampled_from(
    [(3, 1, 64), (9, 3, 64), (4, 2, 16), (4, 4, 32), (16, 2, 128), (2, 1, 96)]
)


@EXAMPLES
@given(
    shape=SHAPES,
    tokens=st.integers(1, 150),
    window=st.sampled_from([0, 1, 24, 100]),
    chunk=st.integers(1, 60),
    kv=st.sampled_from(KvFormat),
    seed=SEEDS,
)
def test_attention(engine, shape, tokens, window, chunk, kv, seed):
    """Chunks over scattered blocks equal attention over the whole sequence, whatever unused slots hold."""
    heads, kv_heads, dim = shape
    cache = Cache(heads, kv_heads, dim, window, tokens, kv, seed)
    width = (heads + 2 * kv_heads) * dim
    qkv = normal(seed, tokens, width)
    found = torch.cat(
        [cache.attend(engine, qkv[i : i + chunk], i) for i in range(0, tokens, chunk)]
    )
    query, key, value = qkv.split([heads * dim, kv_heads * dim, kv_heads * dim], dim=1)
    positions = torch.arange(tokens)
    frequencies = torch.from_numpy(cache.frequencies)
    expected = reference.attention(
        reference.rope(query.view(tokens, heads, dim), positions, frequencies),
        reference.rope(key.view(tokens, kv_heads, dim), positions, frequencies),
        value.view(tokens, kv_heads, dim),
        window,
        in_int8=kv is KvFormat.INT8,
    )
    torch.testing.assert_close(found.view(tokens, heads, dim), expected, rtol=2e-2, atol=2e-2)


class Cache:
    """One layer's keys and values, and blocks that are handed out at random."""

    def __init__(self, heads, kv_heads, dim, window, tokens, kv, seed):
        blocks = -(-tokens // 16) + 3
        self.width, self.out_width = round_up((heads + 2 * kv_heads) * dim), round_up(heads * dim)
        self.table = np.random.default_rng(seed).permutation(blocks).astype(np.int32)
        size = blocks * 16 * kv_heads * round_up(dim, 32)
        store = zeros((2, size), np.uint8 if kv is KvFormat.INT8 else np.uint16)
        scales = zeros((blocks * 32 * kv_heads,), np.float32)
        # NaN, as a broken sequence would have left it.
        store[:], scales[:] = 0x80 if kv is KvFormat.INT8 else 0x7FC0, np.nan
        self.frequencies = (1.0 / 10000 ** (np.arange(0, dim, 2) / dim)).astype(np.float32)
        self.embedding = zeros((64, 64), np.uint16)
        self.layer = Layer(
            keys=store[0].ctypes.data,
            values=store[1].ctypes.data,
            kv_scales=scales.ctypes.data,
            window=window,
        )
        self.model = Model(
            layers=ctypes.pointer(self.layer),
            embedding=Linear(self.embedding.ctypes.data, n=64, k=64, format=WeightFormat.BFLOAT16),
            inverse_frequencies=self.frequencies.ctypes.data,
            rope_factor=1.0,
            attention_scale=dim**-0.5,
            num_layers=1,
            hidden=64,
            vocab=64,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=dim,
            block_size=16,
            kv_format=kv,
        )
        self.store, self.scales = store, scales

    def attend(self, engine, qkv, start):
        tokens = qkv.shape[0]
        padded_qkv = torch.zeros(tokens, self.width)
        padded_qkv[:, : qkv.shape[1]] = qkv
        out = torch.full((tokens, self.out_width), 7.0)
        arrays = [
            np.zeros(tokens, np.int32),
            np.arange(start, start + tokens, dtype=np.int32),
            np.zeros(tokens, np.int32),
            np.array([0, tokens], np.int32),
            np.zeros(1, np.int32),
            self.table,
        ]
        step = Step(*(array.ctypes.data for array in arrays), None, None, tokens, 1, 0)
        engine.library.hk_attention(
            engine.handle,
            ctypes.byref(self.model),
            ctypes.byref(step),
            0,
            padded_qkv.data_ptr(),
            out.data_ptr(),
        )
        heads = self.model.heads * self.model.head_dim
        assert not out[:, heads:].any(), "padding takes part in quantization"
        return out[:, :heads]


@pytest.mark.parametrize("kind", ["int8", "blocks8", "blocks4", "nf4"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_stays_in_its_row(engine, bad, kind):
    """A broken value breaks its row's products and no other's."""
    _, packed, scales = random_weights(0, kind, 64, 128)
    linear, arrays = linear_struct(packed, scales, None)
    x = normal(1, 3, 128)
    sound, broken = torch.zeros(3, 64), torch.zeros(3, 64)
    engine.matmul(linear, engine.quantize(x), sound, False)
    x[1, 70] = bad
    engine.matmul(linear, engine.quantize(x), broken, False)
    assert not broken[1].isfinite().any()
    assert torch.equal(sound[[0, 2]], broken[[0, 2]])
    assert arrays


def test_unknown_instruction_sets_are_refused():
    """No engine is made for a name that the processor does not have, nor without threads."""
    assert not load().hk_engine_new(b"avx1024", 1)
    assert not load().hk_engine_new(b"portable", 0)
