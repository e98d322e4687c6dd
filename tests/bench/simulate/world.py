"""The loop of a simulated partition: time goes from event to event, and the planner is asked after each few of them.

A leader takes in what has come since its last look; so does this: events within a tick are planned for together.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from scheduler.planning.plan import Assignment, Plan, Preemption, plan
from scheduler.planning.queue import WaitingQueue
from scheduler.planning.waiting import WaitingRequest
from tests.bench.simulate import fleet
from tests.bench.simulate.policies import Policy
from tests.bench.simulate.service import ServiceTimes
from tests.bench.simulate.trace import Arrival

_LONGEST_LIFE_S = 900.0
_CHARGE_EVERY_S = 0.5


@dataclass(slots=True)
class Outcome:
    """What became of a request; times are seconds since its arrival, None: it never came to that."""

    arrival: Arrival
    started_s: float | None = None
    first_token_s: float | None = None
    ended_s: float | None = None
    tokens: int = 0
    num_preempted: int = 0
    end: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it finished within its deadline."""
        return self.end == "finished"


@dataclass
class Depth:
    """How many waited, over time."""

    at_s: list[float] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)


class World:
    """One run."""

    def __init__(
        self,
        service: ServiceTimes,
        num_workers: int,
        policy: Policy,
        *,
        tick_s: float = 0.02,
        max_waiting: int = 1000,
    ) -> None:
        """``max_waiting`` bounds each class, as admission does."""
        self.queue = WaitingQueue(policy.settings)
        self.depth = Depth()
        self.now_s = 0.0
        self.num_plans = 0
        self.served: dict[str, list[tuple[float, int]]] = {}
        self._service = service
        self._policy = policy
        self._tick_s = tick_s
        self._max_waiting = max_waiting
        self._workers = {
            f"w{n}": fleet.SimulatedWorker(f"w{n}", service) for n in range(num_workers)
        }
        self._events: list[tuple[float, str]] = []
        self._expected: dict[str, float] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._where: dict[str, tuple[fleet.SimulatedWorker, fleet.Sequence]] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._waiting: dict[str, WaitingRequest] = {}
        self._look_again_s: float | None = None
        self._charged_s = 0.0

    def run(self, arrivals: Sequence[Arrival]) -> list[Outcome]:
        """Everything that arrives, to its end."""
        coming = iter(enumerate(arrivals))
        following = next(coming, None)
        while (at_s := self._next_s(following)) is not None:
            self.now_s = max(at_s, self.now_s + self._tick_s if self.num_plans else at_s)
            while following is not None and following[1].at_s <= self.now_s:
                self._arrive(*following)
                following = next(coming, None)
            self._advance()
            self._plan()
        return list(self._outcomes.values())

    def _next_s(self, following: tuple[int, Arrival] | None) -> float | None:
        times = [self._look_again_s] if self.queue else []
        if following is not None:
            times.append(following[1].at_s)
        times += [events[0][0] for events in (self._events, self._deadlines) if events]
        return min((at_s for at_s in times if at_s is not None), default=None)

    def _arrive(self, number: int, arrival: Arrival) -> None:
        key = str(number)
        outcome = self._outcomes[key] = Outcome(arrival)
        request = self._policy.see(
            WaitingRequest(
                request_id=key,
                priority=arrival.priority,
                tenant=arrival.tenant,
                prompt_tokens=arrival.prompt_tokens,
                max_tokens=arrival.max_tokens,
                known_tokens=arrival.prompt_tokens,
                arrival_s=arrival.at_s,
                deadline_s=arrival.at_s + (arrival.deadline_s or _LONGEST_LIFE_S),
                has_deadline=arrival.deadline_s > 0,
            )
        )
        if self.queue.by_class[request.priority] >= self._max_waiting:
            outcome.end = "refused"
            outcome.ended_s = 0.0
            return
        self._wait(request)

    def _wait(self, request: WaitingRequest) -> None:
        self._waiting[request.request_id] = request
        self.queue.add(request)

    def _advance(self) -> None:
        """Let the workers compute until now."""
        while self._events and self._events[0][0] <= self.now_s:
            at_s, worker_id = heapq.heappop(self._events)
            if self._expected.get(worker_id) == at_s:  # else it is expected at another time by now
                self._advance_worker(self._workers[worker_id])
        while self._deadlines and self._deadlines[0][0] <= self.now_s:
            _, key = heapq.heappop(self._deadlines)
            found = self._where.get(key)
            if found is not None:
                worker, sequence = found
                self._advance_worker(worker)
                if self._where.get(key) is found:
                    worker.leave(sequence)
                    self._end(sequence, "late", self.now_s)
                    self._expect(worker)
        if self.now_s - self._charged_s >= _CHARGE_EVERY_S:
            self._charged_s = self.now_s
            for worker in self._workers.values():
                for (level, tenant), tokens in worker.charges().items():
                    self.queue.charge(level, tenant, generated_tokens=tokens)

    def _advance_worker(self, worker: fleet.SimulatedWorker) -> None:
        for happened in worker.advance(self.now_s):
            outcome = self._outcomes[happened.sequence.key]
            if outcome.first_token_s is None:
                outcome.first_token_s = happened.at_s - outcome.arrival.at_s
            if happened.is_end:
                self._end(happened.sequence, "finished", happened.at_s)
                self.queue.lengths.learn(
                    happened.sequence.request.tenant, happened.sequence.output_tokens
                )
        self._expect(worker)

    def _expect(self, worker: fleet.SimulatedWorker) -> None:
        next_s = worker.next_s()
        if next_s is None:
            self._expected.pop(worker.worker_id, None)
        elif self._expected.get(worker.worker_id) != next_s:
            self._expected[worker.worker_id] = next_s
            heapq.heappush(self._events, (next_s, worker.worker_id))

    def _end(self, sequence: fleet.Sequence, end: str, at_s: float) -> None:
        del self._where[sequence.key]
        self._account(sequence, at_s)
        outcome = self._outcomes[sequence.key]
        outcome.end, outcome.ended_s = end, at_s - outcome.arrival.at_s
        outcome.num_preempted = sequence.num_preempted

    def _account(self, sequence: fleet.Sequence, at_s: float) -> None:
        """What a run generated: in the books of its tenant, and in the outcome."""
        outcome, request = self._outcomes[sequence.key], sequence.request
        outcome.tokens += sequence.generated
        self.queue.charge(
            request.priority,
            request.tenant,
            generated_tokens=sequence.generated - sequence.charged,
        )
        self.served.setdefault(outcome.arrival.tenant, []).append(
            (at_s, request.prompt_tokens * (not request.is_started) + 2 * sequence.generated)
        )

    def _plan(self) -> None:
        queue = self.queue
        if not queue:
            self._look_again_s = None
            queue.pace.look(self.now_s, is_backlogged=False)
            return
        self.num_plans += 1
        views = [worker.view(queue.lengths) for worker in self._workers.values()]
        made = plan(queue, views, self.now_s)
        self._look_again_s = made.look_again_s
        self._carry_out(made)
        if not self.depth.at_s or self.now_s - self.depth.at_s[-1] >= 1.0:
            self.depth.at_s.append(self.now_s)
            self.depth.waiting.append(len(queue))

    def _carry_out(self, made: Plan) -> None:
        for key in made.expired:
            self.queue.remove(key)
            del self._waiting[key]
            outcome = self._outcomes[key]
            outcome.end, outcome.ended_s = "expired", self.now_s - outcome.arrival.at_s
        for assignment in made.assignments:
            self._assign(assignment)
        for preemption in made.preemptions:
            self._preempt(preemption)

    def _assign(self, assignment: Assignment) -> None:
        worker = self._workers[assignment.worker_id]
        self._advance_worker(worker)
        for sequence in self._starting(assignment):
            worker.join(sequence)
            self._where[sequence.key] = (worker, sequence)
            outcome = self._outcomes[sequence.key]
            if outcome.started_s is None:
                outcome.started_s = self.now_s - outcome.arrival.at_s
                if outcome.arrival.deadline_s:
                    at_s = outcome.arrival.at_s + outcome.arrival.deadline_s
                    heapq.heappush(self._deadlines, (at_s, sequence.key))
        self._expect(worker)

    def _starting(self, assignment: Assignment) -> Iterator[fleet.Sequence]:
        queue, service = self.queue, self._service
        for pick in assignment.picks:
            request = self._waiting.pop(pick.request_id)
            queue.pace.prefilled(request.known_tokens, service.prefill_s(request.known_tokens))
            outcome = self._outcomes[pick.request_id]
            reserve = request.known_tokens + queue.lengths.reserve(request)
            queue.start(pick.request_id)
            yield fleet.Sequence(
                request,
                self.now_s,
                0.0,
                outcome.arrival.output_tokens,
                -(-reserve // service.block_size),
                outcome.num_preempted,
            )

    def _preempt(self, preemption: Preemption) -> None:
        worker, sequence = self._where[preemption.request_id]
        self._advance_worker(worker)
        if sequence.key not in self._where:  # it has just ended
            return
        del self._where[sequence.key]
        worker.leave(sequence)
        self._account(sequence, self.now_s)
        self._outcomes[sequence.key].num_preempted += 1
        known_tokens = sequence.request.known_tokens + sequence.generated
        self._wait(replace(sequence.request, known_tokens=known_tokens, is_charged=True))
        self._expect(worker)
