"""Guesses through the models' own steps: the same tokens, and the distribution that the logits say."""

from collections.abc import Sequence

import torch

from common.domain import SamplingParams
from worker.engine.runner import Checked, Draw, Drawn, Row, RowResult
from worker.model.scoring import run_rows
from worker.sampling.sampler import draw_by_torch

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5])
NUM_TEXTS = 4000


def logits_after(rows: Sequence[Row], places: Sequence[int]) -> torch.Tensor:
    """A model whose next token depends on the last one alone: its logits are turned by as many places."""
    tokens = [token for row in rows for token in row.token_ids]
    return torch.stack([LOGITS.roll(tokens[place]) for place in places])


def draw(seed: int, position: int, temperature: float = 1.0) -> Draw:
    return Draw(SamplingParams(seed=seed, temperature=temperature), 0, position)


def steps(
    last: int, guesses: list[int], seeds: Sequence[int], temperature: float = 1.0
) -> list[list[int]]:
    """What one step brings for rows that differ in their seeds."""
    rows = [
        Row(
            [last],
            0,
            [0],
            draw(seed, 1, temperature),
            guesses=guesses,
            later_draws=[draw(seed, 2 + i, temperature) for i in range(len(guesses))],
        )
        for seed in seeds
    ]
    other = Row([3], 0, [1], draw(0, 1))
    before, *results, behind = run_rows([other, *rows, other], logits_after, draw_by_torch)
    assert before == behind
    return [[one.token_id for one in _checked(result).drawn] for result in results]


def _checked(result: RowResult) -> Checked:
    assert isinstance(result, Checked)
    return result


def one_by_one(last: int, count: int, seed: int) -> list[int]:
    out = []
    for i in range(count):
        (found,) = run_rows([Row([last], i, [0], draw(seed, 1 + i))], logits_after, draw_by_torch)
        assert isinstance(found, Drawn)
        last = found.token_id
        out.append(last)
    return out


def test_the_same_tokens_as_one_by_one() -> None:
    """What counts of a step with guesses is the beginning of what single steps draw."""
    for seed in range(50):
        expected = one_by_one(0, 4, seed)
        assert steps(0, expected[:3], [seed]) == [expected]
        wrong = [expected[0], (expected[1] + 1) % 5, expected[2]]
        assert steps(0, wrong, [seed]) == [expected[:2]]
    assert steps(0, [0, 0], [7], temperature=0.0) == [[0, 0, 0]]


def test_distribution_and_acceptance() -> None:
    """Over many seeds: tokens behind right and wrong guesses are spread as the logits say, and a guess is right as often
    as its token is likely.
    """
    probabilities = LOGITS.softmax(-1)
    for guess in (0, 3):
        firsts, seconds, right = torch.zeros(5), torch.zeros(5), 0
        for tokens in steps(0, [guess], range(NUM_TEXTS)):
            firsts[tokens[0]] += 1
            if len(tokens) == 2:
                right += 1
                seconds[(tokens[1] - guess) % 5] += 1
        assert (
            _chi_square(firsts, probabilities) < 18.5
        )  # one in a thousand, for four degrees of freedom
        assert _chi_square(seconds, probabilities) < 18.5
        assert abs(right / NUM_TEXTS - probabilities[guess]) < 0.03


def test_a_draft_that_draws_with_the_same_numbers_bends_nothing() -> None:
    """Its guess depends on the number that the model draws with: the tokens are still spread as the model's logits say,
    and it is right more often than a draw of its own would be.
    """
    draft_logits = LOGITS + torch.tensor([0.0, 0.3, -0.2, 0.2, -0.3])
    draws = [draw(seed, 1) for seed in range(NUM_TEXTS)]
    guesses = draw_by_torch(draft_logits.repeat(NUM_TEXTS, 1), draws)
    firsts, seconds, right = torch.zeros(5), torch.zeros(5), 0
    for guess in range(5):
        seeds = [seed for seed, guessed in enumerate(guesses) if guessed == guess]
        for first, *more in steps(0, [guess], seeds):
            firsts[first] += 1
            right += len(more)
            for second in more:
                seconds[(second - first) % 5] += 1
    probabilities = LOGITS.softmax(-1)
    assert _chi_square(firsts, probabilities) < 18.5
    assert _chi_square(seconds, probabilities) < 18.5
    independent = float((probabilities * draft_logits.softmax(-1)).sum())
    assert right / NUM_TEXTS > 0.8 > 1.5 * independent


def _chi_square(counts: torch.Tensor, probabilities: torch.Tensor) -> float:
    expected = counts.sum() * probabilities
    return float(((counts - expected).square() / expected).sum())
