"""How far the model explores, and which rule it breaks to show that the check would notice."""

from dataclasses import dataclass
from enum import Enum


class Mutation(Enum):
    """A protocol with one rule less."""

    NO_FENCE = "a takeover reads the log without fencing it"
    SESSION_FENCE = "a fence bars the former owner from all its requests"
    UNCHECKED_TERMINAL = "the terminal record is written whatever the epoch"
    DECIDE_UNCONFIRMED = "decisions are made while an append's answer is unknown"
    TRIM_BEYOND_CHECKPOINT = (
        "the log is trimmed behind what is confirmed, not behind the checkpoint"
    )
    LATE_CHECKPOINT = "a checkpoint that arrives late replaces a newer one"
    START_AGAIN = "a request with a past is started like a new one"
    UNMARKED_READER = "a late reader takes the checkpoint without marking the log first"


@dataclass(frozen=True, slots=True)
class Scope:
    """Bounds of an exploration. ``lost`` counts answers that get lost, of whatever command.

    With ``expires`` a session may find a deadline passed at any moment: clocks differ, and it may not look for long.

    Without ``keeps_void`` a record that tells the full view nothing (a repeat, or below a fence) is not kept in
    the log. That such records change no other reader's view either is what the scopes that keep them show, so
    that larger scopes need not carry them along.
    """

    requests: int = 1
    sessions: int = 2
    num_tokens: int = 2
    lost: int = 1
    cancels: bool = True
    expires: bool = False
    checkpoints: int = 1
    worker_losses: int = 0
    has_late_reader: bool = False
    keeps_void: bool = True
    mutation: Mutation | None = None
