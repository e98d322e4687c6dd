"""Workers that are arithmetic: between two events everything that runs gets on by the same number of steps.

steps   0 ──────── 12.4 ─────────── 40          a sequence that joined at 12.4 with 20 tokens to go ends at 32.4
prompts are computed first: while some are pending, the steps stand still
"""

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from common.domain import Priority
from scheduler.planning.fit import WorkerView
from scheduler.planning.output_lengths import OutputLengths
from scheduler.planning.waiting import WaitingRequest
from tests.bench.simulate.service import ServiceTimes


@dataclass(slots=True)
class Sequence:
    """A request that runs. ``begins`` is the worker's step count when it joined."""

    request: WaitingRequest
    since_s: float
    begins: float
    output_tokens: int
    reserved_blocks: int
    num_preempted: int = 0
    is_leaving: bool = False
    generated: int = 0
    charged: int = 0

    @property
    def key(self) -> str:
        return self.request.request_id

    @property
    def priority(self) -> Priority:
        return self.request.priority

    @property
    def known_tokens(self) -> int:
        return self.request.known_tokens + self.generated

    @property
    def num_seqs(self) -> int:
        return 1

    @property
    def has_sent(self) -> bool:
        return self.request.is_started or self.generated > 0


@dataclass(frozen=True, slots=True)
class Happened:
    """A sequence got its first token of this run, or its last."""

    at_s: float
    sequence: Sequence
    is_end: bool


class SimulatedWorker:
    """One worker."""

    def __init__(self, worker_id: str, service: ServiceTimes) -> None:
        """Idle."""
        self.worker_id = worker_id
        self.running: dict[str, Sequence] = {}
        self._service = service
        self._steps = 0.0
        self._pending_s = 0.0
        self._now_s = 0.0
        self._due: list[tuple[float, int, int, Sequence]] = []
        self._reserved = 0
        self._num_joined = 0
        self._view: WorkerView | None = None

    def next_s(self) -> float | None:
        """When something happens next, if nobody joins or leaves."""
        while self._due and not self._is_live(self._due[0][3]):
            heapq.heappop(self._due)
        if not self._due:
            return None
        steps = max(0.0, self._due[0][0] - self._steps)
        return self._now_s + self._pending_s + steps * self._step_s

    def advance(self, now_s: float) -> Iterator[Happened]:
        """Compute until ``now_s``; what happens on the way."""
        while (next_s := self.next_s()) is not None and next_s <= now_s:
            at_steps, _, is_end, sequence = heapq.heappop(self._due)
            self._now_s, self._pending_s, self._steps = next_s, 0.0, at_steps
            self._view = None
            self._note(sequence)
            if is_end:
                self.leave(sequence)
            yield Happened(next_s, sequence, bool(is_end))
        left_s = now_s - self._now_s
        paid_s = min(left_s, self._pending_s)
        if paid_s:
            self._view = None
        self._pending_s -= paid_s
        if self.running:
            self._steps += (left_s - paid_s) / self._step_s
        self._now_s = now_s

    def join(self, sequence: Sequence) -> None:
        """A sequence comes; ``advance`` was called for this moment."""
        self._view = None
        self._num_joined += 1
        sequence.begins = self._steps
        self.running[sequence.key] = sequence
        self._reserved += sequence.reserved_blocks
        self._pending_s += self._service.prefill_s(sequence.request.known_tokens)
        number = 2 * self._num_joined
        to_go = sequence.output_tokens - _generated_before(sequence)
        heapq.heappush(self._due, (self._steps + 1, number, 0, sequence))
        heapq.heappush(self._due, (self._steps + max(1, to_go), number + 1, 1, sequence))

    def leave(self, sequence: Sequence) -> None:
        """A sequence goes."""
        self._view = None
        self._note(sequence)
        del self.running[sequence.key]
        self._reserved -= sequence.reserved_blocks

    def charges(self) -> Counter[tuple[Priority, str]]:
        """Tokens generated since the last call, by whose they are."""
        found: Counter[tuple[Priority, str]] = Counter()
        for sequence in self.running.values():
            self._note(sequence)
            found[sequence.priority, sequence.request.tenant] += (
                sequence.generated - sequence.charged
            )
            sequence.charged = sequence.generated
        return found

    def view(self, lengths: OutputLengths) -> WorkerView:
        """As the planner sees it."""
        if self._view is None:
            service, running = self._service, tuple(self.running.values())
            for sequence in running:
                self._note(sequence)
                blocks = sequence.known_tokens // service.block_size + 1
                if blocks > sequence.reserved_blocks:  # it goes on longer than was likely
                    grown = sequence.known_tokens - sequence.request.known_tokens
                    left = sequence.request.remaining_tokens - grown
                    more = lengths.left(sequence.request.tenant, grown, max(1, left))
                    blocks += more // service.block_size + 1
                    self._reserved += blocks - sequence.reserved_blocks
                    sequence.reserved_blocks = blocks
            self._view = WorkerView(
                worker_id=self.worker_id,
                free_seqs=service.max_seqs - len(running),
                free_blocks=max(0, service.kv_blocks - self._reserved),
                block_size=service.block_size,
                pending_prefill_tokens=round(self._pending_s / service.token_s),
                max_batch_tokens=service.max_batch_tokens,
                num_running=len(running),
                fingerprint="f",
                draining=False,
                kv_blocks=service.kv_blocks,
                running=running,
                lowest_running=min((one.priority for one in running), default=None),
            )
        return self._view

    def _note(self, sequence: Sequence) -> None:
        """How far a sequence has come by now."""
        steps = int(self._steps - sequence.begins + 1e-6)
        to_go = sequence.output_tokens - _generated_before(sequence)
        sequence.generated = min(steps, to_go)

    def _is_live(self, sequence: Sequence) -> bool:
        return self.running.get(sequence.key) is sequence

    @property
    def _step_s(self) -> float:
        return self._service.step_s(len(self.running))


def _generated_before(sequence: Sequence) -> int:
    return sequence.request.known_tokens - sequence.request.prompt_tokens
