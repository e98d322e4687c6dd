"""Facts about a request as the reply log holds them, and what they add up to.

A log entry holds ``LogRecord``s; ``common.log_fold`` decides which of them count; ``Progress`` is the sum of
those that did. A checkpoint and a result are both a ``Progress``: a follower can replay either from any seq.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from common.domain import FinishReason, MatchedStop, Usage
from common.errors import HeadraceError
from common.logprobs import Logprobs


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed: an error as it is stored; ``code`` names a gRPC status code."""

    code: str
    message: str
    reason: str
    metadata: Mapping[str, str] = field(default_factory=dict)


def failure_of(error: HeadraceError) -> Failure:
    """An error as it is stored."""
    return Failure(error.code, error.message, error.reason, error.metadata)


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time went, seconds; each from one process's monotonic clock."""

    queue_s: float = 0.0
    prefill_s: float = 0.0
    time_to_first_token_s: float = 0.0
    total_s: float = 0.0
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class TokensRecord:
    """New tokens of one choice; ``text_chars[i]`` characters of ``text`` became certain with token i.

    ``logprobs`` has an entry for each token, or none at all.
    """

    seq: int
    index: int
    token_ids: tuple[int, ...]
    text: str
    text_chars: tuple[int, ...]
    logprobs: tuple[Logprobs, ...] = ()

    def __post_init__(self) -> None:
        assert len(self.token_ids) == len(self.text_chars), self
        assert len(self.logprobs) in (0, len(self.token_ids)), self
        assert sum(self.text_chars) == len(self.text), self

    @property
    def end_seq(self) -> int:
        """Seq behind the last token."""
        return self.seq + len(self.token_ids)

    def without_first(self, count: int) -> "TokensRecord":
        """The record less its first ``count`` tokens and the text that came with them."""
        chars = sum(self.text_chars[:count])
        return TokensRecord(
            self.seq + count,
            self.index,
            self.token_ids[count:],
            self.text[chars:],
            self.text_chars[count:],
            self.logprobs[count:],
        )


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """A worker took up the prompt. ``after_s``: how long after admission its first output came; ``waited_s``: after which
    it was dispatched for the first time."""

    cached_tokens: int
    worker_id: str
    after_s: float = 0.0
    waited_s: float = 0.0
    logprobs: tuple[Logprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishRecord:
    """A choice ended; ``text`` was held back for a stop string and belongs to the output after all."""

    seq: int
    index: int
    reason: FinishReason
    matched_stop: MatchedStop | None = None
    text: str = ""
    last: bool = True
    failure: Failure | None = None
    timings: Timings | None = None


@dataclass(frozen=True, slots=True)
class FenceRecord:
    """From here on, entries of this request with a lower epoch are ignored."""


Fact = TokensRecord | FinishRecord | PromptRecord | FenceRecord


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One fact about one request, written under one epoch."""

    request_id: str
    epoch: int
    fact: Fact


@dataclass(slots=True)
class ChoiceProgress:
    """What is known of one choice."""

    index: int
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    text_chars: list[int] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)
    finish: FinishRecord | None = None


@dataclass(slots=True)
class Progress:
    """Everything logged of a request up to a position of its log.

    ``seq_choices[s]`` is the choice that token ``s`` belongs to; it stays empty while there is one choice only.
    """

    choices: dict[int, ChoiceProgress] = field(default_factory=dict)
    seq_choices: list[int] = field(default_factory=list)
    prompt: PromptRecord | None = None
    log_id: str = "0-0"
    epoch: int = 0

    @property
    def next_seq(self) -> int:
        """Tokens logged, over all choices."""
        return sum(len(choice.token_ids) for choice in self.choices.values())

    @property
    def last_finish(self) -> FinishRecord | None:
        """The finish that ended the request, if it is logged."""
        finishes = (choice.finish for choice in self.choices.values())
        return next((finish for finish in finishes if finish is not None and finish.last), None)

    def usage(self, prompt_tokens: int) -> Usage:
        """Usage of these tokens and a prompt of ``prompt_tokens``, which counts once it was taken up."""
        if self.prompt is None:
            return Usage()
        return Usage(prompt_tokens, self.next_seq, self.prompt.cached_tokens)

    def add(self, fact: Fact) -> None:
        """Add a fact that counts (see ``common.log_fold``), in log order."""
        match fact:
            case TokensRecord():
                self._add_tokens(fact)
            case FinishRecord():
                choice = self._choice(fact.index)
                assert choice.finish is None, fact
                choice.finish = fact
                choice.text += fact.text
            case PromptRecord():
                self.prompt = fact
            case FenceRecord():
                pass

    def _add_tokens(self, fact: TokensRecord) -> None:
        assert fact.seq == self.next_seq, (fact.seq, self.next_seq)
        choice = self._choice(fact.index)
        choice.token_ids += fact.token_ids
        choice.text += fact.text
        choice.text_chars += fact.text_chars
        choice.logprobs += fact.logprobs
        if len(self.choices) > 1:
            self.seq_choices += [fact.index] * len(fact.token_ids)

    def _choice(self, index: int) -> ChoiceProgress:
        """The choice, from now on if it is new: a second one, though it may have no token, makes seqs ambiguous."""
        if index not in self.choices:
            if self.choices and not self.seq_choices:
                self.seq_choices = [next(iter(self.choices))] * self.next_seq
            self.choices[index] = ChoiceProgress(index)
        return self.choices[index]

    def replay(self, from_seq: int) -> Iterator[Fact]:
        """The facts again from ``from_seq`` on, as few as possible: prompt, tokens, finishes."""
        if self.prompt is not None:
            yield self.prompt
        yield from self._replay_tokens(from_seq)
        for choice in sorted(
            self.choices.values(), key=lambda c: c.finish is not None and c.finish.last
        ):
            if choice.finish is not None:
                yield choice.finish

    def _replay_tokens(self, from_seq: int) -> Iterator[TokensRecord]:
        order = self.seq_choices or [next(iter(self.choices), 0)] * self.next_seq
        done = dict.fromkeys(self.choices, 0)
        chars = dict.fromkeys(self.choices, 0)
        start = 0
        while start < len(order):
            end = start
            while end < len(order) and order[end] == order[start]:
                end += 1
            choice = self.choices[order[start]]
            first, last = done[choice.index], done[choice.index] + end - start
            text_chars = tuple(choice.text_chars[first:last])
            text_end = chars[choice.index] + sum(text_chars)
            record = TokensRecord(
                start,
                choice.index,
                tuple(choice.token_ids[first:last]),
                choice.text[chars[choice.index] : text_end],
                text_chars,
                tuple(choice.logprobs[first:last]),
            )
            done[choice.index], chars[choice.index] = last, text_end
            if end > from_seq:
                yield record.without_first(max(0, from_seq - start))
            start = end
