"""Moments by the clock of a partition's node, in this process's monotonic time. As old as the last answer that told it."""


class NodeTime:
    """What the two clocks differ by."""

    def __init__(self) -> None:
        """Not known."""
        self._behind_s: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether the node has told its time."""
        return self._behind_s is not None

    def saw(self, node_ms: int, now_s: float) -> None:
        """An answer that has just come says ``node_ms`` (Unix milliseconds)."""
        self._behind_s = node_ms / 1000 - now_s

    def here_s(self, node_ms: int) -> float:
        """A moment of the node's by our clock."""
        assert self._behind_s is not None
        return node_ms / 1000 - self._behind_s

    def past_s(self, node_ms: int, now_s: float) -> float:
        """The same of a moment that is over: an answer that took long makes it look later than now."""
        return min(now_s, self.here_s(node_ms))
