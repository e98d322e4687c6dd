"""What a request changes about its logits before anything else looks at them: bias, penalties, what may not be drawn.

Few tokens of a row are touched. So the touched ones of all rows are gathered, changed together, and put back.
"""

from collections.abc import Sequence

import numpy as np
import torch

from worker.engine.runner import Draw

Bounds = np.ndarray[tuple[int], np.dtype[np.float32]]

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_BOUNDS_OF_BYTE = np.where(_BITS == 1, np.inf, -np.inf).astype(np.float32)
"""Of eight tokens, by the byte that says which of them may follow."""


def adjust(logits: torch.Tensor, draws: Sequence[Draw]) -> None:
    """Change ``logits`` [rows, vocabulary] in place, as each row's draw says.

    Where a grammar allows nothing, all of a row is -inf.
    """
    _add_bias(logits, draws)
    _lessen_seen(logits, draws)
    _forbid(logits, [(row, draw) for row, draw in enumerate(draws) if draw.constraint is None])
    constrained = [(row, draw) for row, draw in enumerate(draws) if draw.constraint is not None]
    _constrain(logits, constrained)


def is_adjusted(draw: Draw) -> bool:
    """Whether anything of its row may change."""
    return bool(
        draw.params.logit_bias
        or (draw.seen is not None and draw.seen.token_ids)
        or draw.forbidden
        or draw.constraint is not None
    )


def _add_bias(logits: torch.Tensor, draws: Sequence[Draw]) -> None:
    biased = [(row, draw.params.logit_bias) for row, draw in enumerate(draws)]
    biased = [(row, bias) for row, bias in biased if bias]
    if not biased:
        return
    index = _index(logits, [(row, np.fromiter(bias, np.int64)) for row, bias in biased])
    added = np.concatenate([np.fromiter(bias.values(), np.float32) for _, bias in biased])
    logits[index] += torch.from_numpy(added).to(logits.device)


def _lessen_seen(logits: torch.Tensor, draws: Sequence[Draw]) -> None:
    """Logits of tokens of prompt and output move towards less likely by a factor; those of the output's also by a sum."""
    found = [(row, draw.params, draw.seen) for row, draw in enumerate(draws) if draw.seen]
    penalized = [(row, params, seen) for row, params, seen in found if seen.token_ids]
    if not penalized:
        return
    index = _index(
        logits, [(row, np.frombuffer(seen.token_ids, np.int64)) for row, _, seen in penalized]
    )
    sizes = [len(seen.token_ids) for _, _, seen in penalized]
    factor = np.repeat([params.repetition_penalty for _, params, _ in penalized], sizes)
    counts = np.concatenate([np.frombuffer(seen.counts, np.float64) for _, _, seen in penalized])
    less = counts * np.repeat([params.frequency_penalty for _, params, _ in penalized], sizes)
    presence = np.repeat([params.presence_penalty for _, params, _ in penalized], sizes)
    less += presence * (counts > 0)
    values = logits[index].double().cpu().numpy()
    changed = np.where(values < 0, values * factor, values / factor) - less
    logits[index] = torch.from_numpy(changed).to(logits.device, logits.dtype)


def _constrain(logits: torch.Tensor, draws: Sequence[tuple[int, Draw]]) -> None:
    vocab = logits.shape[-1]
    if logits.device.type == "cpu":  # row by row and in place: a third of the other way's time
        for row, draw in draws:
            values = logits[row].numpy()
            np.minimum(values, _bounds(draw, vocab), out=values)
    elif draws:
        rows = [row for row, _ in draws]
        bounds = torch.from_numpy(np.stack([_bounds(draw, vocab) for _, draw in draws]))
        logits[rows] = torch.minimum(logits[rows], bounds.to(logits.device))


def _bounds(draw: Draw, vocab: int) -> Bounds:
    """-inf for what the row's grammar does not allow. An end is put off only as long as anything else may follow."""
    assert draw.constraint is not None
    bounds = np.full(vocab, -np.inf, np.float32)
    bits = np.frombuffer(draw.constraint.allowed(), np.uint8)[: -(-vocab // 8)]
    if draw.constraint.failure:  # which that question may have led to
        return bounds
    allowed = _BOUNDS_OF_BYTE.take(bits, axis=0).reshape(-1)[:vocab]
    if len(allowed) == vocab and not draw.forbidden:
        return allowed
    bounds[: len(allowed)] = allowed
    later = bounds.copy()
    later[list(draw.forbidden)] = -np.inf
    return bounds if later.max() == -np.inf else later


def _forbid(logits: torch.Tensor, draws: Sequence[tuple[int, Draw]]) -> None:
    forbidden = [
        (row, np.asarray(draw.forbidden, np.int64)) for row, draw in draws if draw.forbidden
    ]
    if forbidden:
        logits[_index(logits, forbidden)] = float("-inf")


def _index(
    logits: torch.Tensor, tokens: Sequence[tuple[int, np.ndarray[tuple[int], np.dtype[np.int64]]]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and tokens as an index into ``logits``; no pair may occur twice."""
    rows = np.repeat([row for row, _ in tokens], [len(ids) for _, ids in tokens])
    ids = np.concatenate([ids for _, ids in tokens])
    device = logits.device
    return torch.from_numpy(rows).to(device), torch.from_numpy(ids).to(device)
