"""A request that waits, and what planning remembers about it."""

from dataclasses import dataclass, field
from typing import NamedTuple

from common.domain import Priority


class LaneKey(NamedTuple):
    """What requests need of a worker: fingerprint (None: not started), model revision (empty: any), to be alone."""

    fingerprint: str | None
    model_revision: str
    alone: bool = False

    def is_served_by(self, fingerprint: str, model_revision: str) -> bool:
        """Whether such a worker may run them: equal numerics once started, the revision that was asked for."""
        if self.fingerprint is not None and self.fingerprint != fingerprint:
            return False
        wanted = self.model_revision
        return not wanted or not model_revision or wanted == model_revision


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """What ordering needs to know of a request; times by the planner's clock.

    ``known_tokens`` are the prompt and what is generated already: all that a worker has to compute before the
    next token. A started request resumes only on a worker with its ``fingerprint``; an empty
    ``model_revision`` accepts any. Every request has a deadline; ``has_deadline`` says that its caller set it.
    ``num_choices`` are sequences, each with a slot of its own; tokens are counted over all of them.
    ``alone``: workers died under it, and it goes only where nothing else runs. ``is_charged``: its tenant has
    paid for the prompt (``fairness``), because it was started before. ``prefix`` names beginnings of the prompt, each
    ``prefix_step_tokens`` longer than the one before.
    """

    request_id: str
    priority: Priority
    tenant: str
    prompt_tokens: int
    max_tokens: int
    known_tokens: int
    arrival_s: float
    deadline_s: float
    fingerprint: str | None = None
    hold: bool = True
    model_revision: str = ""
    num_choices: int = 1
    has_deadline: bool = False
    alone: bool = False
    is_charged: bool = False
    prefix: tuple[int, ...] = ()
    prefix_step_tokens: int = 0
    lane_key: LaneKey = field(init=False, repr=False)
    """What a worker has to match."""

    def __post_init__(self) -> None:
        key = LaneKey(self.fingerprint, self.model_revision, self.alone)
        object.__setattr__(
            self, "lane_key", key
        )  # once: plans look at it more often than at anything else

    @property
    def is_started(self) -> bool:
        """Whether something of it is generated."""
        return self.known_tokens > self.prompt_tokens

    @property
    def remaining_tokens(self) -> int:
        """Tokens that may still be generated."""
        return self.max_tokens - (self.known_tokens - self.prompt_tokens)

    def to_compute(self, num_held: int) -> int:
        """Tokens that a worker computes which holds so many of the beginnings: at least the last one."""
        return max(1, self.known_tokens - num_held * self.prefix_step_tokens)


@dataclass(slots=True, eq=False)
class Entry:
    """A waiting request in the queue: its place in the order, and how often that was not respected.

    ``overtaken`` counts the picks that passed it
    while it was the head; ``kept_worker`` is the worker that is kept free for it since that went too far.
    ``overdue_s`` is when its class's patience runs out.
    """

    request: WaitingRequest
    number: int
    due_s: float
    bucket: int
    overtaken: int = 0
    kept_worker: str | None = None
    overdue_s: float = 0.0
    key: "Key" = field(init=False, repr=False)
    patience_key: "Key" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.key = (self.due_s, self.number, self)
        self.patience_key = (self.overdue_s, self.number, self)


Key = tuple[float, int, Entry]
"""Sorts entries of a class; ``number`` rises with every entry, so that no two entries ever compare."""
