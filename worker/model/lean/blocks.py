"""The contents of the lean decoder's blocks, which lie in host memory already."""

import numpy as np

from worker.kernels.arrays import Array


class ArrayBlocks:
    """A block store over a pool [layers, keys and values, numbers of all blocks in order]."""

    def __init__(self, pool: Array, num_blocks: int) -> None:
        """A view of ``pool``; nothing is copied."""
        self._blocks = pool.reshape(*pool.shape[:2], num_blocks, -1)

    def copy(self, source: int, target: int) -> None:
        """Let ``target`` hold what ``source`` holds."""
        self._blocks[:, :, target] = self._blocks[:, :, source]

    def read(self, block_id: int) -> bytes:
        """The content in all layers."""
        return self._blocks[:, :, block_id].tobytes()

    def write(self, block_id: int, content: bytes) -> None:
        """Put back what ``read`` gave."""
        block = self._blocks[:, :, block_id]
        block[:] = np.frombuffer(content, block.dtype).reshape(block.shape)
