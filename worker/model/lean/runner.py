"""The model runner on the lean decoder: one call for all rows of a step, then one draw for each row that asks."""

from collections.abc import Sequence

import numpy as np
import torch

from worker.engine.block_store import BlockStore
from worker.engine.runner import Row, RowResult
from worker.model.lean.decoder import LeanDecoder
from worker.model.lean.weights import LeanWeights
from worker.model.memory_errors import told_as_memory_error
from worker.model.scoring import run_rows
from worker.sampling.kernel_draw import KernelDraw

_KEPT_ROWS = 64
"""Logits that steps have memory for. More are wanted where several prompts are scored, and hundreds of MiB are not kept for those."""


class LeanRunner:
    """Runs what ``worker.model.lean.spec`` covers."""

    def __init__(self, decoder: LeanDecoder) -> None:
        """Nothing else may run ``decoder``."""
        self.decoder = decoder
        self._draw_tokens = KernelDraw(decoder)
        self._kept = np.empty((_KEPT_ROWS, decoder.spec.vocab), np.float32)

    @property
    def weights(self) -> LeanWeights:
        """The packed weights."""
        return self.decoder.weights

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self.decoder.num_blocks

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self.decoder.block_size

    @property
    def blocks(self) -> BlockStore:
        """The contents of its blocks."""
        return self.decoder.blocks

    @told_as_memory_error()
    @torch.inference_mode()
    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        """Compute the rows in one step; see ``worker.engine.runner.ModelRunner``."""
        return run_rows(rows, self._logits_after, self._draw_tokens) if rows else []

    def _logits_after(self, rows: Sequence[Row], places: Sequence[int]) -> torch.Tensor:
        """They stand in the same memory each time: new pages for every step cost a tenth of a small one."""
        out = self._kept[: len(places)] if len(places) <= _KEPT_ROWS else None
        return torch.from_numpy(self.decoder.logits_after(rows, places, out))
