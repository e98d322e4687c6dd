"""What a follower is given, in plain values: output, the taking up of the prompt, ends of choices."""

from dataclasses import dataclass, field
from typing import Self

from common.logprobs import Logprobs
from common.records import FinishRecord, PromptRecord, TokensRecord


@dataclass(slots=True)
class Delta:
    """New output of one choice; text comes in parts, which are joined once, when it is sent."""

    seq: int
    index: int
    token_ids: list[int]
    texts: list[str]
    logprobs: list[Logprobs] = field(default_factory=list)

    @classmethod
    def of(cls, tokens: TokensRecord) -> Self:
        """The output of one record."""
        return cls(
            tokens.seq,
            tokens.index,
            list(tokens.token_ids),
            [tokens.text],
            list(tokens.logprobs),
        )

    @property
    def end_seq(self) -> int:
        """Seq behind the last token."""
        return self.seq + len(self.token_ids)

    @property
    def text(self) -> str:
        """The new text."""
        return self.texts[0] if len(self.texts) == 1 else "".join(self.texts)

    def can_take(self, later: "Delta") -> bool:
        """Whether ``later`` goes on where this ends, in the same choice."""
        return later.index == self.index and later.seq == self.end_seq

    def take(self, later: "Delta") -> None:
        """Become one with ``later``."""
        self.token_ids += later.token_ids
        self.texts += later.texts
        self.logprobs += later.logprobs


Event = Delta | PromptRecord | FinishRecord
