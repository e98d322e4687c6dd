"""A plan's view of the order: what is still to be had, class by class and tenant by tenant, without touching the queue.

What one worker takes is gone for the others, and its tenant steps back by what the prompt costs. Everything is made
when it is first looked at: most plans never look below the highest class or beyond a few tenants.
"""

import heapq
from collections.abc import Iterator, Sequence

from common.domain import Priority
from scheduler.planning.cursor import Cursor
from scheduler.planning.fairness import Fairness
from scheduler.planning.fit import WorkerView
from scheduler.planning.lanes import ClassOrder, Lane
from scheduler.planning.queue import WaitingQueue
from scheduler.planning.tenant_line import Place, TenantLine
from scheduler.planning.waiting import Entry, Key, LaneKey, WaitingRequest

_LEVELS = tuple(sorted(Priority, reverse=True))


class Served:
    """What a plan adds to the tenants' counters, and which entries it has taken."""

    def __init__(self, fairness: Fairness, taken: set[int]) -> None:
        """Nothing yet but what is ``taken`` from the start."""
        self.taken = taken
        self._fairness = fairness
        self._served: dict[tuple[Priority, str], float] = {}

    def rank(self, level: Priority, tenant: str) -> int:
        """How much a tenant has had, in quanta."""
        served = self._served.get((level, tenant))
        if served is None:
            served = self._fairness.served(level, tenant)
        return self._fairness.rank_of(served)

    def take(self, entry: Entry, generated_tokens: int = 0) -> None:
        """An entry is gone, and its tenant has had its prompt."""
        self.taken.add(entry.number)
        request, key = entry.request, (entry.request.priority, entry.request.tenant)
        prompt_tokens = 0 if request.is_charged else request.prompt_tokens
        before = self._served.get(key)
        if before is None:
            before = self._fairness.served(*key)
        cost = self._fairness.cost(request.tenant, prompt_tokens, generated_tokens)
        self._served[key] = before + cost


class OpenLine:
    """A tenant's line in one class of a lane: a cursor for each bucket."""

    def __init__(self, line: TenantLine, served: Served) -> None:
        """Nothing of it is taken that ``served`` does not know."""
        self.tenant = line.tenant
        self._level = line.level
        self._served = served
        self._cursors = [
            Cursor(keys, bucket, served.taken) for bucket, keys in line.buckets.items()
        ]
        self._head = line.head

    @property
    def head(self) -> Key | None:
        """What is due first; None: nothing is left."""
        head = self._head
        if head is not None and head[1] in self._served.taken:
            keys = [cursor.key for cursor in self.cursors]
            head = self._head = min((key for key in keys if key is not None), default=None)
        return head

    @property
    def cursors(self) -> list[Cursor]:
        """The buckets that have something left."""
        taken = self._served.taken
        for cursor in self._cursors:
            if cursor.key is not None and cursor.key[1] in taken:
                cursor.stand()
        self._cursors = [cursor for cursor in self._cursors if cursor.key is not None]
        return self._cursors

    @property
    def rank(self) -> int:
        """How much the tenant has had, in quanta."""
        return self._served.rank(self._level, self.tenant)


class OpenClass:
    """The lines of one class that workers of one kind may take from, the least served tenant first."""

    def __init__(
        self, orders: Sequence[ClassOrder], made: dict[int, OpenLine], served: Served
    ) -> None:
        """``made`` holds the plan's lines, which several kinds of workers share."""
        self._made = made
        self._served = served
        self._heap: list[tuple[int, float, int, OpenLine]] = []
        # Unseen places, lane by lane, as (next place, the rest): a line is opened when its turn comes.
        self._unseen = [
            (place, places)
            for places in (iter(order.places) for order in orders)
            if (place := next(places, None)) is not None
        ]

    def first(self) -> tuple[OpenLine, Entry] | None:
        """The line whose turn it is, and the request in it that is due first."""
        heap = self._heap
        while True:
            self._open_due()
            if not heap:
                return None
            rank, _, number, line = heap[0]
            head, now_rank = line.head, line.rank
            if head is None:
                heapq.heappop(heap)
            elif head[1] == number and now_rank == rank:
                return line, head[2]
            else:
                heapq.heapreplace(heap, (now_rank, head[0], head[1], line))

    def first_few(self, count: int) -> Iterator[tuple[OpenLine, Entry]]:
        """Up to ``count`` lines in the order of their turns; the order stands again when the loop is left."""
        aside: list[tuple[int, float, int, OpenLine]] = []
        try:
            while len(aside) < count and (found := self.first()) is not None:
                aside.append(heapq.heappop(self._heap))
                yield found
        finally:
            for item in aside:
                heapq.heappush(self._heap, item)

    def _open_due(self) -> None:
        """Open the lines that stand before all that are open."""
        heap = self._heap
        unseen = self._unseen
        for index in range(len(unseen) - 1, -1, -1):
            place, places = unseen[index]
            while not heap or place[:3] < heap[0][:3]:
                heapq.heappush(heap, (*place[:3], self._line(place)))
                following = next(places, None)
                if following is None:
                    del unseen[index]
                    break
                place = following
                unseen[index] = (place, places)

    def _line(self, place: Place) -> OpenLine:
        line = self._made.get(place[2])
        if line is None:
            line = self._made[place[2]] = OpenLine(place[3], self._served)
        return line


class OpenOrder:
    """All classes of all lanes, shared by all workers of a plan."""

    def __init__(self, queue: WaitingQueue, skip: frozenset[str], now_s: float) -> None:
        """Nothing taken yet; ``skip`` names requests that no worker may get."""
        self._now_s = now_s
        taken = {queue.number_of(request_id) for request_id in skip}
        self.served = Served(queue.fairness, taken)
        # Who is to run alone is picked by a rule of its own (``quarantine``).
        self._lanes = [(key, lane) for key, lane in queue.lanes() if not key.alone]
        self._made: dict[int, OpenLine] = {}
        self._overdue: dict[LaneKey, list[Cursor]] = {}
        self._of_kinds: dict[tuple[str, str, Priority], OpenClass] = {}

    def levels(self, worker: WorkerView) -> Iterator[tuple[OpenClass, OpenLine, Entry]]:
        """The classes that ``worker`` may take from, highest first, each with the line whose turn it is and its head."""
        for level in _LEVELS:
            kind = (worker.fingerprint, worker.model_revision, level)
            found = self._of_kinds.get(kind)
            if found is None:
                orders = [lane.classes[level] for lane in self._served_by(worker)]
                found = self._of_kinds[kind] = OpenClass(orders, self._made, self.served)
            first = found.first()
            if first is not None:
                yield found, *first

    def has_any(self, worker: WorkerView) -> bool:
        """Whether there is anything that ``worker`` may take."""
        return next(self.levels(worker), None) is not None

    def num_alike(self, worker: WorkerView, level: Priority, bucket: int) -> int:
        """How many requests of a class and bucket ``worker`` may take, those of this plan included."""
        return sum(lane.classes[level].by_bucket[bucket] for lane in self._served_by(worker))

    def oldest_arrival_s(self, worker: WorkerView) -> float:
        """When the longest waiting of what ``worker`` may take arrived."""
        times = (lane.oldest_arrival_s for lane in self._served_by(worker))
        return min((at_s for at_s in times if at_s is not None), default=float("inf"))

    def overdue(self, worker: WorkerView) -> list[Cursor]:
        """What ``worker`` may take of what is overdue, by lane and class; only where there is anything."""
        found: list[Cursor] = []
        for key, lane in self._lanes:
            if not worker.serves(key):
                continue
            cursors = self._overdue.get(key)
            if cursors is None:
                cursors = self._overdue[key] = [
                    Cursor(keys, -1, self.served.taken, self._now_s)
                    for keys in lane.by_patience.values()
                    if keys and keys.first[0] <= self._now_s
                ]
            for cursor in cursors:
                cursor.stand()
            found += [cursor for cursor in cursors if cursor.key is not None]
        return found

    def left(self, above: Priority) -> Iterator[Entry]:
        """What nobody has taken of each class higher than ``above``, in order. The plan's picking is over then."""
        for level in range(Priority.CRITICAL, above, -1):
            orders = [lane.classes[Priority(level)] for _, lane in self._lanes]
            of_class = OpenClass(orders, self._made, self.served)
            while (first := of_class.first()) is not None:
                self.served.take(first[1])
                yield first[1]

    def take(self, entry: Entry) -> None:
        """An entry goes to a worker."""
        self.served.take(entry)

    def _served_by(self, worker: WorkerView) -> Iterator[Lane]:
        return (lane for key, lane in self._lanes if worker.serves(key))


def order_of_service(queue: WaitingQueue, count: int) -> list[WaitingRequest]:
    """The first ``count`` requests in the order in which workers that serve everything would get them now.

    Each tenant steps back by its prompts and by what such requests generate; deadlines and room are not foreseen.
    """
    served = Served(queue.fairness, set())
    made: dict[int, OpenLine] = {}
    found: list[WaitingRequest] = []
    for level in _LEVELS:
        orders = [lane.classes[level] for _, lane in queue.lanes()]
        of_class = OpenClass(orders, made, served)
        while len(found) < count and (first := of_class.first()) is not None:
            entry = first[1]
            served.take(entry, queue.settings.reserve_tokens)
            found.append(entry.request)
    return found


def lanes_without_worker(
    queue: WaitingQueue, workers: list[WorkerView]
) -> Iterator[tuple[LaneKey, Lane]]:
    """Lanes that none of ``workers`` serves."""
    for key, lane in queue.lanes():
        if not any(worker.serves(key) for worker in workers):
            yield key, lane
