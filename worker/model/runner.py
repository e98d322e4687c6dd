"""The model runner: one forward pass over all rows of a step, then one draw for each row that asks."""

from collections.abc import Sequence

import torch

from worker.engine.runner import Row, RowResult
from worker.kv.cache import PagedCache
from worker.model.decoder import Decoder
from worker.model.layout import StepLayout
from worker.sampling.sampler import sample


class TorchRunner:
    """Runs any decoder that has passed the checks of ``worker.model.support`` over a paged cache."""

    def __init__(self, decoder: Decoder, cache: PagedCache) -> None:
        """Nothing else may write to ``cache``."""
        self._decoder = decoder
        self._cache = cache

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self._cache.num_blocks

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._cache.block_size

    @torch.inference_mode()
    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        """Compute the rows in one step; see ``worker.engine.runner.ModelRunner``."""
        if not rows:
            return []
        layout = StepLayout(rows, self._cache, self._decoder.dtype, self._decoder.device)
        drawing = layout.drawing()
        logits = self._decoder.logits(layout, drawing)
        for line, index in enumerate(drawing):
            if rows[index].inject_nan:
                logits[line] = float("nan")
        results: list[RowResult] = [None] * len(rows)
        draws = [draw for row in rows if (draw := row.draw) is not None]
        for index, drawn in zip(drawing, sample(logits, draws), strict=True):
            results[index] = drawn
        return results
