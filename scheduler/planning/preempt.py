"""Rule 8: what runs makes room for what is more important and has no other way to start soon.

    waiting   HIGH ──waits for preempt_after_s──▶ wants room ─────────────────────────▶ starts
    running   NORMAL ──runs for its quantum──▶ may be asked ──returned──▶ waits again, resumes with its tokens

Only across a gap between classes, so that nobody drives out who drove it out. A victim has run for a quantum, which
doubles each time it is chosen, and after a few times it is left alone; so it gets on, and two requests cannot take
turns in throwing one another out. Preferred are victims whose clients have seen nothing yet, then the lowest class,
then those that cost least to compute again. What a worker still has cached of them nobody counts on: a budget bounds
what may be computed twice (``recompute``).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from scheduler.planning.fit import Room, Running
from scheduler.planning.recompute import RecomputeBudget
from scheduler.planning.settings import PlanningSettings
from scheduler.planning.waiting import Entry

# Workers looked at for one request: the cheapest of these is good enough.
_MAX_WORKERS = 32
_MAX_VICTIMS = 4


@dataclass(frozen=True, slots=True)
class Preemption:
    """A running request that is to make room, for whom, and why."""

    worker_id: str
    request_id: str
    for_request_id: str
    reason: str


@dataclass(slots=True)
class Preemptions:
    """What a plan asks back, and when time alone would allow more."""

    chosen: list[Preemption]
    look_again_s: float | None = None

    def look_at(self, at_s: float) -> None:
        """Something becomes possible at ``at_s``."""
        self.look_again_s = at_s if self.look_again_s is None else min(at_s, self.look_again_s)


def plan_preemptions(
    waiting: Iterable[Entry],
    rooms: Sequence[Room],
    budget: RecomputeBudget,
    now_s: float,
    settings: PlanningSettings,
) -> Preemptions:
    """Who makes room for the first of ``waiting``, which the plan could not place, highest class first."""
    plan = Preemptions([])
    # Room that is being made is for the first ones.
    num_leaving = sum(room.worker.num_leaving for room in rooms)
    for entry in islice(waiting, settings.max_preempting):
        if num_leaving:
            num_leaving -= 1
            continue
        request = entry.request
        allowed_s = request.arrival_s + settings.preempt_after_s[request.priority]
        if allowed_s > now_s:
            plan.look_at(allowed_s)
            continue
        _make_room(plan, entry, rooms, budget, now_s, settings)
    return plan


def _make_room(
    plan: Preemptions,
    entry: Entry,
    rooms: Sequence[Room],
    budget: RecomputeBudget,
    now_s: float,
    settings: PlanningSettings,
) -> None:
    asked = {one.request_id for one in plan.chosen}
    sets: list[tuple[tuple[bool, int, int], str, list[Running]]] = []
    for room in islice(_rooms_with_lower(entry, rooms), _MAX_WORKERS):
        able: list[Running] = []
        for one in room.worker.running:
            if _is_lower(one, entry) and one.key not in asked:
                free_s = _may_go_at_s(one, settings)
                if free_s is None:
                    continue
                if free_s <= now_s:
                    able.append(one)
                else:
                    plan.look_at(free_s)
        victims = _enough(room, entry, able)
        if victims is not None and sum(one.known_tokens for one in victims) <= budget.tokens:
            sets.append((_cost(victims), room.worker.worker_id, victims))
    if not sets:
        return
    _, worker_id, victims = min(sets, key=lambda item: item[:2])
    budget.spend(sum(one.known_tokens for one in victims))
    waited_s = now_s - entry.request.arrival_s
    reason = f"for {entry.request.priority.name}, which waited {waited_s:.2f} s"
    request_id = entry.request.request_id
    plan.chosen += [Preemption(worker_id, one.key, request_id, reason) for one in victims]


def _rooms_with_lower(entry: Entry, rooms: Sequence[Room]) -> Iterator[Room]:
    request = entry.request
    for room in rooms:
        lowest = room.worker.lowest_running
        if (
            lowest is not None
            and lowest < request.priority
            and not room.worker.runs_alone
            and room.worker.serves(request.lane_key)
            and room.could_fit(request)
        ):
            yield room


def _is_lower(one: Running, entry: Entry) -> bool:
    return one.priority < entry.request.priority and not one.is_leaving


def _may_go_at_s(one: Running, settings: PlanningSettings) -> float | None:
    """When it may be asked to make room; None: not again."""
    if one.num_preempted >= settings.max_preempted:
        return None
    return one.since_s + settings.quantum_s * 2.0**one.num_preempted


def _enough(room: Room, entry: Entry, able: list[Running]) -> list[Running] | None:
    """The cheapest of ``able`` that make enough room together, if a few do."""
    missing = room.missing(entry.request)
    if missing is None:
        return None
    seqs, blocks = missing
    victims: list[Running] = []
    for one in sorted(able, key=lambda one: (one.has_sent, one.priority, one.known_tokens)):
        if seqs <= 0 and blocks <= 0:
            break
        victims.append(one)
        seqs -= one.num_seqs
        blocks -= room.blocks_of(one.known_tokens)
    if seqs > 0 or blocks > 0 or not 0 < len(victims) <= _MAX_VICTIMS:
        return None
    return victims


def _cost(victims: list[Running]) -> tuple[bool, int, int]:
    """What it costs to make these leave: whether somebody sees it, the importance, the tokens to compute again."""
    return (
        any(one.has_sent for one in victims),
        max(one.priority for one in victims),
        sum(one.known_tokens for one in victims),
    )
