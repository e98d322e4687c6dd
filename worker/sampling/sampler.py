"""From logits to tokens, for a whole batch at once, without rows seeing one another.

logits [rows, vocabulary]
  1 check     a row with NaN or infinity fails here, alone
  2 adjust    (penalties, logit bias and grammar masks belong here, before anything looks at the values)
  3 report    (log-probabilities belong here)
  4 greedy    rows with temperature 0 take the largest
  5 filter    temperature, top-k, top-p
  6 draw      one uniform number a row, by (seed, choice, position)
"""

from collections.abc import Sequence

import torch

from worker.engine.runner import Draw, Drawn, RowFailed
from worker.sampling.filters import keep_top_k, keep_top_p, scale
from worker.sampling.uniform import uniforms

NUMERIC = "NUMERIC"


def sample(logits: torch.Tensor, draws: Sequence[Draw]) -> list[Drawn | RowFailed]:
    """A token for each row of ``logits`` [rows, vocabulary], as its ``draws`` entry asks."""
    assert logits.shape[0] == len(draws)
    if not draws:
        return []
    logits = logits.float()
    sound = _finite(logits)
    if not bool(sound.all()):
        # What a broken row holds must not matter: it goes on as zeros and its token is thrown away.
        logits = torch.where(sound.unsqueeze(-1), logits, 0.0)
    tokens = logits.argmax(dim=-1)
    random = [i for i, draw in enumerate(draws) if draw.params.temperature > 0]
    if random:
        index = torch.tensor(random, device=logits.device)
        tokens[index] = _draw(logits[index], [draws[i] for i in random])
    return [
        Drawn(token) if ok else RowFailed(NUMERIC, "the model's output is not a number")
        for token, ok in zip(tokens.tolist(), sound.tolist(), strict=True)
    ]


def _finite(logits: torch.Tensor) -> torch.Tensor:
    """Rows without NaN or infinity; NaN spreads through minimum and maximum."""
    low, high = torch.aminmax(logits, dim=-1)
    return torch.isfinite(low) & torch.isfinite(high)


def _draw(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    device = logits.device
    params = [draw.params for draw in draws]
    temperature = torch.tensor([p.temperature for p in params], dtype=torch.float64, device=device)
    top_k = torch.tensor([p.top_k for p in params], device=device)
    top_p = torch.tensor([p.top_p for p in params], dtype=torch.float64, device=device)
    scaled = keep_top_k(scale(logits, temperature), top_k)
    probs = keep_top_p(torch.softmax(scaled, dim=-1), top_p)
    numbers = uniforms(
        [p.seed for p in params], [d.choice for d in draws], [d.position for d in draws]
    )
    return _inverse(probs, torch.from_numpy(numbers).to(device))


def _inverse(probs: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """The token at which each row's cumulated probability passes its number.

    Cumulated in the vocabulary's order and in float64: no sort, and a token of probability 0 cannot be drawn.
    """
    mass = probs.cumsum(dim=-1, dtype=torch.float64)
    target = numbers.unsqueeze(-1) * mass[:, -1:]
    tokens = torch.searchsorted(mass, target, right=True).squeeze(-1)
    # A number just below 1 times the mass may round up to the mass: the last possible token is meant.
    last = torch.searchsorted(mass, mass[:, -1:].contiguous()).squeeze(-1)
    return torch.minimum(tokens, last)
