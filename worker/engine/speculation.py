"""Speculation: guesses are computed beside a sequence's next token, so that one step may bring several tokens.

Lossless. A draw is a function of the logits and of (seed, choice, position). So behind each guess the next token is drawn
as it would be without speculation; it counts where all guesses before it are the tokens that were drawn. A guess is
right as often as its token is likely, which is what rejection sampling makes of a guess without a doubt in it.

    known   guesses          drawn          what counts
    … a     b c d            b c x …        b c x: two guesses were right, and x comes for nothing

It pays where a step waits for the weights to be read. ``guess_budget`` chooses how many tokens are guessed for whom, by the
measured times of steps and by the share of guesses that were right; no step is filled up in which a prompt is computed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from worker.engine.guess_budget import Chance, choose_counts
from worker.engine.plan import Share
from worker.engine.runner import Checked
from worker.engine.step_times import StepTimes
from worker.kv.blocks import BlockPool

if TYPE_CHECKING:
    from worker.engine.sequence import Sequence as Text

MAX_GUESSES = 7
"""Of one sequence in a step: further ones are seldom right."""

MAX_TOKENS = 64
"""Of a step that is filled up: at more, products are bound by computing and not by reading weights."""

FIRST_SHARE = 0.7
"""Of right guesses, for all that is known before the first: high enough to be tried."""

_FIRST_WEIGHT = 1 / 4
_WEIGHT = 1 / 8
_WEIGHT_FOR_NEW = 1 / 16
"""Of one guess: the first in any share, later ones in that of their sequence, and in the one that new sequences begin with."""

_DRIFT = 1 / 256
"""A share that does not pay drifts so much towards the first share each step, and is tried again at last."""


class Proposer(Protocol):
    """Makes the guesses. Nothing that it does alters a token, and nothing that fails in it fails a request."""

    @property
    def kind(self) -> str:
        """Its name in metrics."""
        ...

    @property
    def pool(self) -> BlockPool | None:
        """The books of its own KV memory, if it has any."""
        ...

    def ready(self, wanted: "Mapping[Text, int]") -> "dict[Text, int]":
        """Of the tokens ``wanted`` for each sequence, how many can be guessed in this step; none are left out."""
        ...

    def propose(self, counts: "Mapping[Text, int]") -> "Mapping[Text, Sequence[int]]":
        """Guesses of how each text goes on, at most so many; for sequences that are ready."""
        ...

    def guess_s(self, num_texts: int) -> float:
        """Seconds in which one more token is guessed for each of so many texts."""
        ...

    def retain(self, texts: "Iterable[Text]") -> None:
        """Part with all that is held for others than ``texts``."""
        ...


@dataclass(slots=True)
class _Share:
    """Share of right guesses, recent ones above all; the first count more, as little is known by then."""

    value: float
    weight: float
    num_seen: int = 0

    def learn(self, num_guessed: int, num_right: int) -> None:
        # Behind the first wrong guess nothing is known of the others.
        known = [1.0] * num_right + [0.0] * (num_right < num_guessed)
        for found in known:
            weight = max(self.weight, 1 / (1 / _FIRST_WEIGHT + self.num_seen))
            self.value += (found - self.value) * weight
            self.num_seen += 1

    def drift(self) -> None:
        self.value += (FIRST_SHARE - self.value) * _DRIFT


class Speculation:
    """Fills up the steps of one engine; without a ``proposer`` it leaves them as they are."""

    def __init__(
        self,
        proposer: Proposer | None = None,
        times: StepTimes | None = None,
        *,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        """``times`` are those of the engine's runner; ``max_tokens`` bounds the tokens of a step."""
        self.proposer = proposer
        self.times = times or StepTimes.flat()
        self._max_tokens = min(max_tokens, MAX_TOKENS)
        self._shares: WeakKeyDictionary[Text, _Share] = WeakKeyDictionary()
        self._share_for_new = _Share(FIRST_SHARE, _WEIGHT_FOR_NEW)
        self._num_guessed = self._num_right = 0

    @property
    def kind(self) -> str:
        """What makes the guesses, as metrics name it."""
        return "off" if self.proposer is None else self.proposer.kind

    @property
    def pool(self) -> BlockPool | None:
        """The books of the guesser's KV memory, if it has any."""
        return None if self.proposer is None else self.proposer.pool

    def fill_up(self, shares: list[Share], spare_blocks: int) -> list[Share]:
        """The shares of a step, with guesses where they pay; they take ``spare_blocks`` at most."""
        proposer = self.proposer
        if proposer is None or not shares:
            return shares
        if not all(share.sequence.is_decoding for share in shares):
            return shares
        limits = self._limits(shares, spare_blocks)
        wanted = self._choose(proposer, limits, len(shares))
        for text in limits.keys() - wanted.keys():
            self._share_of(text).drift()
        if not wanted:
            return shares
        counts = self._choose(proposer, proposer.ready(wanted), len(shares))
        guesses = proposer.propose(counts) if counts else {}
        return [_with_guesses(share, guesses.get(share.sequence, ())) for share in shares]

    def learn(self, share: Share, checked: Checked) -> None:
        """See how many guesses were right."""
        num_guessed, num_right = len(share.guesses), len(checked.drawn) - 1
        self._num_guessed += num_guessed
        self._num_right += num_right
        self._share_of(share.sequence).learn(num_guessed, num_right)
        self._share_for_new.learn(num_guessed, num_right)

    def retain(self, texts: "Iterable[Text]") -> None:
        """Only these go on: whatever is held for others is free."""
        if self.proposer is not None:
            self.proposer.retain(texts)

    def take_counts(self) -> tuple[int, int]:
        """Tokens guessed and of these right since the last call."""
        counts = self._num_guessed, self._num_right
        self._num_guessed = self._num_right = 0
        return counts

    def _share_of(self, text: "Text") -> _Share:
        share = self._shares.get(text)
        if share is None:
            self._share_for_new.drift()
            share = self._shares[text] = _Share(self._share_for_new.value, _WEIGHT)
        return share

    def _limits(self, shares: list[Share], spare_blocks: int) -> "dict[Text, int]":
        """Most tokens that may be guessed for each sequence, those without any left out."""
        limits = {}
        for share in shares:
            text = share.sequence
            # The last token that it may come to hold is drawn, not guessed.
            limit = min(MAX_GUESSES, text.max_known - text.num_known - 1)
            missing = text.blocks.missing_blocks(text.num_known + limit)
            if missing > spare_blocks:
                limit, missing = min(limit, text.blocks.capacity_tokens - text.num_known), 0
            if limit > 0 and text.has_known_draws:
                limits[text] = limit
                spare_blocks -= missing
        return limits

    def _choose(
        self, proposer: Proposer, limits: "Mapping[Text, int]", num_decodes: int
    ) -> "dict[Text, int]":
        chances = {
            text: Chance(self._share_of(text).value, limit) for text, limit in limits.items()
        }
        return choose_counts(chances, num_decodes, self.times, proposer.guess_s, self._max_tokens)


def _with_guesses(share: Share, guesses: Sequence[int]) -> Share:
    if not guesses:
        return share
    filled = replace(share, guesses=guesses)
    grown = share.sequence.blocks.try_grow(filled.num_needed)
    assert grown, filled.num_needed
    return filled
