"""How much of large messages is held at once, over all calls: each may be in order, and all together more than there is memory.

A message is held from when it is there to the end of its call: it waits to be looked at and tokenized, and then for its answer.
"""

from types import TracebackType
from typing import Self

from common.errors import QueueFull
from gateway.message_size import SMALL_BYTES

_LONGEST_MESSAGES = 64
_LEAST_BYTES = 256 * 1024 * 1024
_RETRY_AFTER_S = 1.0


class HeldMessages:
    """What all calls hold; small messages do not count, of which the number of calls is the bound."""

    def __init__(self, max_message_bytes: int) -> None:
        """Room for 64 of the longest messages, and for 256 MiB at least: more text than queues of usual bounds take."""
        self._most_bytes = max(_LONGEST_MESSAGES * max_message_bytes, _LEAST_BYTES)
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Held now."""
        return self._num_bytes

    def share(self) -> "Share":
        """For one call, empty so far."""
        return Share(self)

    def change(self, by: int) -> None:
        """Hold so much more.

        Raises:
            QueueFull: that would be too much; nothing has changed.
        """
        if by > 0 and self._num_bytes + by > self._most_bytes:
            raise QueueFull(
                f"the large messages of all calls have more than {self._most_bytes} bytes now",
                reason="MESSAGES_FULL",
                retry_after_s=_RETRY_AFTER_S,
            )
        self._num_bytes += by


class Share:
    """What one call holds, until the block is left."""

    __slots__ = ("_all", "_num_bytes")

    def __init__(self, of: HeldMessages) -> None:
        """Nothing."""
        self._all = of
        self._num_bytes = 0

    def hold(self, num_bytes: int) -> None:
        """Its message has so many bytes, as far as it has come.

        Raises:
            QueueFull: others hold too much beside it.
        """
        if num_bytes > SMALL_BYTES:
            self._all.change(num_bytes - self._num_bytes)
            self._num_bytes = num_bytes

    def __enter__(self) -> Self:
        """Still nothing."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give it back."""
        self._all.change(-self._num_bytes)
        self._num_bytes = 0
