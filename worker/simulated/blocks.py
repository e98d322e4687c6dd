"""The contents of the simulated runner's blocks: a hash and a token for each position."""

import struct


class SimulatedBlocks:
    """A block store over two plain lists."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        """All zeros."""
        self.hashes = [0] * (num_blocks * block_size)
        self.tokens = [0] * (num_blocks * block_size)
        self._block_size = block_size
        self._layout = struct.Struct(f"<{block_size}Q{block_size}I")

    def copy(self, source: int, target: int) -> None:
        """Let ``target`` hold what ``source`` holds."""
        self.hashes[self._slots(target)] = self.hashes[self._slots(source)]
        self.tokens[self._slots(target)] = self.tokens[self._slots(source)]

    def read(self, block_id: int) -> bytes:
        """The content."""
        slots = self._slots(block_id)
        return self._layout.pack(*self.hashes[slots], *self.tokens[slots])

    def write(self, block_id: int, content: bytes) -> None:
        """Put back what ``read`` gave."""
        numbers = self._layout.unpack(content)
        slots, size = self._slots(block_id), self._block_size
        self.hashes[slots] = numbers[:size]
        self.tokens[slots] = numbers[size:]

    def _slots(self, block_id: int) -> slice:
        return slice(block_id * self._block_size, (block_id + 1) * self._block_size)
