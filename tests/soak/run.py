"""The soak's loop: random arrivals and disturbances around `engine.step()`; whatever comes out is compared."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import psutil

from common.domain import FinishReason
from common.logprobs import Logprobs
from tests.soak.bodies import LIMITS, Body
from tests.support.engines import TEXTS
from tests.support.fake_clock import FakeClock
from tests.support.knowing import Knowing
from worker.engine.block_store import PagedRunner
from worker.engine.costs import StepCosts
from worker.engine.engine import Engine
from worker.engine.job import Ticket
from worker.engine.lower_tier import LowerTier
from worker.engine.report import SequenceOutput, StepReport
from worker.engine.speculation import Speculation

MIB = 1 << 20
_GOOD = {FinishReason.STOP, FinishReason.LENGTH}


@dataclass
class _Open:
    """A request that has not ended: what is logged of it, as a scheduler would know."""

    body: Body
    attempt: int = 1
    tokens: dict[int, list[int]] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    scores: dict[int, list[Logprobs]] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)


class Soak:
    """One engine, its requests, and what it said of them."""

    def __init__(
        self,
        seed: int,
        bodies: list[Body],
        runner: PagedRunner,
        lower: LowerTier | None = None,
        *,
        window_tokens: int = 0,
    ) -> None:
        """Nothing runs yet. Copies and computation cost about the same, so that both ways of making room are taken."""
        self._rng = random.Random(seed)
        self._bodies = bodies
        self._clock = FakeClock()
        limits = replace(
            LIMITS, swap_blocks=30, park_s=60.0, cache_ttl_s=300.0, window_tokens=window_tokens
        )
        costs = StepCosts(token_s=1.0, context_tokens=100, block_copy_s=10.0)
        texts = [
            (*body.job.prompt_token_ids, *tokens)
            for body in bodies
            for tokens, _, _ in body.expected
        ]
        # A wrong guess may be what a row fails on, which must not hurt the right token before it.
        guesses = Speculation(Knowing(texts, 0.7))
        self.engine = Engine(runner, limits, TEXTS.text_of, self._clock, costs, lower, guesses)
        self._open: dict[str, _Open] = {}
        self._num_requests = 0
        self.counts: Counter[str] = Counter()

    def run(self, goes_on: Callable[[], bool]) -> None:
        """Disturb and step until told to stop, then let what is left end."""
        while goes_on():
            if self._rng.random() < 0.4 and len(self._open) < 24:
                self._arrive()
            if self._open and self._rng.random() < 0.12:
                self._disturb()
            self._step()
        while self.engine.has_work:
            self._step()
        assert not self._open, self._open
        assert self.engine.pool.num_used == 0

    def _arrive(self) -> None:
        self._num_requests += 1
        name = f"r{self._num_requests}"
        self._open[name] = _Open(self._rng.choice(self._bodies))
        self._submit(name)

    def _submit(self, name: str) -> None:
        one = self._open[name]
        deadline_s = self._clock() + self._rng.choice([30, 400, 400])
        job = replace(
            one.body.job,
            ticket=Ticket(name, 1, one.attempt),
            generated={index: tuple(tokens) for index, tokens in one.tokens.items()},
            finished_choices=frozenset(one.finished),
            deadline_s=deadline_s,
        )
        self.engine.submit(job)

    def _disturb(self) -> None:
        name = self._rng.choice([*self._open])
        attempt = self._open[name].attempt
        match self._rng.choice(
            ["cancel", "cancel twice", "late cancel", "return", "return", "new"]
        ):
            case "cancel":
                self.engine.cancel(name, attempt, FinishReason.CANCELLED)
            case "cancel twice":
                self.engine.cancel(name, attempt, FinishReason.CANCELLED)
                self.engine.cancel(name, attempt, FinishReason.DEADLINE)
            case "late cancel":
                self.engine.cancel(name, attempt + 1, FinishReason.CANCELLED)
                self.engine.cancel("nobody", 1, FinishReason.CANCELLED)
            case "return":
                self.engine.give_back(name, attempt, "preempted")
            case "new" if self._rng.random() < 0.1:
                self._new_session()

    def _new_session(self) -> None:
        """Everything is forgotten by the worker, and assigned again from what was logged."""
        self.engine.reset()
        self.counts["sessions"] += 1
        for name, one in self._open.items():
            one.attempt += 1
            self._submit(name)

    def _step(self) -> None:
        report = self.engine.step()
        self._clock.advance(1.0)
        self.engine.check_integrity()
        self._count(report)
        for output in report.outputs:
            self._take(output)
        for returned in report.returned:
            self.counts["returned"] += 1
            self._open[returned.ticket.request_id].attempt += 1
            self._submit(returned.ticket.request_id)

    def _count(self, report: StepReport) -> None:
        self.counts["steps"] += 1
        self.counts["preempted"] += report.num_preempted
        self.counts["swapped"] += report.swapped_blocks
        self.counts["recomputed"] += report.recomputed_tokens
        self.counts["hits"] += report.cache.hit_tokens
        self.counts["evicted"] += len(report.cache.evicted)
        self.counts["loaded"] += report.cache.loaded_blocks
        self.counts["guessed"] += report.guessed_tokens
        self.counts["guessed right"] += report.accepted_tokens
        self.counts["tokens"] += sum(len(output.token_ids) for output in report.outputs)

    def _take(self, output: SequenceOutput) -> None:
        name, index = output.ticket.request_id, output.index
        one = self._open[name]
        assert output.ticket.attempt == one.attempt
        assert index not in one.finished
        one.tokens.setdefault(index, []).extend(output.token_ids)
        one.texts[index] = one.texts.get(index, "") + output.text
        one.scores.setdefault(index, []).extend(output.logprobs)
        if output.prompt_logprobs:
            self.counts["scored prompts"] += 1
            assert one.body.is_doomed or output.prompt_logprobs == one.body.prompt
        if output.finish is None:
            return
        one.finished.add(index)
        one.texts[index] += output.finish.text
        self.counts[output.finish.reason] += 1
        self._compare(one, index, output.finish.reason)
        if len(one.finished) == one.body.job.sampling.n:
            del self._open[name]

    def _compare(self, one: _Open, index: int, reason: FinishReason) -> None:
        if one.body.is_doomed:
            assert reason not in _GOOD, "a doomed request cannot end well"
            return
        assert reason is not FinishReason.ERROR, "a sound request failed"
        tokens, text, scores = one.body.expected[index]
        got = tuple(one.tokens.get(index, ()))
        got_scores = tuple(one.scores.get(index, ()))
        if reason in _GOOD:
            assert (got, one.texts[index], got_scores) == (tokens, text, scores), (one.body, index)
            self.counts["grammars"] += one.body.job.grammar is not None
            self.counts["scored"] += bool(scores)
        else:
            assert got == tokens[: len(got)], (one.body, index)
            assert got_scores == scores[: len(got_scores)], (one.body, index)


def resident_mib() -> float:
    """Memory of this process."""
    return psutil.Process().memory_info().rss / MIB
