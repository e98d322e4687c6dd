"""The model runner: one forward pass over all rows of a step, then one draw for each row that asks."""

from collections.abc import Sequence
from typing import Any

import torch

from worker.engine.block_store import BlockStore
from worker.engine.runner import Row, RowResult
from worker.kv.cache import PagedCache
from worker.kv.tensor_blocks import TensorBlocks
from worker.model.decoder import Decoder
from worker.model.layout import StepLayout
from worker.model.memory_errors import told_as_memory_error
from worker.model.scoring import run_rows
from worker.sampling.sampler import DrawTokens
from worker.sampling.torch_draw import draw_by_torch


class TorchRunner:
    """Runs any decoder that has passed the checks of ``worker.model.support`` over a paged cache."""

    def __init__(
        self, decoder: Decoder, cache: PagedCache, draw_tokens: DrawTokens = draw_by_torch
    ) -> None:
        """Nothing else may write to ``cache``."""
        self._draw_tokens = draw_tokens
        self._decoder = decoder
        self._cache = cache
        self._blocks = TensorBlocks(cache.stores)

    @property
    def model(self) -> Any:
        """The model as transformers has it, its layers replaced."""
        return self._decoder.model

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self._cache.num_blocks

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._cache.block_size

    @property
    def blocks(self) -> BlockStore:
        """The contents of its blocks."""
        return self._blocks

    @told_as_memory_error()
    @torch.inference_mode()
    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        """Compute the rows in one step; see ``worker.engine.runner.ModelRunner``."""
        return run_rows(rows, self._logits_after, self._draw_tokens) if rows else []

    def _logits_after(self, rows: Sequence[Row], places: Sequence[int]) -> torch.Tensor:
        layout = StepLayout(rows, self._cache, self._decoder.dtype, self._decoder.device)
        return self._decoder.logits_after(layout, places)
