"""One exception for a step without memory, whichever allocator said it."""

import contextlib
from collections.abc import Iterator

import torch

_SAID = ("allocate memory", "out of memory")


@contextlib.contextmanager
def told_as_memory_error() -> Iterator[None]:
    """Raise torch's words for it as ``MemoryError``, and let go of what torch keeps for later."""
    try:
        yield
    except RuntimeError as error:  # torch has a type of its own for accelerators only
        if not any(text in str(error) for text in _SAID):
            raise
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        raise MemoryError(str(error).splitlines()[0]) from error
