"""Which tokens a sequence holds, and how often each stands in its output: what penalties look at, kept up token by token."""

from array import array
from collections.abc import Sequence


class SeenTokens:
    """Distinct tokens of prompt and output; entry i of both arrays is about the same token."""

    def __init__(self, prompt_token_ids: Sequence[int]) -> None:
        """What the prompt holds; nothing is generated yet."""
        self._places: dict[int, int] = {}
        self.token_ids = array("q")
        self.counts = array("d")
        """How often each was generated; as floating-point numbers, since logits are lessened by multiples of it."""
        for token_id in dict.fromkeys(prompt_token_ids):
            self._place_of(token_id)

    def add(self, token_id: int) -> None:
        """A token was generated."""
        self.counts[self._place_of(token_id)] += 1

    def _place_of(self, token_id: int) -> int:
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self.token_ids):
            self.token_ids.append(token_id)
            self.counts.append(0)
        return place
