"""Contents of blocks in host memory, while their sequences make room for older ones."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SavedBlocks:
    """What each block held, and which blocks each choice held, by the numbers they had; those mean nothing any more."""

    contents: dict[int, bytes]
    tables: dict[int, list[int]]

    def __len__(self) -> int:
        """Blocks saved."""
        return len(self.contents)
