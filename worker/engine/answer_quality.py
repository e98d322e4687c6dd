"""How good an answer looks by itself: what the model thought of its own tokens, and how varied they are. Pure.

Of a share of the requests only: a token's log probability costs another look at its row of the vocabulary.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

NGRAMS = (1, 2, 3)
# A shorter answer has no variety to speak of.
LEAST_TOKENS = 8
_MAX_LOSS = 50.0


@dataclass(frozen=True, slots=True)
class AnswerQuality:
    """``distinct`` has, for each of ``NGRAMS``, the share of different sequences of so many tokens."""

    perplexity: float
    distinct: tuple[float, ...]


class QualityTally:
    """Grows with the tokens of one answer, as far as they are drawn here."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._token_ids: list[int] = []
        self._loss = 0.0

    def add(self, token_id: int, logprob: float) -> None:
        """One more token, and what the model gave it."""
        self._token_ids.append(token_id)
        self._loss -= max(logprob, -_MAX_LOSS)

    def results(self) -> list[AnswerQuality]:
        """What came of it; nothing if it is too short."""
        count = len(self._token_ids)
        if count < LEAST_TOKENS:
            return []
        variety = tuple(distinct([self._token_ids], n) for n in NGRAMS)
        return [AnswerQuality(math.exp(self._loss / count), variety)]


def is_sampled(request_id: str, share: float) -> bool:
    """Whether a request is among those that are looked at: the same ones wherever they run."""
    return zlib.crc32(request_id.encode()) < share * (1 << 32)


def distinct(answers: Sequence[Sequence[int]], n: int) -> float:
    """Different sequences of ``n`` tokens, of all that there are."""
    found = [tuple(one[i : i + n]) for one in answers for i in range(len(one) - n + 1)]
    return len(set(found)) / len(found) if found else 0.0
