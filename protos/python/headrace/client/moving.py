"""When a stream leaves a gateway that lives and has lost the queue, and for which other one.

Such a gateway says so in its keepalives. Where others reach the queue, the request soon counts as one that nobody follows.
So the stream tries the other targets, and goes to the first that takes it up. Until then it stays: where the queue is away
for everybody, nothing is better than waiting here.
"""

import random
from collections.abc import Sequence

from headrace.v1 import inference_service_pb2 as pb

TRIAL_S = 4.0
"""How long another gateway has to take the stream up: above the 2 s for which it looks into the queue itself, and short
enough for a second one, if not for a third, within the 7 to 8 s that the request still lives when its gateway knows (docs/delivery.md)."""

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 5.0


class Moving:
    """Of one stream: where to look, and not too often."""

    def __init__(self, num_targets: int) -> None:
        """With one target there is nowhere to go."""
        self._num_targets = num_targets
        self._num_rounds = 0
        self._next_s = float("-inf")

    def progressed(self) -> None:
        """The stream brings tokens where it is."""
        self._num_rounds = 0

    def others(self, event: pb.GenerateStreamResponse, used: int, now_s: float) -> Sequence[int]:
        """The targets to try in turn on ``event`` from target ``used``; none where it is no reason, or is too soon."""
        if not event.keepalive.queue_unreachable or now_s < self._next_s:
            return ()
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**self._num_rounds)
        # Half as much again is drawn: the streams of a gateway are all told at once.
        self._next_s = now_s + pause_s * (1.0 + 0.5 * random.random())  # noqa: S311
        self._num_rounds += 1
        return [(used + step) % self._num_targets for step in range(1, self._num_targets)]
