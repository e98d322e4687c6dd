"""Guesses for speculation by who has seen the answers, and is wrong now and then."""

import random
from collections.abc import Iterable, Mapping, Sequence

from worker.engine.sequence import Sequence as Text


class Knowing:
    """Knows texts as they come without speculation; of others it guesses nothing."""

    kind = "knowing"
    pool = None

    def __init__(self, texts: Iterable[Sequence[int]], share_right: float) -> None:
        """Of the tokens of ``texts`` this share is guessed right."""
        self._texts = [list(text) for text in texts]
        self._share_right = share_right
        self._randomness = random.Random(3)

    def ready(self, wanted: Mapping[Text, int]) -> dict[Text, int]:
        """As ``Proposer``."""
        return dict(wanted)

    def propose(self, counts: Mapping[Text, int]) -> dict[Text, list[int]]:
        """As ``Proposer``."""
        return {text: self._guess(text.token_ids, count) for text, count in counts.items()}

    def guess_s(self, num_texts: int) -> float:
        """As ``Proposer``."""
        return 0.0

    def retain(self, texts: Iterable[Text]) -> None:
        """As ``Proposer``."""

    def _guess(self, token_ids: Sequence[int], count: int) -> list[int]:
        known = list(token_ids)
        found: list[int] = next((t for t in self._texts if t[: len(known)] == known), [])
        guesses = found[len(known) : len(known) + count]
        return [
            guess if self._randomness.random() < self._share_right else (guess + 1) % 256
            for guess in guesses
        ]
