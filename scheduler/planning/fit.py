"""Rule 7: what a worker's credits allow, spent as one budget per plan.

A request takes a slot for each choice, the KV blocks of its known tokens and of those it will probably generate (what runs has
its growth held back in the worker's credits), and its prompt's share of the prefill that the worker has pending. That share keeps the worker's own queue near empty:
what waits here can still be reordered, what waits there cannot.
"""

from dataclasses import dataclass
from typing import Protocol

from common.domain import Priority
from common.kv_need import may_roll, rolling_blocks
from scheduler.planning.output_lengths import OutputLengths
from scheduler.planning.settings import PlanningSettings
from scheduler.planning.waiting import LaneKey, WaitingRequest


class Running(Protocol):
    """A request that runs on a worker, as pre-emption sees it.

    ``known_tokens`` would have to be computed again elsewhere. ``is_leaving``: it was asked to make room.
    """

    @property
    def key(self) -> str:
        """The request's id."""

    @property
    def priority(self) -> Priority:
        """The class it came in."""

    @property
    def since_s(self) -> float:
        """When it was sent to the worker."""

    @property
    def known_tokens(self) -> int:
        """Prompt and generated tokens."""

    @property
    def has_sent(self) -> bool:
        """Whether its client has seen a token."""

    @property
    def num_preempted(self) -> int:
        """How often it made room for others."""

    @property
    def num_seqs(self) -> int:
        """Slots that it takes: one for each choice that has not ended."""

    @property
    def is_leaving(self) -> bool:
        """Whether it is making room now."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as planning sees it.

    Credits are what it reported less what was assigned since; ``num_running``, in sequences, includes the latter. ``kv_blocks``
    is its whole pool, 0 when unknown; ``window_tokens`` is how far its model looks back, 0 to the start. An empty ``model_revision`` serves any. ``runs_alone``: what runs there lets
    nothing join. ``lowest_running`` is the lowest class among ``running``, ``num_leaving`` counts those of them that
    were asked to make room.
    """

    worker_id: str
    free_seqs: int
    free_blocks: int
    block_size: int
    pending_prefill_tokens: int
    max_batch_tokens: int
    num_running: int
    fingerprint: str
    draining: bool
    kv_blocks: int = 0
    window_tokens: int = 0
    model_revision: str = ""
    runs_alone: bool = False
    running: tuple[Running, ...] = ()
    lowest_running: Priority | None = None
    num_leaving: int = 0

    def blocks_of(self, tokens: int, num_choices: int) -> int:
        """Blocks that a request of so many tokens takes; each choice has a last block of its own."""
        blocks = -(-tokens // self.block_size) + num_choices - 1
        may = may_roll(num_choices, self.kv_blocks, self.block_size, self.window_tokens)
        if may and blocks > self.kv_blocks:
            return rolling_blocks(self.window_tokens, self.block_size)
        return blocks

    def serves(self, lane: LaneKey) -> bool:
        """Whether it may run requests of a lane."""
        return lane.is_served_by(self.fingerprint, self.model_revision)


class Room:
    """What is left of a worker's credits while a plan is made."""

    def __init__(
        self,
        worker: WorkerView,
        settings: PlanningSettings,
        lengths: OutputLengths,
        needs: dict[str, int],
    ) -> None:
        """All of ``worker``'s credits; ``needs`` are tokens of requests that a plan's rooms have worked out."""
        self.worker = worker
        self.num_taken = 0
        self._lengths = lengths
        self._needs = needs
        self._seqs = worker.free_seqs
        self._blocks = worker.free_blocks
        self._pending_tokens = worker.pending_prefill_tokens
        self._max_pending_tokens = settings.prefill_steps * worker.max_batch_tokens

    @property
    def is_open(self) -> bool:
        """Whether anything at all may still join."""
        return (
            self._seqs > 0 and self._blocks > 0 and self._pending_tokens < self._max_pending_tokens
        )

    @property
    def is_idle(self) -> bool:
        """Whether the worker has nothing to do, with what was picked for it so far."""
        return self.worker.num_running + self.num_taken == 0

    @property
    def load(self) -> float:
        """How busy the worker will be: the share of its slots in use, and the steps of prefill ahead."""
        in_use = self.worker.num_running + self.num_taken
        return in_use / max(1, in_use + self._seqs) + self._pending_tokens / max(
            1, self.worker.max_batch_tokens
        )

    def fits(self, request: WaitingRequest) -> bool:
        """Whether ``request`` may join now."""
        if self._seqs < request.num_choices or not self.is_open:
            return False
        return self._has_prefill_share(request) and (
            self._reserved_blocks(request) <= self._blocks
            # An idle worker has all the room it will ever have: the reserve must not keep a request from it.
            or (self.is_idle and self._least_blocks(request) <= self._blocks)
        )

    def could_fit(self, request: WaitingRequest) -> bool:
        """Whether ``request`` would fit if the worker had nothing else to do."""
        if self.worker.num_running == 0:
            return self._least_blocks(request) <= self.worker.free_blocks
        return not self.worker.kv_blocks or self._least_blocks(request) <= self.worker.kv_blocks

    def take(self, request: WaitingRequest, cached_tokens: int = 0) -> None:
        """Spend what ``request`` needs, of which the worker has some in its cache; it must fit."""
        self.num_taken += request.num_choices
        self._seqs -= request.num_choices
        assert self._seqs >= 0, request
        self._blocks -= min(self._blocks, self._reserved_blocks(request))
        self._pending_tokens += request.known_tokens - cached_tokens

    def missing(self, request: WaitingRequest) -> tuple[int, int] | None:
        """Slots and blocks that ``request`` lacks here; None: what it lacks is neither."""
        if not self._has_prefill_share(request):
            return None
        return max(0, request.num_choices - self._seqs), max(
            0, self._reserved_blocks(request) - self._blocks
        )

    def num_fitting(self, tokens: int) -> int:
        """How many prompts of ``tokens`` tokens fill what is left, at least one."""
        left = self._max_pending_tokens - self._pending_tokens
        return max(1, min(self._seqs, left // max(1, tokens)))

    def blocks_of(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return self.worker.blocks_of(tokens, 1)

    def _has_prefill_share(self, request: WaitingRequest) -> bool:
        # A prompt longer than the whole share joins when less than a step is pending: nothing else would let it in.
        return (
            self._pending_tokens + request.known_tokens <= self._max_pending_tokens
            or self._pending_tokens < self.worker.max_batch_tokens
        )

    def _reserved_blocks(self, request: WaitingRequest) -> int:
        tokens = self._needs.get(request.request_id)
        if tokens is None:
            tokens = request.known_tokens + self._lengths.reserve(request)
            self._needs[request.request_id] = tokens
        return self.worker.blocks_of(tokens, request.num_choices)

    def _least_blocks(self, request: WaitingRequest) -> int:
        return self.worker.blocks_of(request.known_tokens + 1, request.num_choices)
