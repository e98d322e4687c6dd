"""The contents of the paged cache's blocks, copied within the device or to and from host memory."""

from collections.abc import Sequence

import torch


class TensorBlocks:
    """A block store over the stores of all layers, each [blocks, ...]."""

    def __init__(self, stores: Sequence[torch.Tensor]) -> None:
        """Views of ``stores``; nothing is copied."""
        self._stores = stores

    @torch.inference_mode()
    def copy(self, source: int, target: int) -> None:
        """Let ``target`` hold what ``source`` holds."""
        for store in self._stores:
            store[target].copy_(store[source])

    @torch.inference_mode()
    def read(self, block_id: int) -> bytes:
        """The content in all layers."""
        parts = [store[block_id].view(torch.uint8).flatten() for store in self._stores]
        return torch.cat(parts).cpu().numpy().tobytes()

    @torch.inference_mode()
    def write(self, block_id: int, content: bytes) -> None:
        """Put back what ``read`` gave."""
        data = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        blocks = [store[block_id].view(torch.uint8) for store in self._stores]
        parts = torch.split(data, [block.numel() for block in blocks])
        for block, part in zip(blocks, parts, strict=True):
            block.copy_(part.view(block.shape))
