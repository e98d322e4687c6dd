"""What the engine tells after a step."""

from collections.abc import Sequence
from dataclasses import dataclass

from common.domain import FinishReason, MatchedStop
from common.logprobs import Logprobs
from common.records import Failure
from worker.engine.answer_quality import AnswerQuality
from worker.engine.job import Ticket


@dataclass(frozen=True, slots=True)
class Finish:
    """End of a choice; ``text`` was held back and belongs to the output after all."""

    reason: FinishReason
    matched_stop: MatchedStop | None = None
    text: str = ""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class SequenceOutput:
    """What one step brought for one choice.

    ``text_chars[i]`` characters of ``text`` became certain with token ``i``. A stop token or end-of-sequence token
    is among ``token_ids`` (it was generated and counts) but gives no text. ``took_up_prompt`` is true on
    the first output of a dispatch whose computation had begun; ``cached_tokens`` of its prompt were found computed.
    ``logprobs`` has an entry for each token or none.
    """

    ticket: Ticket
    index: int
    token_ids: tuple[int, ...] = ()
    text: str = ""
    text_chars: tuple[int, ...] = ()
    finish: Finish | None = None
    took_up_prompt: bool = False
    logprobs: tuple[Logprobs, ...] = ()
    prompt_logprobs: tuple[Logprobs, ...] = ()
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class PromptChunk:
    """So many of a choice's known tokens went through the step, and more of them are pending."""

    ticket: Ticket
    index: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Returned:
    """A request that goes back to the queue; ``reason`` is preempted, drained or refused."""

    ticket: Ticket
    reason: str


@dataclass(frozen=True, slots=True)
class Credit:
    """What the engine can take now.

    A long prompt counts among the pending tokens with its share of one step: it takes no more away from a newcomer.
    """

    free_seqs: int
    free_blocks: int
    pending_prefill_tokens: int


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What became of the prefix cache: short hashes that can be found now, and that cannot any more.

    ``queried_tokens`` of new prompts were looked for, ``hit_tokens`` found; ``loaded_blocks`` came from below the cache.
    ``lifetimes_s`` are those of evicted blocks.
    """

    added: Sequence[int] = ()
    evicted: Sequence[int] = ()
    lifetimes_s: Sequence[float] = ()
    queried_tokens: int = 0
    hit_tokens: int = 0
    loaded_blocks: int = 0


@dataclass(frozen=True, slots=True)
class StepReport:
    """Everything one step brought forth.

    ``preempted`` requests lost their blocks to older ones, ``swapped_blocks`` of them to host memory.
    ``recomputed_tokens`` had been computed before, here or by an earlier dispatch. ``guessed_tokens`` were computed on
    speculation, ``accepted_tokens`` of them were right.
    """

    step: int
    outputs: tuple[SequenceOutput, ...]
    returned: tuple[Returned, ...]
    credit: Credit
    duration_s: float
    prefill_tokens: int
    decode_seqs: int
    cache: CacheReport = CacheReport()
    chunks: tuple[PromptChunk, ...] = ()
    preempted: tuple[Ticket, ...] = ()
    swapped_blocks: int = 0
    recomputed_tokens: int = 0
    qualities: tuple[AnswerQuality, ...] = ()
    guessed_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def num_preempted(self) -> int:
        """How many made room."""
        return len(self.preempted)
