"""Times at which something happens to a waiting request, found without looking at all of them."""

import heapq

from scheduler.planning.waiting import Entry


class Timers:
    """A heap of times, at most one per entry. What is dropped stays in the heap until it surfaces or is in the majority."""

    def __init__(self) -> None:
        """Without entries."""
        self._heap: list[tuple[float, int, Entry]] = []
        self._at_s: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._at_s)

    def set(self, entry: Entry, at_s: float) -> None:
        """Set the entry's time, in place of one it may have."""
        self._at_s[entry.number] = at_s
        heapq.heappush(self._heap, (at_s, entry.number, entry))
        self._compact()

    def drop(self, entry: Entry) -> None:
        """Forget the entry's time, if it has one."""
        if self._at_s.pop(entry.number, None) is not None:
            self._compact()

    def next_s(self) -> float | None:
        """The earliest time."""
        while self._heap and not self._is_live(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_s: float) -> list[Entry]:
        """Take out the entries whose time has come, earliest first."""
        due = []
        while (next_s := self.next_s()) is not None and next_s <= now_s:
            _, number, entry = heapq.heappop(self._heap)
            del self._at_s[number]
            due.append(entry)
        return due

    def _is_live(self, item: tuple[float, int, Entry]) -> bool:
        return self._at_s.get(item[1]) == item[0]

    def _compact(self) -> None:
        # Each rebuild is paid for by as many drops: amortized constant.
        if len(self._heap) > 2 * len(self._at_s) + 64:
            self._heap = [item for item in self._heap if self._is_live(item)]
            heapq.heapify(self._heap)
