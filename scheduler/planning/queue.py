"""The one queue: every request of a partition that waits for a worker."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from itertools import islice

from common.domain import Priority
from scheduler.planning.ageing import Ageing
from scheduler.planning.buckets import bucket_of
from scheduler.planning.kept import KeptWorker
from scheduler.planning.lanes import Lane
from scheduler.planning.ordering import due_s
from scheduler.planning.settings import PlanningSettings
from scheduler.planning.timers import Timers
from scheduler.planning.waiting import Entry, LaneKey, WaitingRequest

__all__ = ["WaitingQueue", "WaitingRequest"]


class WaitingQueue:
    """Waiting requests in the order of docs/scheduling.md, with the counts that people and admission ask for."""

    def __init__(self, settings: PlanningSettings) -> None:
        """Empty."""
        self.settings = settings
        self.kept = KeptWorker()
        self._ageing = Ageing(settings)
        self._entries: dict[str, Entry] = {}
        self._lanes: dict[LaneKey, Lane] = {}
        self._next_number = 0
        self._deadlines = Timers()
        self._expired: dict[str, None] = {}
        self._rises = Timers()
        self._arrivals = Timers()
        self._by_class: Counter[Priority] = Counter()
        self._by_tenant: Counter[str] = Counter()
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._entries

    def add(self, request: WaitingRequest) -> None:
        """Queue a request; it must not be queued already."""
        assert request.request_id not in self._entries, request
        entry = Entry(
            request=request,
            number=self._next_number,
            due_s=due_s(request, self.settings),
            bucket=bucket_of(request, self.settings),
            level=request.priority,
        )
        self._next_number += 1
        self._entries[request.request_id] = entry
        self._lane_of(request).add(entry)
        self._deadlines.set(entry, request.deadline_s)
        self._arrivals.set(entry, request.arrival_s)
        self._set_rise(entry)
        self._by_class[request.priority] += 1
        self._by_tenant[request.tenant] += 1
        self._tokens += request.known_tokens

    def remove(self, request_id: str) -> WaitingRequest | None:
        """Take a request out; None: it does not wait here."""
        entry = self._entries.pop(request_id, None)
        if entry is None:
            return None
        request = entry.request
        lane = self._lanes[request.lane_key]
        lane.remove(entry)
        if not lane:
            del self._lanes[request.lane_key]
        for timers in (self._deadlines, self._rises, self._arrivals):
            timers.drop(entry)
        self._expired.pop(request_id, None)
        self._by_class[request.priority] -= 1
        self._by_tenant[request.tenant] -= 1
        if not self._by_tenant[request.tenant]:
            del self._by_tenant[request.tenant]
        self._tokens -= request.known_tokens
        return request

    def position(self, request_id: str) -> int | None:
        """How many requests are to be served before this one as things stand; None: it does not wait here."""
        entry = self._entries.get(request_id)
        if entry is None:
            return None
        return sum(lane.num_before(entry.key, entry.level) for lane in self._lanes.values())

    def first(self, count: int) -> list[WaitingRequest]:
        """The first ``count`` requests in order."""
        keys = (
            key
            for level in sorted(Priority, reverse=True)
            for key in merge(*(lane.in_order(level) for lane in self._lanes.values()))
        )
        return [entry.request for _, _, entry in islice(keys, count)]

    @property
    def by_class(self) -> Mapping[Priority, int]:
        """Waiting requests of each class they came in."""
        return {priority: self._by_class[priority] for priority in Priority}

    @property
    def by_tenant(self) -> Mapping[str, int]:
        """Waiting requests of each tenant that has any."""
        return dict(self._by_tenant)

    @property
    def waiting_tokens(self) -> int:
        """Tokens that workers have to compute before each waiting request can generate."""
        return self._tokens

    @property
    def oldest_arrival_s(self) -> float | None:
        """When the longest waiting request arrived."""
        return self._arrivals.next_s()

    # What only the planner calls.

    def lanes(self) -> Iterable[tuple[LaneKey, Lane]]:
        """All lanes, in the order in which they came into being."""
        return self._lanes.items()

    def suspects(self) -> Iterator[Entry]:
        """The requests that are to run alone, in order."""
        lanes = [lane for key, lane in self._lanes.items() if key.alone]
        for level in sorted(Priority, reverse=True):
            for _, _, entry in merge(*(lane.in_order(level) for lane in lanes)):
                yield entry

    def age(self, now_s: float) -> None:
        """Raise every request whose patience in its class has run out (rule 2)."""
        while due := self._rises.pop_due(now_s):
            for entry in due:
                lane = self._lanes[entry.request.lane_key]
                lane.remove(entry)
                entry.level = Priority(entry.level + 1)
                lane.add(entry)
                self._set_rise(entry)

    def expire(self, now_s: float) -> tuple[str, ...]:
        """Requests whose deadline has passed (rule 1); named again until they are removed."""
        for entry in self._deadlines.pop_due(now_s):
            self._expired[entry.request.request_id] = None
        return tuple(self._expired)

    def next_expiry_s(self) -> float | None:
        """When the next request expires."""
        return self._deadlines.next_s()

    def _set_rise(self, entry: Entry) -> None:
        after_s = self._ageing.rises_after_s(entry.request.priority, entry.level)
        if after_s is not None:
            self._rises.set(entry, entry.request.arrival_s + after_s)

    def _lane_of(self, request: WaitingRequest) -> Lane:
        lane = self._lanes.get(request.lane_key)
        if lane is None:
            lane = self._lanes[request.lane_key] = Lane(len(self.settings.bucket_bounds) + 1)
        return lane
