"""The order of waiting requests that need the same of a worker: by class, tenant, and due time, split by length bucket."""

from collections import Counter
from collections.abc import Iterator
from heapq import merge

from common.domain import Priority
from scheduler.planning.fairness import Fairness
from scheduler.planning.sorted_keys import SortedKeys
from scheduler.planning.tenant_line import Place, TenantLine
from scheduler.planning.waiting import Entry, Key


class ClassOrder:
    """One class of a lane: its tenants, the least served first, each with its requests."""

    def __init__(self, level: Priority, fairness: Fairness) -> None:
        """Without requests."""
        self._level = level
        self._fairness = fairness
        self._lines: dict[str, TenantLine] = {}
        self.places: SortedKeys[Place] = SortedKeys()
        self.by_bucket: Counter[int] = Counter()
        self.num_waiting = 0

    def add(self, entry: Entry) -> None:
        """Put an entry in its place."""
        tenant = entry.request.tenant
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = TenantLine(tenant, self._level)
        if line.add(entry):
            self._stand(line)
        self.by_bucket[entry.bucket] += 1
        self.num_waiting += 1

    def remove(self, entry: Entry) -> None:
        """Take an entry out."""
        line = self._lines[entry.request.tenant]
        if line.remove(entry):
            self._stand(line)
            if line.head is None:
                del self._lines[line.tenant]
        self.by_bucket[entry.bucket] -= 1
        self.num_waiting -= 1

    def served(self, tenant: str) -> None:
        """The tenant's counter has moved."""
        line = self._lines.get(tenant)
        if line is not None:
            self._stand(line)

    def num_before(self, entry: Entry) -> int:
        """About how many requests go before this one: tenants take turns, and its own are in due order."""
        line = self._lines[entry.request.tenant]
        turns = line.num_before(entry.key) + 1
        return min(turns * len(self._lines), self.num_waiting) - 1

    def in_due_order(self) -> Iterator[Key]:
        """The keys of all tenants and buckets."""
        return merge(*(keys for line in self._lines.values() for keys in line.buckets.values()))

    def _stand(self, line: TenantLine) -> None:
        if line.place is not None:
            self.places.remove(line.place)
            line.place = None
        if line.head is not None:
            rank = self._fairness.rank_of(self._fairness.served(self._level, line.tenant))
            due_s, number, _ = line.head
            line.place = (rank, due_s, number, line)
            self.places.add(line.place)


class Lane:
    """Requests with one fingerprint and model revision: whatever may serve one of them may serve all.

    ``by_patience`` are those of each class by when its patience runs out, which is the order of their coming: what is
    overdue stands in front, and nobody has to mark it when its time comes.
    """

    def __init__(self, fairness: Fairness) -> None:
        """Without requests."""
        self.classes = {level: ClassOrder(level, fairness) for level in Priority}
        self.by_patience: dict[Priority, SortedKeys[Key]] = {p: SortedKeys() for p in Priority}
        self.impatient: dict[str, None] = {}

    def __len__(self) -> int:
        return sum(len(keys) for keys in self.by_patience.values())

    def add(self, entry: Entry) -> None:
        """Put an entry in its place."""
        self.classes[entry.request.priority].add(entry)
        self.by_patience[entry.request.priority].add(entry.patience_key)
        if not entry.request.hold:
            self.impatient[entry.request.request_id] = None

    def remove(self, entry: Entry) -> None:
        """Take an entry out."""
        self.classes[entry.request.priority].remove(entry)
        self.by_patience[entry.request.priority].remove(entry.patience_key)
        self.impatient.pop(entry.request.request_id, None)

    @property
    def request_ids(self) -> Iterator[str]:
        """All requests, class by class."""
        for of_class in self.classes.values():
            for _, _, entry in of_class.in_due_order():
                yield entry.request.request_id

    @property
    def oldest_arrival_s(self) -> float | None:
        """When the longest waiting request arrived."""
        firsts = (keys.first[2] for keys in self.by_patience.values() if keys)
        return min((entry.request.arrival_s for entry in firsts), default=None)

    def least_rank(self, level: Priority) -> int | None:
        """How much the least served tenant that waits in a class has had, in quanta."""
        places = self.classes[level].places
        return places.first[0] if places else None

    def num_before(self, entry: Entry) -> int:
        """About how many requests of this lane go before one that waits here."""
        of_class = self.classes[entry.request.priority]
        others = self.most_before(entry.request.priority) - (of_class.num_waiting - 1)
        return others + of_class.num_before(entry)

    def most_before(self, level: Priority) -> int:
        """How many requests of this lane go before one of a class that waits here, wherever in its class it stands."""
        return sum(self.classes[p].num_waiting for p in Priority if p >= level) - 1
