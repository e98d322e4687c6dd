"""Admission: one script, after which the request is safe (`streams.node` retries it), or a refusal that says when to come back."""

from collections.abc import Callable

from common.domain import TraceContext
from common.errors import HeadraceError, QueueFull, Unavailable
from common.metrics import Metrics, class_labels
from common.streams.admission import (
    Admitted,
    Refused,
    Submission,
    admission_call,
    read_admission,
)
from common.streams.node import Node
from common.streams.shared_trips import SharedTrips
from common.telemetry_names import (
    HEADRACE_OUTCOME,
    HEADRACE_PRIORITY,
    HEADRACE_REQUEST_ID,
    MESSAGING_DESTINATION_NAME,
    MESSAGING_MESSAGE_ID,
    MESSAGING_OPERATION_NAME,
    MESSAGING_OPERATION_TYPE,
    MESSAGING_SYSTEM,
    SYSTEM_REDIS,
    SpanName,
)
from common.tracing import SpanKind, Tracing, context_of
from common.wire.request import encode_body, encode_header
from gateway.prepare import Prepared
from gateway.queue_views import QueueViews, retry_after_s
from gateway.relay.follower import Follower
from gateway.relay.relay import Relay
from gateway.settings import GatewaySettings

# Long enough for a node that is merely busy; a caller is told within about this that Redis is away.
ADMIT_BOUND_S = 2.0


class Admission:
    """Lets requests into the queue."""

    def __init__(
        self,
        node: Node,
        trips: SharedTrips,
        relay: Relay,
        views: QueueViews,
        settings: GatewaySettings,
        tracing: Tracing,
        metrics: Metrics,
    ) -> None:
        """``trips`` go to ``node``; ``relay`` names the log that requests are to be answered in."""
        self._node = node
        self._trips = trips
        self._relay = relay
        self._views = views
        self._settings = settings
        self._tracing = tracing
        self._metrics = metrics

    async def admit(
        self,
        prepared: Prepared,
        follower: Follower,
        name: str,
        trace: TraceContext,
        when_unknown: Callable[[], None],
    ) -> Admitted:
        """Admit the request for ``follower``, whose reader already waits for its first record.

        ``when_unknown`` is called where nobody can tell whether it was admitted.

        Raises:
            QueueFull: a bound is reached.
            Unavailable: no worker (and the caller does not want to wait), or Redis cannot be reached.
        """
        outcome = await self.enter(prepared, name, trace, when_unknown)
        follower.is_joined = outcome.is_followed
        return outcome

    async def enter(
        self,
        prepared: Prepared,
        name: str,
        trace: TraceContext,
        when_unknown: Callable[[], None],
    ) -> Admitted:
        """Admit the request though nobody reads here what becomes of it; it counts a follower of this ``name``.

        Raises:
            QueueFull: a bound is reached.
            Unavailable: no worker (and the caller does not want to wait), or Redis cannot be reached.
        """
        try:
            if not prepared.request.hold:
                await self._require_worker(prepared)
            outcome = await self._submit(prepared, name, trace, when_unknown)
            if isinstance(outcome, Refused):
                raise self._queue_full(prepared, outcome)
        except HeadraceError as error:
            labels = class_labels(prepared.request.model, prepared.request.priority)
            self._metrics.admission_refusals.add(1, {**labels, "reason": error.reason})
            raise
        return outcome

    async def _submit(
        self,
        prepared: Prepared,
        name: str,
        trace: TraceContext,
        when_unknown: Callable[[], None],
    ) -> Admitted | Refused:
        request, partition = prepared.request, prepared.id.partition
        bounds = self._settings.bounds(request.priority)
        attributes = {
            MESSAGING_SYSTEM: SYSTEM_REDIS,
            MESSAGING_DESTINATION_NAME: str(partition),
            MESSAGING_OPERATION_NAME: "admit",
            MESSAGING_OPERATION_TYPE: "send",
            MESSAGING_MESSAGE_ID: request.request_id,
            HEADRACE_REQUEST_ID: request.request_id,
            HEADRACE_PRIORITY: request.priority.name,
        }
        with self._tracing.span(
            SpanName.ADMIT, parent=trace, kind=SpanKind.PRODUCER, attributes=attributes
        ) as span:
            submission = self._submission(prepared, name, context_of(span))
            is_known, num_errors = False, self._node.num_errors
            try:
                call = admission_call(submission, bounds)
                outcome = read_admission(await self._trips.run(str(partition), call))
                # A refusal is no last word where an earlier try may still lie in a broken connection's buffer.
                is_known = isinstance(outcome, Admitted) or self._node.num_errors == num_errors
                span.set_attribute(HEADRACE_OUTCOME, type(outcome).__name__.lower())
            finally:
                if not is_known:
                    when_unknown()
        return outcome

    def _submission(self, prepared: Prepared, name: str, trace: TraceContext) -> Submission:
        request = prepared.request
        own = self._relay.readers.own
        return Submission(
            request_id=prepared.id,
            priority=request.priority,
            tenant=request.tenant,
            prompt_tokens=len(request.prompt_token_ids),
            budget_ms=max(1, round(prepared.budget_s * 1000)),
            log=own.log_name,
            start=own.position,
            follower=name,
            header=encode_header(prepared.header(trace)),
            body=encode_body(request, trace),
            resume_grace_ms=(
                round(self._settings.resume_grace_s * 1000) if request.resumable else 0
            ),
        )

    async def _require_worker(self, prepared: Prepared) -> None:
        request = prepared.request
        view = await self._views.look(prepared.id.partition)
        if view is None or not view.serves(request.model_revision):
            raise Unavailable(
                f"no worker serves {request.model} at the moment",
                reason="NO_WORKER",
                retry_after_s=retry_after_s(view, request.priority, 0),
            )

    def _queue_full(self, prepared: Prepared, refused: Refused) -> QueueFull:
        request = prepared.request
        bounds = self._settings.bounds(request.priority)
        view = self._views.view(prepared.id.partition)
        return QueueFull(
            f"the {request.priority.name} queue of {request.model} is full",
            reason="QUEUE_FULL",
            metadata={
                "waiting_requests": str(refused.requests),
                "waiting_tokens": str(refused.tokens),
                "max_requests": str(bounds.max_requests),
                "max_tokens": str(bounds.max_tokens),
            },
            retry_after_s=retry_after_s(view, request.priority, refused.requests),
        )
