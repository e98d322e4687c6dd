"""What is remembered of one call for its span, the metrics and its one log line; nothing happens per token."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry.trace import Span

from common import telemetry_names as names
from common.clock import monotonic_s
from common.domain import FinishReason, GenerationRequest, Priority, TraceContext, Usage
from common.errors import HeadraceError
from common.logs import Log, for_request
from common.metrics import Metrics, class_labels, model_labels
from common.records import FinishRecord
from common.tracing import SpanKind, Tracing, context_of
from common.wire.status import code_of
from gateway.audit import AuditLog
from gateway.caller import Caller
from gateway.draft import ChatPrompt, Draft
from gateway.relay.events import Delta, Event
from gateway.relay.mailbox import Mailbox
from gateway.span_attributes import (
    MAX_CONTENT_CHARS,
    input_messages,
    output_messages,
    request_attributes,
)
from headrace.v1 import inference_service_pb2

_MAX_ID_CHARS = 200
_SERVICE = inference_service_pb2.DESCRIPTOR.services_by_name["InferenceService"].full_name


@dataclass(slots=True)
class Story:
    """One call that generates."""

    span: Span
    trace: TraceContext
    """The context of ``span``."""
    started_s: float
    operation: names.Operation = names.Operation.TEXT_COMPLETION
    model: str = ""
    revision: str = ""
    request_id: str = ""
    tenant: str = ""
    client_request_id: str = ""
    first_token_s: float | None = None
    completion_tokens: int = 0
    finish: FinishRecord | None = None
    mailbox: Mailbox | None = None
    prompt: str = ""
    """What was asked, where content is to be told."""
    texts: dict[int, str] | None = None
    """What was delivered, by choice; None unless content is to be told."""

    @property
    def usage(self) -> Usage:
        """Usage of what was delivered so far."""
        return Usage() if self.mailbox is None else self.mailbox.usage(self.completion_tokens)

    def join(self, request_id: str, tenant: str) -> None:
        """Another call's request is followed: it is counted there, and its model is not named here."""
        self.model, self.request_id, self.tenant = "", request_id, tenant
        self.span.set_attribute(names.HEADRACE_REQUEST_ID, request_id)

    def tell(self, request: GenerationRequest) -> None:
        """The request passed validation: from here on it has a name."""
        self.model, self.request_id = request.model, request.request_id
        self.revision = request.model_revision
        self.tenant, self.client_request_id = request.tenant, request.client_request_id
        if self.span.is_recording():
            self.span.set_attributes(request_attributes(request))

    def note(self, event: Event) -> None:
        """An event is on its way to the client."""
        match event:
            case Delta():
                self.completion_tokens = event.end_seq
                if self.first_token_s is None:
                    self.first_token_s = monotonic_s()
                if self.texts is not None:
                    self._keep(self.texts, event.index, event.text)
            case FinishRecord():
                self.completion_tokens = max(event.seq, self.completion_tokens)
                self.finish = event
                if self.texts is not None:
                    self._keep(self.texts, event.index, event.text)

    @staticmethod
    def _keep(texts: dict[int, str], index: int, text: str) -> None:
        so_far = texts.get(index, "")
        if len(so_far) < MAX_CONTENT_CHARS:
            texts[index] = so_far + text


class Stories:
    """Tells them to traces, metrics and logs."""

    def __init__(
        self,
        tracing: Tracing,
        metrics: Metrics,
        log: Log,
        audit: AuditLog,
        *,
        trace_content: bool = False,
        audit_content: bool = False,
    ) -> None:
        """Whatever ends is reported to all of them; prompts and answers with ``trace_content`` or ``audit_content`` only."""
        self._audit_content = audit_content
        self._audit = audit
        self._trace_content = trace_content
        self._tracing = tracing
        self._metrics = metrics
        self._log = log

    @contextmanager
    def telling(self, draft: Draft, caller: Caller, *, is_stream: bool) -> Iterator[Story]:
        """The story of a call, reported when the block is left, however that is."""
        operation = (
            names.Operation.CHAT
            if isinstance(draft.prompt.form, ChatPrompt)
            else names.Operation.TEXT_COMPLETION
        )
        attributes: dict[str, str | bool] = {
            names.GEN_AI_OPERATION_NAME: operation.value,
            names.GEN_AI_PROVIDER_NAME: names.PROVIDER_HEADRACE,
            names.GEN_AI_REQUEST_MODEL: draft.model[:_MAX_ID_CHARS],
            names.GEN_AI_REQUEST_STREAM: is_stream,
        }
        method = "GenerateStream" if is_stream else "Generate"
        model = draft.model[:_MAX_ID_CHARS]
        with self._spanning(
            names.gen_ai_span_name(operation, model), method, caller, attributes
        ) as story:
            story.operation = operation
            if self._is_traced(story) or self._audit_content:
                story.texts, story.prompt = {}, input_messages(draft.prompt.form)
            if self._is_traced(story):
                story.span.set_attribute(names.GEN_AI_INPUT_MESSAGES, story.prompt)
            yield story

    def _is_traced(self, story: Story) -> bool:
        return self._trace_content and story.span.is_recording()

    @contextmanager
    def attaching(self, request_id: str, caller: Caller) -> Iterator[Story]:
        """The story of a call that follows an earlier request."""
        attributes: dict[str, str | bool] = {names.HEADRACE_REQUEST_ID: request_id[:_MAX_ID_CHARS]}
        with self._spanning(names.SpanName.RELAY, "Attach", caller, attributes) as story:
            story.request_id, story.tenant = request_id[:_MAX_ID_CHARS], caller.tenant
            yield story

    @contextmanager
    def _spanning(
        self, name: str, method: str, caller: Caller, attributes: dict[str, str | bool]
    ) -> Iterator[Story]:
        attributes |= {
            names.RPC_SYSTEM_NAME: names.SYSTEM_GRPC,
            names.RPC_METHOD: f"{_SERVICE}/{method}",
        }
        with self._tracing.span(
            name, parent=caller.trace, kind=SpanKind.SERVER, attributes=attributes
        ) as span:
            story = Story(span, context_of(span), caller.started_s)
            outcome, code = "left", "CANCELLED"
            try:
                yield story
                outcome, code = "ok", "OK"
            except HeadraceError as error:
                outcome, code = error.reason, code_of(error).name
                raise
            except Exception as error:
                outcome, code = type(error).__name__, "INTERNAL"
                raise
            finally:
                span.set_attribute(names.RPC_RESPONSE_STATUS_CODE, code)
                self._report(story, outcome)
                self._audit_end(story, method, caller, outcome)

    def show_counters(self, model: str) -> None:
        """Let counters of a model begin at 0: what appears with its first event shows no increase by it."""
        labels = model_labels(model)
        self._metrics.prompt_tokens.add(0, labels)
        self._metrics.generation_tokens.add(0, labels)
        for reason in FinishReason:
            self._metrics.request_success.add(0, {**labels, "finish_reason": reason.value})
        for priority in Priority:
            refused = {**class_labels(model, priority), "reason": "QUEUE_FULL"}
            self._metrics.admission_refusals.add(0, refused)

    def accepted(self, story: Story, caller: Caller) -> None:
        """A request is in the queue, or is followed: whatever becomes of its gateway, that is on record."""
        self._audit.write(
            "accepted",
            tenant=caller.tenant,
            key_id=caller.identity.key_id,
            model=story.model,
            request_id=story.request_id,
            client_request_id=story.client_request_id,
        )

    def _audit_end(self, story: Story, method: str, caller: Caller, outcome: str) -> None:
        reason = "" if story.finish is None else story.finish.reason.value
        usage = story.usage
        content: dict[str, str] = {}
        if self._audit_content and story.texts is not None:
            content = {"prompt": story.prompt, "output": output_messages(story.texts, reason)}
        self._audit.write(
            "ended" if story.mailbox is not None else "refused",
            content,
            method=method,
            tenant=caller.tenant,
            key_id=caller.identity.key_id,
            model=story.model,
            request_id=story.request_id,
            client_request_id=story.client_request_id,
            decision=outcome,
            finish_reason=reason,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
        )

    def _report(self, story: Story, outcome: str) -> None:
        now_s, usage = monotonic_s(), story.usage
        reason = story.finish.reason.value if story.finish is not None else ""
        ttft_s = None if story.first_token_s is None else story.first_token_s - story.started_s
        self._measure(story, usage, ttft_s, now_s - story.started_s)
        self._finish_span(story, usage, reason, ttft_s)
        log = for_request(self._log, story.request_id, story.trace)
        log.info(
            "request ended",
            model=story.model,
            tenant=story.tenant,
            client_request_id=story.client_request_id,
            outcome=outcome,
            finish_reason=reason,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            ttft_s=None if ttft_s is None else round(ttft_s, 4),
            total_s=round(now_s - story.started_s, 4),
        )

    def _measure(self, story: Story, usage: Usage, ttft_s: float | None, total_s: float) -> None:
        if not story.model:
            return  # refused early, or a second look: neither may count a request twice
        self._measure_conventions(story, ttft_s, total_s)
        labels = model_labels(story.model)
        if ttft_s is not None:
            self._metrics.time_to_first_token.record(ttft_s, labels)
        if story.finish is not None:
            self._metrics.e2e_request_latency.record(total_s, labels)
            reason = story.finish.reason.value
            self._metrics.request_success.add(1, {**labels, "finish_reason": reason})
        if usage.prompt_tokens:
            self._metrics.prompt_tokens.add(usage.prompt_tokens, labels)
            self._metrics.generation_tokens.add(usage.completion_tokens, labels)

    def _measure_conventions(self, story: Story, ttft_s: float | None, total_s: float) -> None:
        if story.finish is None:
            return
        labels = {
            names.GEN_AI_OPERATION_NAME: story.operation.value,
            names.GEN_AI_PROVIDER_NAME: names.PROVIDER_HEADRACE,
            names.GEN_AI_REQUEST_MODEL: story.model,
            names.GEN_AI_RESPONSE_MODEL: story.revision,
        }
        failure = story.finish.failure
        failed = {} if failure is None else {names.ERROR_TYPE: failure.reason}
        self._metrics.gen_ai_request_duration.record(total_s, {**labels, **failed})
        if ttft_s is not None:
            self._metrics.gen_ai_time_to_first_token.record(ttft_s, labels)
            others = story.completion_tokens - 1
            if others > 0:
                self._metrics.gen_ai_time_per_output_token.record(
                    (total_s - ttft_s) / others, labels
                )

    def _finish_span(self, story: Story, usage: Usage, reason: str, ttft_s: float | None) -> None:
        span = story.span
        if not span.is_recording():
            return
        span.set_attribute(names.GEN_AI_USAGE_INPUT_TOKENS, usage.prompt_tokens)
        span.set_attribute(names.GEN_AI_USAGE_OUTPUT_TOKENS, usage.completion_tokens)
        span.set_attribute(names.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS, usage.cached_prompt_tokens)
        if reason:
            span.set_attribute(names.GEN_AI_RESPONSE_FINISH_REASONS, [reason])
        if story.texts is not None and self._trace_content:
            span.set_attribute(names.GEN_AI_OUTPUT_MESSAGES, output_messages(story.texts, reason))
        if ttft_s is not None:
            span.set_attribute(names.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK, ttft_s)
