"""A worker's metrics from its step reports."""

from dataclasses import replace

import pytest

from common.metrics import Metrics
from tests.support.fake_clock import FakeClock
from worker.engine.report import Credit, StepReport
from worker.meters import WorkerMeters
from worker.session.engine_thread import EngineStatus

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
