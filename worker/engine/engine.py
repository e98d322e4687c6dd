"""Continuous batching: sequences join and leave at every step.

``step()`` is the table of contents. Between steps whoever owns the engine submits, cancels and gives back; the engine
is synchronous, has no thread of its own, and tells everything that came of it in the next step's report.

Blocks. A group is admitted when the pool covers all its known tokens, and grows block by block while it decodes. When
the pool is empty, the youngest group waits, and goes on when there is room again (``parking``).
"""

from collections.abc import Callable, Iterator

from common.domain import Clock, FinishReason
from common.records import Failure
from worker.engine.answer_quality import AnswerQuality, QualityTally, is_sampled
from worker.engine.block_store import PagedRunner
from worker.engine.budget import StepBudget
from worker.engine.containment import Contained, NotRun, run_contained
from worker.engine.costs import StepCosts
from worker.engine.ending import EndRule
from worker.engine.group import SequenceGroup
from worker.engine.job import Job, Ticket
from worker.engine.limits import EngineLimits
from worker.engine.lower_tier import LowerTier
from worker.engine.memory import KvMemory
from worker.engine.parking import Parking
from worker.engine.plan import Share, plan_shares
from worker.engine.report import Credit, Returned, SequenceOutput, StepReport
from worker.engine.roster import Roster
from worker.engine.runner import Checked, Drawn, RowFailed, Scored
from worker.engine.sequence import Sequence
from worker.engine.speculation import Speculation
from worker.engine.telling import Told, chunks_of, output_of, told_of
from worker.engine.text_stream import TextStream
from worker.kv.block_table import BlockTable
from worker.kv.blocks import BlockPool
from worker.kv.prefix_cache import PrefixCache
from worker.kv.prefix_chain import PrefixChain

DOES_NOT_FIT = "DOES_NOT_FIT"
PREEMPTED = "preempted"

NewText = Callable[[Job], TextStream]
"""Makes the text of a sequence that continues the job's prompt."""


class Engine:
    """All sequences of one worker. One owner calls it; nothing here waits but the runner."""

    def __init__(
        self,
        runner: PagedRunner,
        limits: EngineLimits,
        new_text: NewText,
        clock: Clock,
        costs: StepCosts | None = None,
        lower: LowerTier | None = None,
        speculation: Speculation | None = None,
    ) -> None:
        """An idle engine over an empty cache; ``costs`` are what was measured of ``runner``."""
        self.pool = BlockPool(runner.num_blocks, runner.block_size)
        self.cache = PrefixCache(self.pool, limits.cache_ttl_s)
        self._memory = KvMemory(self.pool, self.cache, runner.blocks, lower, limits.window_tokens)
        self._runner = runner
        self._limits = limits
        self._new_text = new_text
        self._clock = clock
        self._costs = costs or StepCosts()
        self.speculation = speculation or Speculation()
        self._roster = Roster()
        self._parking = Parking(self._memory, self._roster, limits, self._costs)
        self._returned: list[Returned] = []
        self._qualities: list[AnswerQuality] = []
        self._num_submitted = 0
        self._num_steps = 0

    def step(self) -> StepReport:
        """One turn of the loop: who joins, what is computed, the computation, what came of it."""
        began_s = self._admit()
        shares = self._plan(began_s)
        results = self._run(shares)
        return self._settle(shares, results, began_s)

    @property
    def has_work(self) -> bool:
        """Whether a step would do or tell anything."""
        roster = self._roster
        return bool(roster.waiting or roster.running or self._returned or self.cache.has_news)

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
        roster = self._roster
        promised = sum(group.missing_blocks(self.pool.block_size) for group in roster.waiting)
        pending = [*roster.working_sequences, *(g.live[0] for g in roster.waiting if g.live)]
        return Credit(
            free_seqs=max(0, self._limits.max_seqs - sum(1 for _ in roster.sequences)),
            free_blocks=max(0, self.pool.num_free - promised),
            pending_prefill_tokens=sum(
                min(s.num_pending, self._limits.max_share_tokens)
                for s in pending
                if not s.is_decoding
            ),
        )

    # What the owner may ask for between steps.

    def submit(self, job: Job) -> None:
        """Take a job; it replaces an earlier dispatch of the same request."""
        earlier = self._roster.find(job.ticket.request_id)
        if earlier is not None:
            self._roster.forget(earlier)
        self._num_submitted += 1
        sequences = [self._new_sequence(job, index) for index in job.choices]
        group = SequenceGroup(job, sequences, self._num_submitted)
        self._roster.enter(group, self._clock())
        if job.failure is not None:
            _end(group, FinishReason.ERROR, job.failure)
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
        """Forget every request and tell nothing; what the prefix cache holds stays."""
        for group in self._roster.groups:
            self._roster.forget(group)
        self._returned.clear()
        self.cache.take_changes()
        self.speculation.retain(())

    def check_integrity(self) -> None:
        """Assert that the running sequences hold exactly the blocks that are not free."""
        assert not any(s.blocks.block_ids for g in self._roster.waiting for s in g.sequences)
        running = self._roster.running
        self._memory.check_integrity(s for group in running for s in group.sequences)

    # The four parts of a step.

    def _admit(self) -> float:
        """End what is late, make room for what runs, then let groups join while they fit. The time."""
        now_s = self._clock()
        self.cache.expire(now_s)
        for group in self._roster.groups:
            if group.job.deadline_s is not None and group.job.deadline_s <= now_s:
                _end(group, FinishReason.DEADLINE)
        self._parking.make_room(now_s)
        for group in self._parking.overdue(now_s):
            self._give_back(group, PREEMPTED)
        while self._roster.try_join(self._parking.try_seat):
            pass
        return now_s

    def _plan(self, now_s: float) -> list[Share]:
        shares = plan_shares(
            self._roster.working_sequences,
            StepBudget(self._limits.max_batch_tokens),
            self._costs,
            max_share=self._limits.max_share_tokens,
            expects_others=self._roster.expects_others(now_s),
        )
        # A block for each that runs stays free: nobody makes room for a guess.
        return self.speculation.fill_up(shares, self.pool.num_free - len(shares))

    def _run(self, shares: list[Share]) -> list[Contained]:
        if not shares:
            return []
        self._num_steps += 1
        return run_contained(self._runner, [share.row for share in shares])

    def _settle(self, shares: list[Share], results: list[Contained], began_s: float) -> StepReport:
        """Take in what was computed, part with what ended, and tell it."""
        decode_seqs = sum(share.sequence.is_decoding for share in shares)
        repeated = sum(share.sequence.num_repeated(share.num_tokens) for share in shares)
        chunks = chunks_of(shares)
        drawn: dict[Sequence, Told] = {}
        for share, result in zip(shares, results, strict=True):
            sequence = share.sequence
            if isinstance(result, RowFailed):
                self._fail(sequence, result)
            if isinstance(result, RowFailed | NotRun):
                continue
            if isinstance(result, Scored):
                sequence.scored(result.scores)
                result = result.drawn
            sequence.computed(share.num_tokens)
            if isinstance(result, Checked):
                self.speculation.learn(share, result)
            if isinstance(result, Drawn | Checked) and sequence.finish is None:
                self._memory.publish(sequence)
                tokens = result.drawn if isinstance(result, Checked) else (result,)
                drawn[sequence] = told_of(sequence, tokens)
        for group in self._roster.running:
            self._memory.fork(group)
            self._memory.give_back_unseen(group)
        outputs = tuple(self._part(drawn))
        self.speculation.retain(self._roster.running_sequences)
        guessed_tokens, accepted_tokens = self.speculation.take_counts()
        returned, self._returned = tuple(self._returned), []
        qualities, self._qualities = tuple(self._qualities), []
        preempted, swapped_blocks = self._parking.take_preempted()
        return StepReport(
            step=self._num_steps,
            outputs=outputs,
            returned=returned,
            credit=self.credit,
            duration_s=self._clock() - began_s,
            prefill_tokens=sum(share.num_tokens for share in shares) - decode_seqs,
            decode_seqs=decode_seqs,
            cache=self._memory.report(),
            chunks=chunks,
            preempted=preempted,
            swapped_blocks=swapped_blocks,
            recomputed_tokens=repeated,
            qualities=qualities,
            guessed_tokens=guessed_tokens,
            accepted_tokens=accepted_tokens,
        )

    # Their smaller steps.

    def _fail(self, sequence: Sequence, failed: RowFailed) -> None:
        """A failed row ends its request: nobody wants some of its choices, and none gives a sound answer."""
        self._memory.distrust(sequence)
        group = next(g for g in self._roster.running if sequence in g.sequences)
        _end(group, FinishReason.ERROR, Failure("INTERNAL", failed.message, failed.reason))

    def _part(self, drawn: dict[Sequence, Told]) -> Iterator[SequenceOutput]:
        """The outputs of all groups; ended sequences leave, and their blocks are free."""
        for group in self._roster.groups:
            for sequence in list(group.sequences):
                if sequence in drawn or sequence.finish is not None:
                    yield output_of(group, sequence, drawn.get(sequence))
            for sequence in group.sequences:
                if sequence.finish is not None:
                    sequence.blocks.release()
                    if sequence.tally is not None:
                        self._qualities += sequence.tally.results()
            group.sequences = group.live
            if not group.sequences:
                self._roster.forget(group)

    def _new_sequence(self, job: Job, index: int) -> Sequence:
        left_tokens = self._limits.context_tokens - len(job.prompt_token_ids)
        max_generated = min(job.stop.max_tokens, left_tokens)
        rule = EndRule(job.stop, self._limits.eos_token_ids, max_generated)
        roll_tokens = self._limits.roll_tokens(
            len(job.prompt_token_ids), max_generated, len(job.choices), self.pool
        )
        # Of a text that rolls the beginning is gone before it is proven.
        is_cached = self._limits.prefix_cache and not roll_tokens
        root = job.prefix_root if is_cached else None
        chain = PrefixChain(root, self.pool.block_size)
        is_judged = is_sampled(job.ticket.request_id, self._limits.quality_sample)
        tally = QualityTally() if is_judged else None
        blocks = BlockTable(self.pool)
        return Sequence(job, index, rule, self._new_text(job), blocks, chain, tally, roll_tokens)

    def _give_back(self, group: SequenceGroup, reason: str) -> None:
        """Return a group to the queue, unless all of it has ended and only waits to be told."""
        if group.live:
            self._roster.forget(group)
            self._returned.append(Returned(group.job.ticket, reason))


def _end(group: SequenceGroup, reason: FinishReason, failure: Failure | None = None) -> None:
    for sequence in group.sequences:
        sequence.end(reason, failure)
