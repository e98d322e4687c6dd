"""The paged store: what is written is read back, and memory is taken when it is written."""

import psutil
import torch

from worker.kv.cache import LayerShape, PagedCache

MIB = 1 << 20


def test_memory_is_taken_when_it_is_written() -> None:
    """A pool that is a share of the machine costs a new worker next to nothing."""
    shape, process = LayerShape(4, 64, 64), psutil.Process()
    block_bytes = 16 * shape.elements_per_token * torch.float32.itemsize
    before = process.memory_info().rss
    cache = PagedCache(
        [shape] * 4,
        num_blocks=256 * MIB // block_bytes,
        block_size=16,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    assert process.memory_info().rss - before < 64 * MIB
    assert cache.read(3, torch.tensor([0, cache.zero_slot]))[0].count_nonzero() == 0


def test_what_is_written_is_read_back() -> None:
    """At its slots and in its layer, in the model's own format."""
    layers = [LayerShape(2, 8, 4), LayerShape(2, 8, 4)]
    cache = PagedCache(
        layers, num_blocks=3, block_size=4, dtype=torch.bfloat16, device=torch.device("cpu")
    )
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
