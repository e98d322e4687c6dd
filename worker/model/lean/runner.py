"""The model runner on the lean decoder: one call for all rows of a step, then one draw for each row that asks."""

from collections.abc import Sequence

import torch

from worker.engine.runner import Row, RowResult
from worker.model.lean.decoder import LeanDecoder
from worker.sampling.sampler import sample


class LeanRunner:
    """Runs what ``worker.model.lean.spec`` covers."""

    def __init__(self, decoder: LeanDecoder) -> None:
        """Nothing else may run ``decoder``."""
        self.decoder = decoder

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self.decoder.num_blocks

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self.decoder.block_size

    @torch.inference_mode()
    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        """Compute the rows in one step; see ``worker.engine.runner.ModelRunner``."""
        if not rows:
            return []
        drawing = [index for index, row in enumerate(rows) if row.draw is not None]
        logits = torch.from_numpy(self.decoder.logits(rows, drawing))
        for line, index in enumerate(drawing):
            if rows[index].inject_nan:
                logits[line] = float("nan")
        results: list[RowResult] = [None] * len(rows)
        draws = [draw for row in rows if (draw := row.draw) is not None]
        for index, drawn in zip(drawing, sample(logits, draws), strict=True):
            results[index] = drawn
        return results
