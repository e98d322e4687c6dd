"""New requests whose worker begins before the record says that they are ours, so that it computes while Redis syncs.

            ┌─▶ start ──▶ Redis ───────────┬─▶ started: what the worker said counts, as if it came now
    picked ─┤                              └─▶ not new: its worker is told to stop, what it said is void
            └─▶ Assign ──▶ worker ──▶ held

Until `start` is confirmed nothing of it is logged, counted or decided: for everybody but the worker the request begins
with the record, as any other (docs/delivery.md). Under epoch 1 nobody else can run it, and what takes it over has a higher one.
"""

from collections.abc import Sequence

from common.domain import FinishReason
from common.request_status import RequestStatus
from common.wire import orders
from common.wire.orders import OpenedBody
from common.wire.records import UndecodableError
from scheduler.ending import Ending
from scheduler.led_partition import LedPartition
from scheduler.led_request import LedRequest
from scheduler.messages import Batch
from scheduler.newcomers import Newcomers
from scheduler.output import Output
from scheduler.returns import Returns
from scheduler.sending import Sending


class Early:
    """The requests of a partition that run before they are ours."""

    def __init__(
        self,
        led: LedPartition,
        sending: Sending,
        ending: Ending,
        returns: Returns,
        newcomers: Newcomers,
        output: Output,
    ) -> None:
        """Of this partition; ``output`` takes what was held."""
        self._led = led
        self._sending = sending
        self._ending = ending
        self._returns = returns
        self._newcomers = newcomers
        self._output = output

    def try_send(self, batch: Batch, requests: Sequence[LedRequest], now_s: float) -> None:
        """Send a batch at once, if all of it is new and its bodies are at hand; else nothing happens."""
        bodies = [self._body_of(request) for request in requests]
        members = [
            (request, body)
            for request, body in zip(requests, bodies, strict=True)
            if body is not None
        ]
        if not members or len(members) < len(requests):
            return
        for request, body in members:
            request.seed, request.num_choices = body.seed, body.num_choices
            request.is_early = True
        self._sending.send(batch, members, now_s)

    def started(self, request: LedRequest, batch: Batch, now_s: float) -> None:
        """It is ours, and runs: what its worker has said counts, and what has happened meanwhile happens to it."""
        request.is_early = False
        request.move(RequestStatus.RUNNING)
        request.num_dispatches = 1
        request.fingerprint = batch.worker.session.hello.fingerprint
        self._output.release(request, now_s)
        if not request.accepts(request.epoch, request.attempt):
            return  # it has ended, or was given back
        if self._led.workers.get(batch.worker.worker_id) is not batch.worker:
            self._returns.give_back(request, request.outcome)
        elif request.end_wanted is not None:
            wanted, request.end_wanted = request.end_wanted, None
            self._ending.end(request, *wanted)

    def call_off(self, request: LedRequest, batch: Batch) -> None:
        """It did not start: its worker is to stop, if it runs there."""
        if request.is_early:
            stopped = [(request.key, request.epoch, request.attempt)]
            batch.worker.session.send(orders.cancel(stopped, FinishReason.CANCELLED))

    def _body_of(self, request: LedRequest) -> OpenedBody | None:
        data = self._newcomers.body_of(request) if request.is_newcomer else b""
        try:
            return orders.open_body(data) if data else None
        except UndecodableError:
            return None  # the record decides what becomes of it
