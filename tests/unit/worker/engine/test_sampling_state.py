"""What drawing depends on is complete behind every interruption: penalties, bias, forbidden tokens, position."""

import pytest

from common.domain import SamplingParams, StopConditions
from tests.support.engines import make_job, run_alone
from worker.engine.job import Job, Ticket
from worker.engine.seen_tokens import SeenTokens

PENALTIES = SamplingParams(
    seed=5,
    temperature=0.8,
    repetition_penalty=1.2,
    presence_penalty=0.5,
    frequency_penalty=0.25,
    logit_bias={101: -100.0, 97: 3.0},
)
STOP = StopConditions(max_tokens=60, min_tokens=55, stop_token_ids=(110,))


def job(generated: tuple[int, ...] = ()) -> Job:
    return Job(
        Ticket("r", 1, 1),
        tuple(b"abcabc"),
        PENALTIES,
        STOP,
        generated={0: generated} if generated else {},
    )


def test_penalties_have_an_effect() -> None:
    """They change the tokens, the bias keeps one out, and a stop token is not drawn too early."""
    outcome = run_alone(job())
    plain = run_alone(make_job(prompt="abcabc", max_tokens=60, temperature=0.8, seed=5))
    assert outcome.token_ids != plain.token_ids
    assert 101 in plain.token_ids
    assert 101 not in outcome.token_ids
    assert 110 not in outcome.token_ids[:54]


@pytest.mark.parametrize("cut", [1, 7, 30, 59])
def test_a_resumed_answer_goes_on_as_if_never_interrupted(cut: int) -> None:
    """Replaying the tokens restores everything."""
    whole = run_alone(job())
    resumed = run_alone(job(tuple(whole.token_ids[:cut])))
    assert whole.token_ids[:cut] + resumed.token_ids == whole.token_ids
    assert whole.full_text.endswith(resumed.full_text)


def test_tokens_are_counted_in_the_output_only() -> None:
    """A token of the prompt is seen, and counts from the first time that it is generated."""
    seen = SeenTokens([5, 5, 7])
    for token_id in (7, 9, 7):
        seen.add(token_id)
    assert dict(zip(seen.token_ids, seen.counts, strict=True)) == {5: 0, 7: 2, 9: 1}
