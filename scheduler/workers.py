"""Workers come, say what they can take, and go; a lost one is counted here against each request that it ran.

A worker that is gone may have died of what it ran, or may only have lost its connection. Each request it ran is
counted as a loss at once, so that it can be resumed at once, and the count is taken back if the same incarnation
returns within its grace. Only a request for which the count would be the last one waits for that verdict.
"""

from common.wire import orders
from common.wire.session import CacheDelta, Credit, Draining, Heartbeat, StepOutput
from scheduler.alarms import LossDecided
from scheduler.drains import Drains
from scheduler.failures import MAX_WORKER_LOSSES
from scheduler.led_partition import LedPartition
from scheduler.led_request import LedRequest
from scheduler.led_worker import LedWorker
from scheduler.messages import DrainOrdered
from scheduler.output import Output
from scheduler.returns import Returns
from scheduler.worker_registry.events import SessionEnded, SessionOpened, SessionSaid
from scheduler.worker_registry.session import WorkerSession


class Workers:
    """The workers of a partition."""

    def __init__(
        self, led: LedPartition, output: Output, returns: Returns, drains: Drains
    ) -> None:
        """Their output goes to ``output``, what they leave behind to ``returns``."""
        self._led = led
        self._output = output
        self._returns = returns
        self._drains = drains
        self._doubtful: dict[tuple[str, str], list[LedRequest]] = {}

    def opened(self, event: SessionOpened) -> None:
        """A worker is here, for the first time or again."""
        session, led = event.session, self._led
        former = led.workers.get(session.worker_id)
        if former is not None:
            same = former.session.incarnation == session.incarnation
            self._depart(former, is_lost=not same)
            former.session.close()
        self._absolve(session)
        led.workers[session.worker_id] = LedWorker(
            session, led.settings.worker_heartbeat_ms / 1000
        )
        led.queue.prefixes.forget(session.worker_id)  # it tells all that it holds
        led.wants_plan = True
        led.workers_changed.set()
        self._drains.look(session.worker_id)
        led.telemetry.log.info(
            "worker here", worker_id=session.worker_id, incarnation=session.incarnation
        )
        if led.is_stopping:
            session.close(redirect="")

    def said(self, event: SessionSaid) -> None:
        """A worker said something."""
        worker = self._led.workers.get(event.session.worker_id)
        if worker is None or worker.session is not event.session:
            return
        now_s = self._led.clock()
        said = event.said
        worker.heard(
            now_s, step_age_ms=said.last_step_age_ms if isinstance(said, Heartbeat) else 0
        )
        match said:
            case StepOutput() as step:
                self._credited(worker, step.credit, now_s)
                self._output.step(worker, step, now_s)
            case Heartbeat() as beat:
                self._credited(worker, beat.credit, now_s)
            case Credit() as credit:
                self._credited(worker, credit, now_s)
            case CacheDelta() as delta:
                prefixes = self._led.queue.prefixes
                prefixes.update(worker.worker_id, delta.added, delta.evicted)
                if prefixes.num_held(worker.worker_id) > event.session.hello.kv_blocks:
                    prefixes.forget(worker.worker_id)  # it says more than it can have
            case Draining() as draining:
                worker.is_draining = True
                self._led.workers_changed.set()
                self._led.telemetry.log.info(
                    "worker leaves", worker_id=worker.worker_id, reason=draining.reason
                )

    def _credited(self, worker: LedWorker, credit: Credit | None, now_s: float) -> None:
        if credit is not None:
            worker.credited(credit, now_s)
            self._led.wants_plan = True

    def ended(self, event: SessionEnded) -> None:
        """A session is over."""
        led = self._led
        worker = led.workers.get(event.session.worker_id)
        if worker is None or worker.session is not event.session:
            return
        if worker.is_draining:
            self._drains.clear(worker.worker_id)
        is_expected = worker.is_draining or event.session.was_sent_away
        self._depart(worker, is_lost=not is_expected)
        led.telemetry.log.info("worker gone", worker_id=worker.worker_id)

    def _depart(self, worker: LedWorker, *, is_lost: bool) -> None:
        led = self._led
        del led.workers[worker.worker_id]
        led.queue.prefixes.forget(worker.worker_id)
        led.wants_plan = True
        led.workers_changed.set()
        requests = [one for one in worker.running.values() if not one.is_taking]
        if is_lost and requests:
            self._doubt(worker.session, requests)
        for request in list(worker.running.values()):
            worker.remove(request.key)
            self._returns.give_back(request, "worker lost" if is_lost else "worker left")

    def _doubt(self, session: WorkerSession, requests: list[LedRequest]) -> None:
        led = self._led
        name = (session.worker_id, session.incarnation)
        self._doubtful.setdefault(name, []).extend(requests)
        for request in requests:
            request.worker_losses += 1
            is_last = request.worker_losses >= MAX_WORKER_LOSSES
            request.awaits_verdict = name if is_last else None
        led.alarms.set(led.clock() + led.settings.reconnect_grace_s, LossDecided(*name))

    def _absolve(self, session: WorkerSession) -> None:
        """The same incarnation is back: it had not died."""
        for request in self._doubtful.pop((session.worker_id, session.incarnation), []):
            self._returns.absolve(request)

    def loss_decided(self, alarm: LossDecided) -> None:
        """A worker had its time to come back, and has not."""
        name = (alarm.worker_id, alarm.incarnation)
        requests = self._doubtful.pop(name, None)
        if requests is None:
            return
        self._led.telemetry.worker_lost()
        for request in requests:
            if request.awaits_verdict == name:
                request.awaits_verdict = None
            if self._led.requests.get(request.key) is request:
                self._returns.go_on(request)

    def drain(self, event: DrainOrdered) -> None:
        """A worker is to take no new work and to leave, unless it has left since, and come back as another."""
        order = event.order
        worker = self._led.workers.get(order.worker_id)
        if worker is None or worker.session.incarnation != order.incarnation:
            return
        if not worker.is_draining:
            worker.is_draining = True
            self._led.workers_changed.set()
            worker.session.send(orders.drain(order.grace_ms))
