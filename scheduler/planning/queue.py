"""The one queue: every request of a partition that waits for a worker."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import partial
from heapq import merge

from common.domain import Priority
from scheduler.planning.ageing import overdue_s
from scheduler.planning.buckets import bucket_of
from scheduler.planning.fairness import Fairness
from scheduler.planning.feasibility import Hopeless, check_deadline
from scheduler.planning.kept import KeptWorker
from scheduler.planning.lanes import Lane
from scheduler.planning.ordering import due_s
from scheduler.planning.output_lengths import OutputLengths
from scheduler.planning.pace import Pace
from scheduler.planning.prefixes import PrefixIndex
from scheduler.planning.recompute import RecomputeBudget
from scheduler.planning.settings import PlanningSettings
from scheduler.planning.timers import Timers
from scheduler.planning.unserved import Unserved
from scheduler.planning.waiting import Entry, LaneKey, WaitingRequest

__all__ = ["WaitingQueue", "WaitingRequest"]


class WaitingQueue:
    """Waiting requests in the order of docs/scheduling.md, with the counts that people and admission ask for."""

    def __init__(self, settings: PlanningSettings) -> None:
        """Empty."""
        self.settings = settings
        self.kept = KeptWorker()
        self.fairness = Fairness(settings)
        self.lengths = OutputLengths(settings)
        self.pace = Pace()
        self.prefixes = PrefixIndex()
        self.recompute = RecomputeBudget(settings)
        self.unserved = Unserved(settings)
        self.num_picked = 0
        self._entries: dict[str, Entry] = {}
        self._lanes: dict[LaneKey, Lane] = {}
        self._next_number = 0
        self._deadlines = Timers()
        self._expired: dict[str, str] = {}
        self._doubtful: list[Entry] = []
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
            bucket=bucket_of(self._to_compute(request), self.settings),
            overdue_s=overdue_s(request, self.settings),
        )
        self._next_number += 1
        self._entries[request.request_id] = entry
        self._enter(entry)
        # The caller's own deadline is looked at from the start: it may be out of reach already.
        self._deadlines.set(
            entry, request.arrival_s if request.has_deadline else request.deadline_s
        )
        self._by_class[request.priority] += 1
        self._by_tenant[request.tenant] += 1
        self._tokens += request.known_tokens

    def remove(self, request_id: str) -> WaitingRequest | None:
        """Take a request out that does not start; None: it does not wait here."""
        entry = self._entries.pop(request_id, None)
        if entry is None:
            return None
        request = entry.request
        self._leave(entry)
        self._deadlines.drop(entry)
        self._expired.pop(request_id, None)
        self._by_class[request.priority] -= 1
        self._by_tenant[request.tenant] -= 1
        if not self._by_tenant[request.tenant]:
            del self._by_tenant[request.tenant]
        self._tokens -= request.known_tokens
        return request

    def start(self, request_id: str) -> WaitingRequest | None:
        """Take a request out that starts, and charge its prompt; None: it does not wait here."""
        request = self.remove(request_id)
        if request is None:
            return None
        self.pace.started()
        if not request.is_charged:
            self.charge(request.priority, request.tenant, prompt_tokens=request.prompt_tokens)
        return request

    def charge(
        self, level: Priority, tenant: str, *, prompt_tokens: int = 0, generated_tokens: int = 0
    ) -> None:
        """A tenant was served in a class (rule 4)."""
        self.recompute.computed(prompt_tokens + generated_tokens)
        cost = self.fairness.cost(tenant, prompt_tokens, generated_tokens)
        if self.fairness.charge(level, tenant, cost):
            for lane in self._lanes.values():
                lane.classes[level].served(tenant)

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

    # What only the planner calls.

    def lanes(self) -> Iterable[tuple[LaneKey, Lane]]:
        """All lanes, in the order in which they came into being."""
        return self._lanes.items()

    def suspects(self) -> Iterator[Entry]:
        """The requests that are to run alone, in order."""
        lanes = [lane for key, lane in self._lanes.items() if key.alone]
        for level in sorted(Priority, reverse=True):
            for _, _, entry in merge(*(lane.classes[level].in_due_order() for lane in lanes)):
                yield entry

    def number_of(self, request_id: str) -> int:
        """A waiting request's number in the order of its coming."""
        return self._entries[request_id].number

    def lane_key(self, request_id: str) -> LaneKey:
        """What a waiting request needs of a worker."""
        return self._entries[request_id].request.lane_key

    def num_before(self, entry: Entry) -> int:
        """About how many requests are served before this one as things stand."""
        return self._lanes[entry.request.lane_key].num_before(entry)

    def expire(self, now_s: float) -> Mapping[str, str]:
        """Requests that miss their deadline wherever they stand, and why (rule 1); named again until they are removed."""
        for entry in self._deadlines.pop_due(now_s):
            request = entry.request
            verdict = check_deadline(request, self._to_compute(request), 0, self.pace, now_s)
            if isinstance(verdict, Hopeless):
                self._expired[request.request_id] = verdict.reason
            else:
                self._deadlines.set(entry, verdict.at_s)
                self._doubtful.append(entry)
        return dict(self._expired)

    def expire_waiting(
        self, picked: Container[str], now_s: float, *, has_workers: bool
    ) -> Mapping[str, str]:
        """Of those that were just looked at and are not ``picked``: who waits too long to make it, and why."""
        doubtful, self._doubtful = self._doubtful, []
        found: dict[str, str] = {}
        if not (has_workers and self.pace.is_known):  # how fast workers come back, nobody knows
            return found
        for entry in doubtful:
            request_id = entry.request.request_id
            # How many are before it at most is known at once; where it really stands takes a search, which few need.
            if request_id in picked or not self._is_late(entry, self._most_before(entry), now_s):
                continue
            verdict = self._is_late(entry, self.num_before(entry), now_s)
            if verdict is not None:
                found[request_id] = self._expired[request_id] = verdict.reason
        return found

    def _is_late(self, entry: Entry, num_before: int, now_s: float) -> Hopeless | None:
        """Why a request cannot make its deadline behind so many; None: it can."""
        request = entry.request
        to_compute = self._to_compute(request)
        verdict = check_deadline(request, to_compute, num_before, self.pace, now_s)
        return verdict if isinstance(verdict, Hopeless) else None

    def _most_before(self, entry: Entry) -> int:
        return self._lanes[entry.request.lane_key].most_before(entry.request.priority)

    def next_expiry_s(self) -> float | None:
        """When the next request expires."""
        return self._deadlines.next_s()

    def _to_compute(self, request: WaitingRequest) -> int:
        """Tokens of a request to compute, if it goes where most of its prompt is cached."""
        return request.to_compute(self.prefixes.longest(request.prefix))

    def _enter(self, entry: Entry) -> None:
        key, level = entry.request.lane_key, entry.request.priority
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(self.fairness)
        self.fairness.join(level, entry.request.tenant, partial(self._least_rank, level))
        lane.add(entry)

    def _least_rank(self, level: Priority) -> int | None:
        """How much the least served tenant that waits in a class has had, in quanta."""
        ranks = [lane.least_rank(level) for lane in self._lanes.values()]
        return min((rank for rank in ranks if rank is not None), default=None)

    def _leave(self, entry: Entry) -> None:
        key = entry.request.lane_key
        lane = self._lanes[key]
        lane.remove(entry)
        if not lane:
            del self._lanes[key]
        self.fairness.leave(entry.request.priority, entry.request.tenant)
