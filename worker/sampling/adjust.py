"""What a request changes about its logits before anything else looks at them: bias, penalties, what may not be drawn.

Few tokens of a row are touched. So the touched ones of all rows are gathered, changed together, and put back.
"""

from collections.abc import Sequence

import numpy as np
import torch

from worker.engine.runner import Draw


def adjust(logits: torch.Tensor, draws: Sequence[Draw]) -> None:
    """Change ``logits`` [rows, vocabulary] in place, as each row's draw says.

    Where a grammar allows nothing, all of a row is -inf.
    """
    _add_bias(logits, draws)
    _lessen_seen(logits, draws)
    constrained = [row for row, draw in enumerate(draws) if draw.constraint is not None]
    _forbid(logits, [(row, draw) for row, draw in enumerate(draws) if draw.constraint is None])
    if constrained:
        hidden = np.stack([_hidden(draws[row], logits.shape[-1]) for row in constrained])
        logits[constrained] = logits[constrained].masked_fill_(
            torch.from_numpy(hidden).to(logits.device), float("-inf")
        )


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


def _hidden(draw: Draw, vocab: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """What the row's grammar does not allow. An end is put off only as long as anything else may follow."""
    assert draw.constraint is not None
    hidden = np.ones(vocab, np.bool_)
    if draw.constraint.failure:
        return hidden
    bits = np.frombuffer(draw.constraint.allowed(), np.uint8)
    allowed = np.unpackbits(bits, bitorder="little")[:vocab]
    hidden[: len(allowed)] = allowed == 0
    later = hidden.copy()
    later[list(draw.forbidden)] = True
    return hidden if later.all() else later


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
