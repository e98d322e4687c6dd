"""The worker's metrics: gauges that are read when somebody looks, counters fed once a step."""

from collections.abc import Callable, Iterable

from common.clock import monotonic_s
from common.domain import Clock
from common.metrics import Metrics, model_labels
from common.speculation_metrics import SpeculationMetrics
from common.tallies import Labels
from worker.engine.answer_quality import NGRAMS, AnswerQuality
from worker.engine.report import CacheReport, StepReport
from worker.engine.speculation import Speculation
from worker.session.engine_thread import EngineStatus

_RECENT_GUESSES = 1024


class GuessMeters:
    """What becomes of guessed tokens."""

    def __init__(self, metrics: SpeculationMetrics, labels: Labels, kind: str) -> None:
        """Counters begin at 0; the share that was right is told once something was guessed."""
        self._metrics = metrics
        self._labels = {**labels, "kind": kind}
        self._share_right: float | None = None
        for counter in (metrics.guessed_tokens, metrics.accepted_tokens):
            counter.add(0, self._labels)
        metrics.guess_acceptance.watch(self._read_share)

    def observe(self, num_guessed: int, num_right: int) -> None:
        """Count what a step brought."""
        self._metrics.guessed_tokens.add(num_guessed, self._labels)
        self._metrics.accepted_tokens.add(num_right, self._labels)
        share = num_right / num_guessed
        before = share if self._share_right is None else self._share_right
        self._share_right = before + (share - before) * min(1.0, num_guessed / _RECENT_GUESSES)

    def _read_share(self) -> Iterable["Sample"]:
        return [] if self._share_right is None else [(self._share_right, self._labels)]


class WorkerMeters:
    """What one worker reports of its engine."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        model: str,
        num_blocks: int,
        read_status: Callable[[], EngineStatus],
        clock: Clock = monotonic_s,
        speculation: Speculation | None = None,
    ) -> None:
        """Gauges watch ``read_status`` from now on; ``speculation`` is asked only for what never changes."""
        self._read_status = read_status
        self._clock = clock
        self._last_step_s: float | None = None
        self._metrics = metrics
        self._labels = model_labels(model)

        def watch(value: Callable[[EngineStatus], float]) -> Callable[[], Iterable[Sample]]:
            return lambda: [(value(read_status()), self._labels)]

        metrics.num_requests_running.watch(watch(lambda status: status.num_running))
        metrics.num_requests_waiting.watch(watch(lambda status: status.num_waiting))
        metrics.step_age.watch(watch(lambda status: status.step_age_s(clock())))
        metrics.kv_cache_usage.watch(watch(lambda status: status.blocks_used / num_blocks))
        metrics.kv_blocks_used.watch(watch(lambda status: status.blocks_used))
        metrics.kv_blocks_total.watch(watch(lambda _: num_blocks))
        # What appears with its first event shows no increase by it.
        for counter in (
            metrics.prompt_tokens,
            metrics.generation_tokens,
            metrics.num_preemptions,
            metrics.recomputed_tokens,
            metrics.prefix_cache_queries,
            metrics.prefix_cache_hits,
            metrics.session_reconnects,
        ):
            counter.add(0, dict(self._labels))
        self._guesses = (
            None
            if speculation is None
            else GuessMeters(metrics.speculation, self._labels, speculation.kind)
        )
        if speculation is not None and speculation.pool is not None:
            num_draft_blocks = speculation.pool.num_blocks
            guesses = metrics.speculation
            guesses.draft_blocks_used.watch(watch(lambda status: status.draft_blocks_used))
            guesses.draft_blocks_total.watch(watch(lambda _: num_draft_blocks))

    def observe(self, report: StepReport) -> None:
        """Count what a step brought."""
        metrics, labels = self._metrics, dict(self._labels)
        num_generated = 0
        for output in report.outputs:
            num_generated += len(output.token_ids)
            if output.finish is not None and output.finish.failure is not None:
                reason = output.finish.failure.reason
                metrics.row_failures.add(1, labels | {"reason": reason.lower()})
        if num_generated:
            metrics.generation_tokens.add(num_generated, labels)
        if report.num_preempted:
            metrics.num_preemptions.add(report.num_preempted, labels)
            metrics.swapped_blocks.add(report.swapped_blocks, labels)
        if report.recomputed_tokens:
            metrics.recomputed_tokens.add(report.recomputed_tokens, labels)
        self._observe_answers(report.qualities)
        if self._guesses is not None and report.guessed_tokens:
            self._guesses.observe(report.guessed_tokens, report.accepted_tokens)
        self._observe_cache(report.cache)
        num_tokens = report.prefill_tokens + report.decode_seqs
        if num_tokens:
            metrics.step_time.record(report.duration_s, labels)
            metrics.step_tokens.record(num_tokens, labels)
        if report.decode_seqs:
            metrics.batch_size.record(report.decode_seqs, labels)
        if num_tokens:
            self._observe_gap(report)

    def _observe_answers(self, qualities: Iterable[AnswerQuality]) -> None:
        for quality in qualities:
            self._metrics.generated_perplexity.record(quality.perplexity, dict(self._labels))
            for n, share in zip(NGRAMS, quality.distinct, strict=True):
                labels = {**self._labels, "n": str(n)}
                self._metrics.generated_distinct.record(share, labels)

    def _observe_gap(self, report: StepReport) -> None:
        """Whoever decoded in this step had its last token from the step before, whatever lay between the two."""
        now_s, last_s = self._clock(), self._last_step_s
        if report.decode_seqs:
            gap_s = report.duration_s if last_s is None else now_s - last_s
            self._metrics.token_gaps.record(gap_s, self._labels, report.decode_seqs)
        self._last_step_s = None if self._read_status().progress_s is None else now_s

    def _observe_cache(self, cache: CacheReport) -> None:
        metrics, labels = self._metrics, dict(self._labels)
        if cache.queried_tokens:
            metrics.prefix_cache_queries.add(cache.queried_tokens, labels)
            metrics.prefix_cache_hits.add(cache.hit_tokens, labels)
        if cache.loaded_blocks:
            metrics.disk_cache_hits.add(cache.loaded_blocks, labels)
        if cache.lifetimes_s:
            metrics.prefix_cache_evictions.add(len(cache.lifetimes_s), labels)
        for lifetime_s in cache.lifetimes_s:
            metrics.kv_block_lifetime.record(lifetime_s, labels)

    def count_prompt(self, num_tokens: int) -> None:
        """A prompt was taken up."""
        self._metrics.prompt_tokens.add(num_tokens, dict(self._labels))

    def count_reconnect(self) -> None:
        """A session is over, and another one is needed."""
        self._metrics.session_reconnects.add(1, dict(self._labels))


Sample = tuple[float, Labels]
