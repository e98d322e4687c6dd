"""What is told of answers by themselves: of the sampled ones only, and without changing anything about them."""

import math

import pytest

from tests.support.engines import make_engine, make_job, run_all
from worker.engine.answer_quality import AnswerQuality, QualityTally, distinct, is_sampled


def judged(share: float, *jobs) -> list[AnswerQuality]:
    engine = make_engine(quality_sample=share)
    for job in jobs:
        engine.submit(job)
    found: list[AnswerQuality] = []
    while engine.has_work:
        report = engine.step()
        assert not any(output.logprobs for output in report.outputs), "nobody asked for them"
        found += report.qualities
    return found


def test_perplexity_is_of_the_tokens_that_were_drawn():
    """The inverse of their mean probability, as geometric mean."""
    tally = QualityTally()
    for token in range(10):
        tally.add(token % 5, math.log(0.25))
    (quality,) = tally.results()
    assert quality.perplexity == pytest.approx(4.0)
    assert quality.distinct == pytest.approx((0.5, 5 / 9, 5 / 8))


def test_short_answers_say_nothing():
    """And a token of no probability is a number all the same."""
    tally = QualityTally()
    assert tally.results() == []
    for token in range(8):
        tally.add(token, -math.inf)
    assert math.isfinite(tally.results()[0].perplexity)


def test_a_share_of_the_requests_is_sampled():
    """The same ones everywhere; none of them with 0, all with 1."""
    names = [f"request {n}" for n in range(2000)]
    assert 60 < sum(is_sampled(name, 0.05) for name in names) < 140
    assert not any(is_sampled(name, 0.0) for name in names)
    assert all(is_sampled(name, 1.0) for name in names)


def test_the_engine_tells_it_at_the_end_and_changes_no_token():
    """One figure for each answer that is long enough; nothing where nothing is sampled."""
    jobs = [make_job("a", "first"), make_job("b", "second"), make_job("c", "third", max_tokens=3)]
    assert len(judged(1.0, *jobs)) == 2
    assert judged(0.0, *jobs) == []
    plain, sampled = (run_all(make_engine(quality_sample=share), jobs) for share in (0.0, 1.0))
    assert plain.choices == sampled.choices


def test_distinct_counts_over_all_answers():
    """A pair that comes in two answers counts once."""
    assert distinct([[1, 2], [1, 2, 3]], 2) == pytest.approx(2 / 3)
    assert distinct([[1]], 2) == 0.0
