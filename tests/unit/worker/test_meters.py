"""A worker's metrics from its step reports."""

from dataclasses import replace

import pytest

from common.metrics import Metrics
from tests.support.fake_clock import FakeClock
from worker.engine.answer_quality import AnswerQuality
from worker.engine.draft import DraftLimits, DraftProposer
from worker.engine.report import Credit, StepReport
from worker.engine.speculation import Speculation
from worker.engine.step_times import StepTimes
from worker.meters import WorkerMeters
from worker.session.engine_thread import EngineStatus
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings

CREDIT = Credit(1, 1, 0)
BUSY = EngineStatus(CREDIT, 3, 0, 5, progress_s=0.0)


def report(decode_seqs: int, prefill_tokens: int = 0) -> StepReport:
    return StepReport(1, (), (), CREDIT, 0.25, prefill_tokens, decode_seqs)


def test_time_between_tokens_is_from_step_to_step():
    """Each decoding sequence counts once a step, with what lay between the steps; an idle time is nobody's."""
    metrics, clock = Metrics(), FakeClock()
    status = [BUSY]
    meters = WorkerMeters(
        metrics, model="m", num_blocks=10, read_status=lambda: status[0], clock=clock
    )
    meters.observe(report(0, prefill_tokens=7))
    clock.advance(0.5)
    meters.observe(report(3))
    clock.advance(2.0)
    status[0] = replace(BUSY, progress_s=None)
    meters.observe(report(2))
    clock.advance(1000.0)
    meters.observe(report(1))
    lines = dict(line.rsplit(" ", 1) for line in metrics.scrape()[0].decode().splitlines())
    metrics.shutdown(1)
    name = 'headrace_inter_token_latency_seconds_{}{{model_name="m"}}'
    assert float(lines[name.format("count")]) == 3 + 2 + 1
    assert float(lines[name.format("sum")]) == pytest.approx(3 * 0.5 + 2 * 2.0 + 0.25)


def test_answers_are_counted_once_by_length_of_the_ngram():
    """What a step tells of ended answers goes into histograms of the model."""
    metrics = Metrics()
    meters = WorkerMeters(metrics, model="m", num_blocks=10, read_status=lambda: BUSY)
    told = (AnswerQuality(3.5, (0.5, 0.75, 1.0)), AnswerQuality(4.5, (0.5, 1.0, 1.0)))
    meters.observe(replace(report(1), qualities=told))
    lines = dict(line.rsplit(" ", 1) for line in metrics.scrape()[0].decode().splitlines())
    metrics.shutdown(1)
    assert float(lines['headrace_generated_perplexity_sum{model_name="m"}']) == 8.0
    name = 'headrace_generated_distinct_ratio_{}{{model_name="m",n="{}"}}'
    assert [float(lines[name.format("sum", n)]) for n in (1, 2, 3)] == [1.0, 1.75, 2.0]
    assert float(lines[name.format("count", 2)]) == 2


def test_guesses_are_counted_by_their_kind_beside_the_draft_models_memory():
    """How many, how many of them were right, and the recent share of these; silent where nothing guesses."""
    draft = SimulatedRunner(SimulatedSettings(kv_blocks=12))
    proposer = DraftProposer(draft, DraftLimits(1, 1, 1), StepTimes.flat())
    for speculation in (None, Speculation(proposer)):
        metrics = Metrics()
        status = replace(BUSY, draft_blocks_used=5)
        meters = WorkerMeters(
            metrics,
            model="m",
            num_blocks=10,
            read_status=lambda status=status: status,
            speculation=speculation,
        )
        meters.observe(replace(report(1), guessed_tokens=4, accepted_tokens=3))
        meters.observe(replace(report(1), guessed_tokens=1024, accepted_tokens=512))
        text = metrics.scrape()[0].decode()
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines())
        metrics.shutdown(1)
        assert ("headrace_guess" in text) == (speculation is not None)
    labels = '{kind="draft",model_name="m"}'
    assert float(lines[f"headrace_guessed_tokens_total{labels}"]) == 1028
    assert float(lines[f"headrace_accepted_tokens_total{labels}"]) == 515
    assert float(lines[f"headrace_guess_acceptance_ratio{labels}"]) == 0.5
    assert float(lines['headrace_draft_kv_blocks_used{model_name="m"}']) == 5
    assert float(lines['headrace_draft_kv_blocks{model_name="m"}']) == 12
