"""Which requests this gateway has just seen end.

The finish is in the log a moment before the terminal record is written. A client that was told the end and then asks
for the record must not be told that the request still runs.
"""

from collections import OrderedDict

from common.clock import monotonic_s
from common.domain import Clock

# A terminal record follows its finish within milliseconds; an owner that dies in between is replaced in seconds.
KEEP_S = 10.0
MAX_ENDS = 10_000


class RecentEnds:
    """A bounded memory of ids."""

    def __init__(self, clock: Clock = monotonic_s) -> None:
        """Empty."""
        self._clock = clock
        self._seen_s: OrderedDict[str, float] = OrderedDict()

    def note(self, request_id: str) -> None:
        """The request's last finish was read from the log."""
        now_s = self._clock()
        self._seen_s[request_id] = now_s
        self._seen_s.move_to_end(request_id)
        while len(self._seen_s) > MAX_ENDS or next(iter(self._seen_s.values())) < now_s - KEEP_S:
            self._seen_s.popitem(last=False)

    def __contains__(self, request_id: str) -> bool:
        """Whether it ended here not long ago."""
        return self._clock() - self._seen_s.get(request_id, float("-inf")) <= KEEP_S
