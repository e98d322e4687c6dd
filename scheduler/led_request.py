"""One request as its leader knows it.

next_seq      0 1 2 3 4 5 6 7 8
progress      |─ confirmed ─|           what the log holds for certain: resumes and results are made of this
in flight                   |─────|     numbered and handed to the log writer, not yet confirmed
"""

from dataclasses import dataclass, field, replace

from common.domain import FinishReason, OrderingHeader, Priority, RequestId, Usage
from common.records import (
    Failure,
    FinishRecord,
    LogRecord,
    Progress,
    PromptRecord,
    Timings,
    TokensRecord,
)
from common.request_status import RequestStatus, transition
from common.wire.session import SequenceFinish, SequenceOutput
from scheduler.failures import QUARANTINE_LOSSES, failure_of_end
from scheduler.planning.waiting import WaitingRequest
from scheduler.settlements import Due, EndedEntry

Charged = tuple[Priority, str]
"""A class and a tenant."""


@dataclass(slots=True, eq=False)
class LedRequest:
    """State of one request; only the loop's task changes it. Times by this process's monotonic clock.

    ``is_charged`` says that its tenant has paid for the prompt. ``is_newcomer``: it is not ours yet (``newcomers``).
    """

    id: RequestId
    entry_id: str
    header: OrderingHeader
    epoch: int
    log: str
    start: str
    arrival_s: float
    deadline_s: float
    progress: Progress
    fingerprint: str = ""
    worker_losses: int = 0
    num_stalls: int = 0
    num_dispatches: int = 0
    first_dispatch_s: float | None = None
    first_token_s: float | None = None
    owned_s: float = 0.0
    waiting_since_s: float | None = None
    settling_s: float = 0.0

    status: RequestStatus = RequestStatus.QUEUED
    attempt: int = 0
    is_charged: bool = False
    worker_id: str = ""
    why: str = ""
    since_s: float = 0.0
    num_preempted: int = 0
    is_leaving: bool = False
    outcome: str = ""
    gateways: frozenset[str] = frozenset()
    is_newcomer: bool = False
    is_taking: bool = False
    is_recovering: bool = False
    num_choices: int = 1
    seed: int = 0
    next_seq: int = 0
    has_prompt: bool = False
    finished_choices: set[int] = field(default_factory=set)
    num_unconfirmed: int = 0
    ending: FinishRecord | None = None
    end_wanted: tuple[FinishReason, Failure | None] | None = None
    is_settling: bool = False
    is_returning: bool = False
    awaits_verdict: tuple[str, str] | None = None
    is_logged: bool = False
    is_checkpointing: bool = False
    checkpoint_seq: int = 0
    checkpoint_s: float = 0.0
    key: str = field(init=False)

    def __post_init__(self) -> None:
        self.key = str(self.id)
        self.gateways = frozenset({self.log})
        self.num_choices = self.header.num_choices
        self.restore(self.progress)

    def ended_entry(self, usage: Usage | None) -> EndedEntry:
        """The inbox entry, which may go; ``usage`` None: as the terminal record says."""
        due = Due(self.header.tenant, self.id, usage) if self.header.is_reserved else None
        return EndedEntry(self.header.priority, self.entry_id, due)

    def restore(self, progress: Progress) -> None:
        """Go on from what the log holds."""
        self.progress = progress
        self.next_seq = self.checkpoint_seq = progress.next_seq
        self.has_prompt = progress.prompt is not None
        self.finished_choices = {
            choice.index for choice in progress.choices.values() if choice.finish is not None
        }
        self.num_choices = max([self.num_choices, *(index + 1 for index in progress.choices)])
        if progress.prompt is not None and progress.next_seq:
            # Both by the clock of the leader that saw them: the store's time of the dispatch is of another one.
            self.first_dispatch_s = self.arrival_s + progress.prompt.waited_s
            self.first_token_s = self.arrival_s + progress.prompt.after_s

    def move(self, target: RequestStatus) -> None:
        """Change the status, if the table allows it."""
        self.status = transition(self.status, target)

    @property
    def keep_from(self) -> str:
        """Position in the log behind which everything is needed to know the request again."""
        return self.start if self.progress.log_id == "0-0" else self.progress.log_id

    @property
    def priority(self) -> Priority:
        """The class it came in."""
        return self.header.priority

    @property
    def num_seqs(self) -> int:
        """Choices that have not ended: each takes a slot of its worker."""
        return max(1, self.num_choices - len(self.finished_choices))

    @property
    def known_tokens(self) -> int:
        """Its prompt and what is generated: all that another worker would have to compute."""
        return self.header.prompt_tokens + self.next_seq

    @property
    def has_sent(self) -> bool:
        """Whether its client may have seen a token."""
        return self.next_seq > 0

    @property
    def charged(self) -> Charged:
        """Whose counter its tokens count on."""
        return self.priority, self.header.tenant

    @property
    def is_suspect(self) -> bool:
        """Whether so many workers died under it that it runs alone."""
        return self.worker_losses >= QUARANTINE_LOSSES

    @property
    def is_open(self) -> bool:
        """Whether its end has not been decided."""
        return self.ending is None and not self.is_settling

    def accepts(self, epoch: int, attempt: int) -> bool:
        """Whether a worker's message is about the attempt that runs now."""
        return (
            attempt == self.attempt
            and epoch == self.epoch
            and self.status is RequestStatus.RUNNING
            and self.ending is None
            and not self.is_returning
        )

    def waiting(self) -> WaitingRequest:
        """As the planner sees it."""
        assert not self.num_unconfirmed, self.key
        header, generated = self.header, self.progress.next_seq
        return WaitingRequest(
            request_id=self.key,
            priority=header.priority,
            tenant=header.tenant,
            prompt_tokens=header.prompt_tokens,
            max_tokens=header.max_tokens,
            known_tokens=header.prompt_tokens + generated,
            arrival_s=self.arrival_s,
            deadline_s=self.deadline_s,
            fingerprint=self.fingerprint if generated else None,
            hold=header.hold,
            model_revision=header.model_revision,
            has_deadline=header.has_deadline,
            num_choices=self.num_seqs,
            alone=self.is_suspect,
            is_charged=self.is_charged,
            prefix=header.prefix_hashes,
            prefix_step_tokens=header.prefix_step_tokens,
        )

    # What becomes log records.

    def records_of(self, output: SequenceOutput, now_s: float) -> list[LogRecord]:
        """Number a step's output of this request; the records await confirmation."""
        records: list[LogRecord] = []
        if output.prompt is not None and not self.has_prompt:
            self.has_prompt = True
            dispatch_s = self.first_dispatch_s
            waited_s = 0.0 if dispatch_s is None else dispatch_s - self.arrival_s
            after_s = now_s - self.arrival_s
            records.append(
                self._record(replace(output.prompt, after_s=after_s, waited_s=waited_s))
            )
        if output.index in self.finished_choices:
            return records
        if output.token_ids:
            if self.first_token_s is None:
                self.first_token_s = now_s
            tokens = TokensRecord(
                self.next_seq,
                output.index,
                output.token_ids,
                output.text,
                output.text_chars,
                output.logprobs,
            )
            self.next_seq = tokens.end_seq
            records.append(self._record(tokens))
        if output.finish is not None:
            records.append(self._finish(output.index, now_s, self._template(output.finish)))
        return records

    def end_records(
        self, reason: FinishReason, failure: Failure | None, now_s: float
    ) -> list[LogRecord]:
        """End every choice that has not ended."""
        open_choices = sorted(set(range(self.num_choices)) - self.finished_choices)
        assert open_choices, self.key
        template = FinishRecord(0, 0, reason, failure=failure)
        return [self._finish(index, now_s, template) for index in open_choices]

    def _template(self, finish: SequenceFinish) -> FinishRecord:
        stage = "decode" if self.next_seq else "prefill"
        failure = finish.failure
        if failure is None and self.end_wanted is not None and self.end_wanted[0] is finish.reason:
            failure = self.end_wanted[1]
        failure = failure or failure_of_end(finish.reason, stage=stage)
        return FinishRecord(0, 0, finish.reason, finish.matched_stop, finish.text, failure=failure)

    def _finish(self, index: int, now_s: float, template: FinishRecord) -> LogRecord:
        self.finished_choices.add(index)
        is_last = len(self.finished_choices) >= self.num_choices
        record = FinishRecord(
            self.next_seq,
            index,
            template.reason,
            template.matched_stop,
            template.text,
            last=is_last,
            failure=template.failure,
            timings=self.timings(now_s) if is_last else None,
        )
        if is_last:
            self.ending = record
        return self._record(record)

    def _record(self, fact: TokensRecord | FinishRecord | PromptRecord) -> LogRecord:
        self.num_unconfirmed += 1
        return LogRecord(self.key, self.epoch, fact)

    def confirm(self, record: LogRecord, log_id: str) -> None:
        """The log holds ``record`` at ``log_id``."""
        self.progress.add(record.fact)
        self.progress.log_id = log_id
        self.num_unconfirmed -= 1
        assert self.num_unconfirmed >= 0, self.key

    def timings(self, now_s: float) -> Timings:
        """Where the time went, up to now."""
        dispatch_s, token_s = self.first_dispatch_s, self.first_token_s
        return Timings(
            queue_s=(dispatch_s if dispatch_s is not None else now_s) - self.arrival_s,
            prefill_s=token_s - dispatch_s
            if token_s is not None and dispatch_s is not None
            else 0,
            time_to_first_token_s=token_s - self.arrival_s if token_s is not None else 0.0,
            total_s=now_s - self.arrival_s,
            attempts=self.num_dispatches,
        )
