"""Paged attention against a plain reference, on random rows, blocks, heads and windows."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.engine.runner import Row
from worker.kv.cache import LayerShape, PagedCache
from worker.model.attention import paged_attention
from worker.model.layout import MIN_ROWS, StepLayout

CPU = torch.device("cpu")
DIM, VALUE_DIM = 8, 6


def reference(query, keys, values, start, window):
    """[tokens, heads, dim] against [length, kv heads, dim]: one token and one head at a time."""
    group = query.shape[1] // keys.shape[1]
    out = torch.zeros(query.shape[0], query.shape[1], values.shape[-1])
    for t in range(query.shape[0]):
        end = start + t + 1
        first = 0 if window is None else max(0, end - window)
        for h in range(query.shape[1]):
            scores = keys[first:end, h // group] @ query[t, h] * 0.3
            out[t, h] = scores.softmax(0) @ values[first:end, h // group]
    return out


def make_cache(kv_heads, window, num_blocks, block_size):
    shape = LayerShape(kv_heads, DIM, VALUE_DIM, window)
    return PagedCache([shape], num_blocks=num_blocks, block_size=block_size, dtype=torch.float32)


def attend(cache, rows, query, key, value):
    layout = StepLayout(rows, cache, torch.float32, CPU)
    missing = len(layout.token_ids) - query.shape[0]
    padded = [
        torch.cat((part, torch.zeros(missing, *part.shape[1:]))).transpose(0, 1).unsqueeze(0)
        for part in (query, key, value)
    ]
    out, _ = paged_attention(
        SimpleNamespace(layer_idx=0), *padded, None, scaling=0.3, headrace_step=layout
    )
    return out[0]


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 90), st.sampled_from([1, 1, 1, 2, 5, 40])), min_size=1, max_size=6
    ),
    kv_heads=st.sampled_from([1, 2, 3]),
    group=st.sampled_from([1, 2, 3, 5]),
    window=st.sampled_from([None, 1, 4, 33]),
    block_size=st.sampled_from([1, 4, 16]),
    seed=st.integers(0, 2**31),
)
def test_equals_the_reference(rows, kv_heads, group, window, block_size, seed):
    """Any mix of rows, in shuffled blocks full of NaN where nobody wrote, attends as the reference does."""
    torch.manual_seed(seed)
    needs = [-(-(start + count) // block_size) for start, count in rows]
    cache = make_cache(kv_heads, window, sum(needs), block_size)
    cache.write(  # what earlier owners left behind
        0,
        torch.arange(cache.zero_slot),
        torch.full((cache.zero_slot, kv_heads, DIM), float("nan")),
        torch.full((cache.zero_slot, kv_heads, VALUE_DIM), float("nan")),
    )
    blocks = torch.randperm(sum(needs)).split(needs)
    pasts, made, parts = [], [], []
    for (start, count), table in zip(rows, blocks, strict=True):
        keys = torch.randn(start + count, kv_heads, DIM)
        values = torch.randn(start + count, kv_heads, VALUE_DIM)
        position = torch.arange(start)
        cache.write(
            0,
            table[position // block_size] * block_size + position % block_size,
            keys[:start],
            values[:start],
        )
        pasts.append((keys, values))
        made.append(Row([0] * count, start, table.tolist(), None))
        parts.append((torch.randn(count, kv_heads * group, DIM), keys[start:], values[start:]))
    query, key, value = (torch.cat(part) for part in zip(*parts, strict=True))
    out = attend(cache, made, query, key, value)
    first = 0
    for (start, count), (keys, values) in zip(rows, pasts, strict=True):
        expected = reference(query[first : first + count], keys, values, start, window)
        torch.testing.assert_close(out[first : first + count], expected, atol=1e-5, rtol=1e-4)
        first += count


def test_nan_stays_in_its_row():
    """A row whose keys and values are NaN gives NaN; its neighbours give what they gave without it."""
    cache = make_cache(2, None, 8, 4)
    rows = [Row([0], 0, [0], None), Row([0] * 3, 0, [1], None), Row([0], 0, [2], None)]
    query, key, value = (
        torch.randn(5, 4, DIM),
        torch.randn(5, 2, DIM),
        torch.randn(5, 2, VALUE_DIM),
    )
    sound = attend(cache, rows, query, key, value)
    key[1:4], value[1:4] = float("nan"), float("nan")
    broken = attend(cache, rows, query, key, value)
    assert broken[1:4].isnan().all()
    assert torch.equal(broken[0], sound[0])
    assert torch.equal(broken[4], sound[4])


def test_blocks_before_a_window_are_not_looked_at():
    """A window's table may hold anything where the window no longer reaches."""
    cache = make_cache(1, 4, 4, 4)
    row = Row([0], 9, [10**9, 2, 3], None)
    out = attend(
        cache, [row], torch.randn(1, 1, DIM), torch.randn(1, 1, DIM), torch.randn(1, 1, VALUE_DIM)
    )
    assert out.isfinite().all()


@pytest.mark.parametrize("count", [1, 3, 4, 9])
def test_padding_writes_to_the_sink(count):
    """Steps have at least MIN_ROWS tokens; the extra ones touch no block of the pool and leave the zero block zero."""
    cache = make_cache(1, None, 4, 4)
    key = torch.ones(count, 1, DIM)
    attend(
        cache, [Row([0] * count, 0, [0, 1, 2], None)], key, key, torch.ones(count, 1, VALUE_DIM)
    )
    keys, _ = cache.read(0, torch.arange(cache.sink_slot))
    assert int(keys.abs().sum(dim=(1, 2)).count_nonzero()) == count
    assert MIN_ROWS == 4


@pytest.mark.parametrize("window", [None, 24, 100, 300])
def test_the_same_bits_in_any_company(monkeypatch, window):
    """A token's attention is the same to the last bit: computed with all of its row, in pieces, or beside longer rows."""
    monkeypatch.setattr(f"{__name__}.DIM", 64)
    monkeypatch.setattr(f"{__name__}.VALUE_DIM", 64)
    torch.manual_seed(3)
    length, table = 600, list(range(38))
    query, key, value = (torch.randn(length, heads, 64) for heads in (9, 3, 3))
    whole = attend(
        cache := make_cache(3, window, 80, 16),
        [Row([0] * length, 0, table, None)],
        query,
        key,
        value,
    )
    for cuts in ((0, 40, 190, 200, 530, 600), (0, *range(7, 600, 29), 600)):
        pieces = [
            attend(cache, [Row([0] * (b - a), a, table, None)], query[a:b], key[a:b], value[a:b])
            for a, b in pairwise(cuts)
        ]
        assert torch.equal(torch.cat(pieces), whole)
    mate = Row([0], length - 1, [table[0] + 40] * 38, None)
    for place in (23, 24, 63, 64, 87, 130, 191, 192, 255, 256, 363, 364, 400, 511, 512, 580):
        rows = [Row([0], place, table, None), mate]
        parts = [torch.stack((part[place], part[-1])) for part in (query, key, value)]
        assert torch.equal(attend(cache, rows, *parts)[0], whole[place]), place
