"""Carries out a plan: picks are taken in the record (new ones by `start`), and go to their worker together once all of them are.

plan ──▶ pick ──▶ take (one round trip per batch) ──▶ Assign
"""

import secrets
from collections.abc import Iterable

from common.domain import FinishReason
from common.request_status import RequestStatus
from common.streams.ownership import (
    Answer,
    CancelRequested,
    RecordStep,
    Started,
    Taken,
    start_step,
    take_step,
)
from common.wire import orders
from common.wire.orders import Assignment, OpenedBody
from common.wire.records import UndecodableError
from scheduler.ending import Ending
from scheduler.failures import no_equal_worker, no_worker, revision_left, undecodable
from scheduler.led_partition import LedPartition
from scheduler.led_request import LedRequest
from scheduler.led_worker import LedWorker
from scheduler.messages import Batch, Taking
from scheduler.newcomers import Newcomers
from scheduler.planning.plan import Assignment as Picks
from scheduler.planning.plan import Plan, Preemption, plan
from scheduler.returns import Returns

# After a change of leaders workers need a moment to find the new one; whoever does not want to wait for a worker
# is refused only when this is over.
_NO_WORKER_GRACE_S = 5.0


class Dispatch:
    """Plans, and sends what was planned."""

    def __init__(
        self, led: LedPartition, ending: Ending, returns: Returns, newcomers: Newcomers
    ) -> None:
        """For this partition."""
        self._led = led
        self._ending = ending
        self._returns = returns
        self._newcomers = newcomers
        self.look_again_s: float | None = None

    def plan(self, now_s: float) -> Plan:
        """What is to happen now; nothing, if nothing that matters has changed since the last plan."""
        led = self._led
        is_due = self.look_again_s is not None and now_s >= self.look_again_s
        if led.is_stopping or not (led.wants_plan or is_due):
            return Plan(look_again_s=self.look_again_s)
        led.wants_plan = False
        self._unpark()
        if not led.queue and not led.queue.kept.is_running:
            return Plan()
        views = [worker.view(led.queue.lengths, now_s) for worker in led.workers.values()]
        return plan(led.queue, views, now_s)

    def carry_out(self, planned: Plan, now_s: float) -> None:
        """Expire, refuse, and take what was picked."""
        led = self._led
        self.look_again_s = planned.look_again_s
        for request in self._ours(planned.expired):
            self._ending.expire(request, planned.expired[request.key])
        grace_ends_s = led.led_since_s + _NO_WORKER_GRACE_S
        for request in self._ours(planned.refused):
            if now_s >= grace_ends_s:
                self._ending.fail(request, no_worker())
            else:
                self.look_again_s = min(grace_ends_s, self.look_again_s or grace_ends_s)
        for request in self._ours(planned.given_up):
            self._give_up(request)
        for picks in planned.assignments:
            self._take(picks, now_s)
        for preemption in planned.preemptions:
            self._preempt(preemption)

    def _ours(self, request_ids: Iterable[str]) -> list[LedRequest]:
        """Whose end may be decided here: of newcomers only what starts them, the rest once they are owned."""
        requests = [self._led.requests[request_id] for request_id in request_ids]
        return [request for request in requests if not request.is_newcomer]

    def _give_up(self, request: LedRequest) -> None:
        """The workers that it waits for do not come back."""
        if request.progress.next_seq:
            self._ending.fail(request, no_equal_worker())
        else:
            self._ending.fail(request, revision_left(request.header.model_revision))

    def _preempt(self, preemption: Preemption) -> None:
        """Ask a worker to give a request back; it returns like any other that was given back."""
        led = self._led
        request, worker = led.requests[preemption.request_id], led.workers[preemption.worker_id]
        assert request.status is RequestStatus.RUNNING, request.key
        request.is_leaving = True
        request.num_preempted += 1
        worker.changed()
        worker.session.send(orders.preempt([(request.key, request.epoch, request.attempt)]))
        led.telemetry.preempted(request.header.priority)
        led.telemetry.log.info(
            "asked to make room", request_id=request.key, reason=preemption.reason
        )

    def _take(self, picks: Picks, now_s: float) -> None:
        led = self._led
        worker = led.workers[picks.worker_id]
        going = [
            (request, pick)
            for request, pick in ((led.requests[pick.request_id], pick) for pick in picks.picks)
            if not self._parks(request)
        ]
        batch = Batch(secrets.token_hex(8), worker, picks.reason, now_s, len(going))
        for request, pick in going:
            request.why = f"{pick.why}, class {request.priority.name}"
            if pick.is_promoted:
                led.telemetry.promoted(request.priority)
            led.start(request)
            request.attempt += 1
            request.is_taking = True
            request.is_leaving = False
            request.since_s = now_s
            request.worker_id = worker.worker_id
            worker.add(request, now_s, pick.cached_tokens)
            led.records.ask(self._step(request, worker), Taking(request, batch))

    def _step(self, request: LedRequest, worker: LedWorker) -> RecordStep:
        fingerprint = worker.session.hello.fingerprint
        if request.is_newcomer:
            return start_step(self._led.owner, request.id, worker.worker_id, fingerprint)
        return take_step(request.id, request.epoch, worker.worker_id, fingerprint)

    def _parks(self, request: LedRequest) -> bool:
        """Whether it has to wait for its log, which takes appends more slowly than they come."""
        if not self._led.logs.is_congested(request.log):
            return False
        self._led.queue.remove(request.key)
        self._led.parked[request.key] = request
        return True

    def _unpark(self) -> None:
        led = self._led
        for request in list(led.parked.values()):
            if not led.logs.is_congested(request.log):
                del led.parked[request.key]
                led.enqueue(request)

    def taken(self, purpose: Taking, answer: Answer, now_s: float) -> None:
        """A record answered; the last of a batch sends it."""
        batch = purpose.batch
        batch.num_missing -= 1
        self._settle_take(purpose.request, batch, answer, now_s)
        if not batch.num_missing and batch.taken:
            self._send(batch, now_s)

    def _settle_take(
        self, request: LedRequest, batch: Batch, answer: Answer, now_s: float
    ) -> None:
        led = self._led
        if led.requests.get(request.key) is not request:
            return
        request.is_taking = False
        match answer:
            case Started():
                self._newcomers.started(request, answer, now_s)
                self._go(request, batch, 1, answer.body)
            case Taken():
                self._go(request, batch, answer.attempts, answer.body)
            case _ if request.is_newcomer:
                self._newcomers.forget(request)
            case CancelRequested():
                led.release_worker(request)
                self._ending.cancel(request, answer.reason)
                if request.is_open:  # another end was wanted already
                    self._ending.end_here(request)
            case _:
                led.telemetry.log.warning("not taken", request_id=request.key, answer=str(answer))
                led.drop(request)

    def _go(self, request: LedRequest, batch: Batch, attempts: int, data: bytes) -> None:
        """It is the batch's worker's, by its record."""
        request.move(RequestStatus.RUNNING)
        request.num_dispatches = attempts
        request.fingerprint = batch.worker.session.hello.fingerprint
        try:
            body = orders.open_body(data)
        except UndecodableError:
            request.end_wanted = (FinishReason.ERROR, undecodable("body"))
            self._ending.end_here(request)
            return
        request.seed = body.seed
        request.num_choices = body.num_choices
        batch.taken.append((request, body))

    def _send(self, batch: Batch, now_s: float) -> None:
        led, worker = self._led, batch.worker
        is_here = led.workers.get(worker.worker_id) is worker and not worker.is_draining
        ready: list[tuple[LedRequest, OpenedBody]] = []
        for request, body in batch.taken:
            if led.requests.get(request.key) is not request or not request.is_open:
                continue
            if request.end_wanted is not None:
                self._ending.end_here(request)
            elif is_here:
                ready.append((request, body))
            else:
                self._returns.give_back(request, "never sent")
        if ready:
            assignments = [self._assignment(*one, batch, now_s) for one in ready]
            contexts = [
                (request.header.priority, one.trace)
                for (request, _), one in zip(ready, assignments, strict=True)
            ]
            span = led.telemetry.batch(
                batch.id, worker.worker_id, batch.reason, contexts, batch.picked_s, now_s
            )
            worker.session.send(orders.assign(batch.id, span.traceparent, assignments))

    def _assignment(
        self, request: LedRequest, body: OpenedBody, batch: Batch, now_s: float
    ) -> Assignment:
        telemetry = self._led.telemetry
        telemetry.queued(request, now_s)
        context = telemetry.dispatched(request, batch.id, batch.reason, batch.picked_s, now_s)
        return Assignment(
            body=body,
            epoch=request.epoch,
            attempt=request.attempt,
            remaining_ms=max(1, round((request.deadline_s - now_s) * 1000)),
            resume=request.progress if request.progress.choices else None,
            trace=context,
        )
