"""What the engine asks of the memory behind the blocks: contents of whole blocks, without knowing what they are."""

from typing import Protocol

from worker.engine.runner import ModelRunner


class BlockStore(Protocol):
    """The contents of a runner's blocks, in all layers."""

    def copy(self, source: int, target: int) -> None:
        """Let ``target`` hold what ``source`` holds."""
        ...

    def read(self, block_id: int) -> bytes:
        """The content; the same bits give the same bytes."""
        ...

    def write(self, block_id: int, content: bytes) -> None:
        """Put back what ``read`` gave, into any block."""
        ...


class PagedRunner(ModelRunner, Protocol):
    """A runner whose blocks can be copied, saved and restored between steps."""

    @property
    def blocks(self) -> BlockStore:
        """The contents of its blocks."""
        ...
