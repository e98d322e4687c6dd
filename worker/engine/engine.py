"""Continuous batching: sequences join and leave at every step.

``step()`` is the table of contents. Between steps whoever owns the engine submits, cancels and gives back; the engine
is synchronous, has no thread of its own, and tells everything that came of it in the next step's report.

Blocks. A group is admitted when the pool covers all its known tokens, and grows block by block while it decodes. When
the pool is empty, the youngest group is given back to the scheduler, which resumes it later from its logged tokens. The
oldest is never given back for another's sake, and no job runs that could not finish alone, so something always ends.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from common.domain import Clock, FinishReason
from common.logprobs import Logprobs
from common.records import Failure
from worker.engine.budget import StepBudget
from worker.engine.containment import run_contained
from worker.engine.costs import StepCosts
from worker.engine.ending import EndRule
from worker.engine.group import SequenceGroup
from worker.engine.job import Job, Ticket
from worker.engine.limits import EngineLimits
from worker.engine.plan import Share, plan_shares
from worker.engine.report import Credit, Returned, SequenceOutput, StepReport
from worker.engine.roster import Roster
from worker.engine.runner import Drawn, ModelRunner, RowFailed, RowResult, Scored
from worker.engine.sequence import Sequence
from worker.engine.text_stream import TextStream
from worker.kv.block_table import BlockTable
from worker.kv.blocks import BlockPool

DOES_NOT_FIT = "DOES_NOT_FIT"
PREEMPTED = "preempted"

NewText = Callable[[Job], TextStream]
"""Makes the text of a sequence that continues the job's prompt."""


class Engine:
    """All sequences of one worker. One owner calls it; nothing here waits but the runner."""

    def __init__(
        self,
        runner: ModelRunner,
        limits: EngineLimits,
        new_text: NewText,
        clock: Clock,
        costs: StepCosts | None = None,
    ) -> None:
        """An idle engine over an empty cache; ``costs`` are what was measured of ``runner``."""
        self.pool = BlockPool(runner.num_blocks, runner.block_size)
        self._runner = runner
        self._limits = limits
        self._new_text = new_text
        self._clock = clock
        self._costs = costs or StepCosts()
        self._roster = Roster()
        self._returned: list[Returned] = []
        self._num_steps = 0

    def step(self) -> StepReport:
        """One turn of the loop: who joins, what is computed, the computation, what came of it."""
        began_s = self._admit()
        shares = self._plan()
        results = self._run(shares)
        return self._settle(shares, results, began_s)

    @property
    def has_work(self) -> bool:
        """Whether a step would do or tell anything."""
        return bool(self._roster.waiting or self._roster.running or self._returned)

    @property
    def num_running(self) -> int:
        """Sequences that run."""
        return sum(1 for _ in self._roster.running_sequences)

    @property
    def num_waiting(self) -> int:
        """Sequences that wait for slots or blocks."""
        return sum(len(group.sequences) for group in self._roster.waiting)

    @property
    def credit(self) -> Credit:
        """What it can take now; everything submitted is taken off already."""
        sequences = list(self._roster.sequences)
        promised = sum(group.missing_blocks for group in self._roster.waiting)
        return Credit(
            free_seqs=max(0, self._limits.max_seqs - len(sequences)),
            free_blocks=max(0, self.pool.num_free - promised),
            pending_prefill_tokens=sum(
                min(s.num_pending, self._limits.max_share_tokens)
                for s in sequences
                if not s.is_decoding
            ),
        )

    # What the owner may ask for between steps.

    def submit(self, job: Job) -> None:
        """Take a job; it replaces an earlier dispatch of the same request."""
        earlier = self._roster.find(job.ticket.request_id)
        if earlier is not None:
            self._roster.forget(earlier)
        group = SequenceGroup(job, [self._new_sequence(job, index) for index in job.choices])
        self._roster.waiting.append(group)
        if not self._limits.fits_alone(group, self.pool):
            _end(
                group,
                FinishReason.ERROR,
                Failure("INTERNAL", "the request can never fit this worker", DOES_NOT_FIT),
            )

    def refuse(self, ticket: Ticket, reason: str) -> None:
        """Send a job back that was not taken."""
        self._returned.append(Returned(ticket, reason))

    def cancel(self, request_id: str, attempt: int, reason: FinishReason) -> None:
        """End a request; nothing happens when it has ended or is of another attempt."""
        group = self._roster.find(request_id, attempt)
        if group is not None:
            _end(group, reason)

    def give_back(self, request_id: str, attempt: int, reason: str) -> None:
        """Return a request to the queue; nothing happens when it has ended or is of another attempt."""
        group = self._roster.find(request_id, attempt)
        if group is not None:
            self._give_back(group, reason)

    def give_back_all(self, reason: str) -> None:
        """Return everything to the queue."""
        for group in self._roster.groups:
            self._give_back(group, reason)

    def reset(self) -> None:
        """Forget everything and tell nothing."""
        for group in self._roster.groups:
            self._roster.forget(group)
        self._returned.clear()

    def check_integrity(self) -> None:
        """Assert that the running sequences hold exactly the blocks that are not free."""
        assert all(s.num_computed <= s.blocks.capacity_tokens for s in self._roster.sequences)
        assert not any(s.blocks.block_ids for g in self._roster.waiting for s in g.sequences)
        self.pool.check_integrity(s.blocks.block_ids for s in self._roster.sequences)

    # The four parts of a step.

    def _admit(self) -> float:
        """End what is late, make room for what runs, then let groups join while they fit. The time."""
        now_s = self._clock()
        for group in self._roster.groups:
            if group.job.deadline_s is not None and group.job.deadline_s <= now_s:
                _end(group, FinishReason.DEADLINE)
        self._make_room()
        while (joining := self._roster.next_fitting(self._fits_now)) is not None:
            self._roster.join(joining)
            allocated = joining.try_grow()
            assert allocated
        return now_s

    def _plan(self) -> list[Share]:
        return plan_shares(
            self._roster.running_sequences,
            StepBudget(self._limits.max_batch_tokens),
            self._costs,
            max_share=self._limits.max_share_tokens,
        )

    def _run(self, shares: list[Share]) -> list[RowResult]:
        if not shares:
            return []
        self._num_steps += 1
        return run_contained(self._runner, [share.row for share in shares])

    def _settle(self, shares: list[Share], results: list[RowResult], began_s: float) -> StepReport:
        """Take in what was computed, part with what ended, and tell it."""
        decode_seqs = sum(share.sequence.is_decoding for share in shares)
        drawn: dict[Sequence, _Told] = {}
        for share, result in zip(shares, results, strict=True):
            sequence = share.sequence
            if isinstance(result, RowFailed):
                failure = Failure("INTERNAL", result.message, result.reason)
                sequence.end(FinishReason.ERROR, failure)
                continue
            if isinstance(result, Scored):
                sequence.scored(result.scores)
                result = result.drawn
            sequence.computed(share.num_tokens)
            if isinstance(result, Drawn):
                drawn[sequence] = _told(sequence, result)
        outputs = tuple(self._part(drawn))
        returned, self._returned = tuple(self._returned), []
        return StepReport(
            step=self._num_steps,
            outputs=outputs,
            returned=returned,
            credit=self.credit,
            duration_s=self._clock() - began_s,
            prefill_tokens=sum(share.num_tokens for share in shares) - decode_seqs,
            decode_seqs=decode_seqs,
        )

    # Their smaller steps.

    def _fits_now(self, group: SequenceGroup) -> bool:
        return self._limits.fits_now(group, self.num_running, self.pool)

    def _make_room(self) -> None:
        """Cover every known token of what runs; where blocks are missing, the youngest goes."""
        for sequence in self._roster.sequences:
            if sequence.finish is not None:
                sequence.blocks.release()
        for group in list(self._roster.running):
            while group in self._roster.running and not group.try_grow():
                youngest = self._roster.youngest_live()
                assert youngest is not None
                self._give_back(youngest, PREEMPTED)

    def _part(self, drawn: "dict[Sequence, _Told]") -> Iterator[SequenceOutput]:
        """The outputs of all groups; ended sequences leave, and their blocks are free."""
        for group in self._roster.groups:
            for sequence in list(group.sequences):
                if sequence in drawn or sequence.finish is not None:
                    yield _output(group, sequence, drawn.get(sequence))
            for sequence in group.sequences:
                if sequence.finish is not None:
                    sequence.blocks.release()
            group.sequences = group.live
            if not group.sequences:
                self._roster.forget(group)

    def _new_sequence(self, job: Job, index: int) -> Sequence:
        left_tokens = self._limits.context_tokens - len(job.prompt_token_ids)
        max_generated = min(job.stop.max_tokens, left_tokens)
        rule = EndRule(job.stop, self._limits.eos_token_ids, max_generated)
        return Sequence(job, index, rule, self._new_text(job), BlockTable(self.pool))

    def _give_back(self, group: SequenceGroup, reason: str) -> None:
        """Return a group to the queue, unless all of it has ended and only waits to be told."""
        if group.live:
            self._roster.forget(group)
            self._returned.append(Returned(group.job.ticket, reason))


def _end(group: SequenceGroup, reason: FinishReason, failure: Failure | None = None) -> None:
    for sequence in group.sequences:
        sequence.end(reason, failure)


@dataclass(frozen=True, slots=True)
class _Told:
    """What is told of a token that was drawn."""

    token_ids: tuple[int, ...] = ()
    text: str = ""
    logprobs: tuple[Logprobs, ...] = ()


def _told(sequence: Sequence, drawn: Drawn) -> _Told:
    text = sequence.append(drawn.token_id)
    if drawn.scores is None:
        return _Told((drawn.token_id,), text)
    return _Told((drawn.token_id,), text, (sequence.logprobs_of(drawn.token_id, drawn.scores),))


def _output(group: SequenceGroup, sequence: Sequence, told: _Told | None) -> SequenceOutput:
    tells_prompt = group.has_begun and not group.is_prompt_told
    group.is_prompt_told = group.is_prompt_told or tells_prompt
    told = told or _Told()
    return SequenceOutput(
        ticket=group.job.ticket,
        index=sequence.index,
        token_ids=told.token_ids,
        text=told.text,
        text_chars=tuple(len(told.text) for _ in told.token_ids),
        finish=sequence.finish,
        took_up_prompt=tells_prompt,
        logprobs=told.logprobs,
        prompt_logprobs=group.prompt_logprobs if tells_prompt else (),
    )
