"""Who a worker is and what it has, as it introduces itself to schedulers."""

import hashlib
from dataclasses import dataclass, field

from common.model_card import ModelCard
from common.wire.card import encode_card


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """The same for every session of a process; ``incarnation`` tells a restart from a reconnect."""

    worker_id: str
    incarnation: str
    card: ModelCard
    num_blocks: int
    block_size: int
    max_seqs: int
    max_batch_tokens: int
    card_bytes: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "card_bytes", encode_card(self.card))

    @property
    def card_hash(self) -> bytes:
        """Names the card's content."""
        return hashlib.sha256(self.card_bytes).digest()
