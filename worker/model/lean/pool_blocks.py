"""The contents of the lean decoder's KV blocks, which lie in host memory already."""

from collections.abc import Iterable

import numpy as np

from worker.kernels.arrays import Array


class PoolBlocks:
    """A block store over arrays each of which holds its part of all blocks, one block after the other."""

    def __init__(self, arrays: Iterable[Array], num_blocks: int) -> None:
        """Views of ``arrays``; nothing is copied."""
        self._parts = [array.reshape(num_blocks, -1).view(np.uint8) for array in arrays]

    def copy(self, source: int, target: int) -> None:
        """Let ``target`` hold what ``source`` holds."""
        for part in self._parts:
            part[target] = part[source]

    def read(self, block_id: int) -> bytes:
        """The content in all layers."""
        return b"".join(part[block_id].tobytes() for part in self._parts)

    def write(self, block_id: int, content: bytes) -> None:
        """Put back what ``read`` gave."""
        data, first = np.frombuffer(content, np.uint8), 0
        for part in self._parts:
            last = first + part.shape[1]
            part[block_id] = data[first:last]
            first = last
        assert first == len(content), (first, len(content))
