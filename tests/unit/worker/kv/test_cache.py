"""The paged store: what is written is read back, and memory is taken when it is written."""

import psutil
import torch

from worker.kv.cache import LayerShape, PagedCache

MIB = 1 << 20


def test_memory_is_taken_when_it_is_written() -> None:
    """A pool that is a share of the machine costs a new worker next to nothing."""
    shape, process = LayerShape(4, 64, 64), psutil.Process()
    block_bytes = 16 * shape.bytes_per_token(torch.float32)
    before = process.memory_info().rss
    cache = PagedCache(
        [shape] * 4,
        num_blocks=256 * MIB // block_bytes,
        block_size=16,
        dtype=torch.float32,
    )
    assert process.memory_info().rss - before < 64 * MIB
    assert cache.read(3, torch.tensor([0, cache.zero_slot]))[0].count_nonzero() == 0


def test_what_is_written_is_read_back() -> None:
    """At its slots and in its layer, in the model's own format."""
    layers = [LayerShape(2, 8, 4), LayerShape(2, 8, 4)]
    cache = PagedCache(layers, num_blocks=3, block_size=4, dtype=torch.bfloat16)
    key, value = (
        torch.arange(3 * 2 * dim, dtype=torch.bfloat16).reshape(3, 2, dim) for dim in (8, 4)
    )
    slots = torch.tensor([1, 11, 6])
    cache.write(1, slots, key, value)
    found_key, found_value = cache.read(1, slots)
    assert torch.equal(found_key, key)
    assert torch.equal(found_value, value)
    assert cache.read(0, slots)[0].count_nonzero() == 0
    assert cache.read(1, torch.tensor([cache.zero_slot]))[1].count_nonzero() == 0


def test_int8_keeps_each_head_to_half_a_step() -> None:
    """Key and value by scales of their own; tokens beside change nothing, and what is no number stays none."""
    layers = [LayerShape(2, 64, 32)]
    cache = PagedCache(layers, num_blocks=3, block_size=4, dtype=torch.float32, stored=torch.int8)
    generator = torch.Generator().manual_seed(0)
    key, value = (torch.randn(3, 2, dim, generator=generator) for dim in (64, 32))
    value *= 100
    key[2, 1, 5] = float("inf")
    slots = torch.tensor([1, 11, 6])
    cache.write(0, slots, key, value)
    for found, written in zip(cache.read(0, slots), (key, value), strict=True):
        step = written.abs().amax(dim=-1, keepdim=True) / 127
        off = (found - written).abs()[:2]
        assert (off <= step[:2] * 0.5001).all()
        assert off.max() > 0
    assert not cache.read(0, slots[2:])[0][0, 1].isfinite().any()
    before = cache.read(0, slots[:1])
    cache.write(0, slots[:1], key[:1], value[:1])
    assert all(torch.equal(a, b) for a, b in zip(before, cache.read(0, slots[:1]), strict=True))
    assert cache.read(0, torch.tensor([cache.zero_slot]))[1].count_nonzero() == 0
    assert sum(store[0].nbytes for store in cache.stores) == 4 * layers[0].bytes_per_token(
        torch.int8
    )
