"""Speculation: guesses are computed beside a sequence's next token, so that one step may bring several tokens.

Lossless. A draw is a function of the logits and of (seed, choice, position). So behind each guess the next token is drawn
as it would be without speculation; it counts where all guesses before it are the tokens that were drawn. A guess is
right as often as its token is likely, which is what rejection sampling makes of a guess without a doubt in it.

    known   guesses          drawn          what counts
    … a     b c d            b c x …        b c x: two guesses were right, and x comes for nothing

It pays where a step waits for the weights to be read, so only steps of few decodes are filled up, and none in which a
prompt is computed. A sequence whose guesses are wrong makes a pause, twice as long each time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from worker.engine.lookup import PromptLookup
from worker.engine.plan import Share
from worker.engine.runner import Checked

if TYPE_CHECKING:
    from worker.engine.sequence import Sequence as Text

MAX_GUESSES = 4
"""Of one sequence in a step: further ones are seldom right."""

MAX_TOKENS = 8
"""Of a step that is filled up: so many cost the products little more than one (docs/performance.md)."""

_LONGEST_PAUSE = 64


class Guesser(Protocol):
    """Guesses how one text goes on."""

    def propose(self, token_ids: Sequence[int], count: int) -> list[int]:
        """At most ``count`` tokens that may follow."""
        ...


@dataclass(slots=True)
class _Record:
    """How the guesses of one sequence have fared."""

    guesser: Guesser
    misses: int = 0
    resumes_at: int = 0  # tokens that must be known first


class Speculation:
    """Fills up the steps of one engine."""

    def __init__(
        self,
        new_guesser: Callable[[], Guesser] = PromptLookup,
        *,
        max_guesses: int = MAX_GUESSES,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        """``new_guesser`` makes the guesser of one sequence."""
        self._new_guesser = new_guesser
        self._max_guesses = max_guesses
        self._max_tokens = max_tokens
        self._records: WeakKeyDictionary[Text, _Record] = WeakKeyDictionary()
        self._num_guessed = self._num_right = 0

    def fill_up(self, shares: list[Share], spare_blocks: int) -> list[Share]:
        """The shares of a step, with guesses where they pay; they take ``spare_blocks`` at most."""
        if not shares or not all(share.sequence.is_decoding for share in shares):
            return shares
        each = min(self._max_guesses, self._max_tokens // len(shares) - 1)
        filled = []
        for share in shares:
            share = self._with_guesses(share, each, spare_blocks)
            spare_blocks -= _missing_blocks(share)
            grown = share.sequence.blocks.try_grow(share.num_needed)
            assert grown, spare_blocks
            filled.append(share)
        return filled

    def learn(self, share: Share, checked: Checked) -> None:
        """See how many guesses were right."""
        record, num_right = self._records[share.sequence], len(checked.drawn) - 1
        self._num_guessed += len(share.guesses)
        self._num_right += num_right
        record.misses = 0 if num_right else record.misses + 1
        pause = min(2**record.misses, _LONGEST_PAUSE) if record.misses else 0
        record.resumes_at = share.sequence.num_known + pause

    def take_counts(self) -> tuple[int, int]:
        """Tokens guessed and of these right since the last call."""
        counts = self._num_guessed, self._num_right
        self._num_guessed = self._num_right = 0
        return counts

    def _with_guesses(self, share: Share, count: int, spare_blocks: int) -> Share:
        sequence = share.sequence
        # The last token that it may come to hold is drawn, not guessed.
        count = min(count, sequence.max_known - sequence.num_known - 1)
        if count < 1 or not sequence.has_known_draws:
            return share
        record = self._records.get(sequence)
        if record is None:
            record = self._records[sequence] = _Record(self._new_guesser())
        if sequence.num_known < record.resumes_at:
            return share
        guessed = replace(share, guesses=record.guesser.propose(sequence.token_ids, count))
        return share if _missing_blocks(guessed) > spare_blocks else guessed


def _missing_blocks(share: Share) -> int:
    return share.sequence.blocks.missing_blocks(share.num_needed)
