"""The simulated runner notices what a real cache would suffer from."""

import pytest

from common.domain import SamplingParams
from worker.engine.runner import Draw, Drawn, Row
from worker.simulated.card import simulated_card
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings
from worker.simulated.vocabulary import VOCAB_SIZE

SETTINGS = SimulatedSettings(kv_blocks=8, block_size=4)
TOKENS = list(b"abcdefghij")


def draw(position: int, *, seed: int = 1, temperature: float = 0.0, choice: int = 0) -> Draw:
    return Draw(SamplingParams(seed=seed, temperature=temperature), choice, position)


def compute(runner: SimulatedRunner, blocks: list[int], drawing: Draw | None = None) -> object:
    (result,) = runner.run([Row(TOKENS, 0, blocks, drawing or draw(len(TOKENS)))])
    return result


def test_which_blocks_does_not_matter_but_what_is_in_them() -> None:
    """Any free blocks give the same token; an overwritten one is found out."""
    runner = SimulatedRunner(SETTINGS)
    assert compute(runner, [0, 1, 2]) == compute(runner, [7, 3, 5])
    decode = Row([ord("k")], 10, [7, 3, 5], draw(11))
    (undisturbed,) = runner.run([decode])
    outcomes = set()
    for block in (7, 3, 5):
        compute(runner, [7, 3, 5])
        runner.run([Row(list(b"!?!?"), 0, [block], None)])
        outcomes.add(runner.run([decode])[0])
    assert outcomes != {undisturbed}


@pytest.mark.parametrize("changes", [{"seed": 2}, {"choice": 1}])
def test_seed_and_choice_matter_only_above_temperature_zero(changes: dict[str, int]) -> None:
    """Greedy tokens depend on nothing but the known tokens."""
    runner = SimulatedRunner(SETTINGS)
    greedy = {compute(runner, [0, 1, 2], draw(10, **c)) for c in ({}, changes)}
    assert len(greedy) == 1
    several = [
        {compute(runner, [0, 1, 2], draw(p, temperature=1.0, **c)) for p in range(20)}
        for c in ({}, changes)
    ]
    assert several[0] != several[1]


def test_time_is_that_of_the_settings() -> None:
    """A step takes its time, prompts take theirs on top, and without either nothing sleeps."""
    slept: list[float] = []
    timed = SimulatedSettings(kv_blocks=8, block_size=4, step_ms=20, prefill_tokens_per_s=100)
    compute(SimulatedRunner(timed, sleep=slept.append), [0, 1, 2])
    compute(SimulatedRunner(SETTINGS, sleep=slept.append), [0, 1, 2])
    assert slept == [pytest.approx(0.12)]


def test_card_is_consistent() -> None:
    """Every token lies in the vocabulary, and what changes tokens changes the revision."""
    card = simulated_card(SETTINGS)
    assert card.vocab_size == VOCAB_SIZE
    assert card.kv_capacity_tokens == 32
    assert max(card.eos_token_ids) < VOCAB_SIZE
    other = simulated_card(SimulatedSettings(eos_every=5))
    assert other.fingerprint != card.fingerprint
    assert isinstance(compute(SimulatedRunner(SETTINGS), [0, 1, 2]), Drawn)
