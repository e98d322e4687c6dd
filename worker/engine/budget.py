"""The tokens left in a step, which `plan` hands out to its rows."""


class StepBudget:
    """Tokens left in a step. Whoever asks gets as much as is left, and at most what it asks for."""

    def __init__(self, max_tokens: int) -> None:
        """A full budget."""
        self._left = max_tokens

    @property
    def left(self) -> int:
        """Tokens that nobody has taken."""
        return self._left

    def keep(self, max_tokens: int) -> None:
        """Leave at most so many."""
        self._left = min(self._left, max_tokens)

    def take(self, wanted: int) -> int:
        """Take up to ``wanted`` tokens; how many it were."""
        granted = min(wanted, self._left)
        self._left -= granted
        return granted
