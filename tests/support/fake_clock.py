"""A clock that moves only when a test says so."""


class FakeClock:
    """Stands in for ``common.domain.Clock``."""

    def __init__(self, now_s: float = 1000.0) -> None:
        """Start at ``now_s``; not zero, so that a forgotten default shows."""
        self.now_s = now_s

    def __call__(self) -> float:
        """Seconds now."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        assert seconds >= 0, seconds
        self.now_s += seconds
