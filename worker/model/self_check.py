"""Compares the paged model with itself under its own attention, before it serves anyone.

Architectures differ in ways that no flag announces: soft caps, sinks, shared keys, masks of their own, layers that
carry a state along the batch. Whatever it is, a model that gives other numbers when its rows are packed,
chunked and paged is refused here instead of answering wrongly.
"""

import random

import torch

from worker.engine.runner import Row
from worker.kv.cache import LayerShape, PagedCache
from worker.model.decoder import Decoder
from worker.model.errors import ModelRefused
from worker.model.layout import StepLayout

_BLOCK_SIZE = 4
_LONGEST = 320  # windows beyond this are taken on trust

_TOLERANCE = {torch.float32: 2e-3, torch.float16: 5e-2, torch.bfloat16: 1e-1}
"""Relative to the largest logit; far above rounding, far below what a wrong mask does."""


def self_check(decoder: Decoder, layers: list[LayerShape], *, context_tokens: int) -> None:
    """Run two sequences side by side in uneven chunks and compare their last logits with the reference.

    Raises:
        ModelRefused: they differ.
    """
    windows = [layer.window + 8 for layer in layers if layer.window]
    length = min(max([20, *(w for w in windows if w <= _LONGEST)]), context_tokens)
    numbers = random.Random(0)  # noqa: S311  # not for secrets
    vocab_size = decoder.model.config.vocab_size
    texts = [[numbers.randrange(vocab_size) for _ in range(n)] for n in (length, length - 3)]
    found = _paged(decoder, layers, texts)
    for text, logits in zip(texts, found, strict=True):
        expected = decoder.reference(text)[-1].float()
        if not torch.isfinite(expected).all():
            continue  # a model that overflows fails request by request, by the sampler's check
        error = (logits.float() - expected).abs().max() / expected.abs().max()
        if not error <= _TOLERANCE[decoder.dtype]:
            raise ModelRefused(
                f"{type(decoder.model).__name__}: on the paged cache its output differs from its own"
                f" (by {error:.1%}), so its attention does more than the interface says"
            )


def _paged(
    decoder: Decoder, layers: list[LayerShape], texts: list[list[int]]
) -> list[torch.Tensor]:
    """Last logits of each text, computed in three steps: two chunks, then one token."""
    blocks = -(-len(texts[0]) // _BLOCK_SIZE)
    cache = PagedCache(
        layers,
        num_blocks=blocks * len(texts),
        block_size=_BLOCK_SIZE,
        dtype=decoder.dtype,
    )
    tables = [list(range(i, blocks * len(texts), len(texts))) for i in range(len(texts))]
    logits = torch.empty(0)
    for cut in (0.0, 0.4), (0.4, -1.0), (-1.0, 1.0):
        rows = []
        for text, table in zip(texts, tables, strict=True):
            first, last = (len(text) - 1 if c < 0 else int(c * len(text)) for c in cut)
            rows.append(Row(text[first:last], first, table, None))
        layout = StepLayout(rows, cache, decoder.dtype, decoder.device)
        logits = decoder.logits(layout, range(len(rows)))
    return list(logits)
