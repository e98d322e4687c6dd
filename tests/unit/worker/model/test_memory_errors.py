"""Whoever lacks memory, the engine hears one exception."""

import pytest
import torch

from worker.model.memory_errors import told_as_memory_error


def test_torch_says_it_in_its_own_words() -> None:
    """An allocation that no machine has room for; other errors stay what they are."""
    with pytest.raises(MemoryError), told_as_memory_error():
        torch.empty(1 << 60, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="shape"), told_as_memory_error():
        torch.zeros(3).view(2)
