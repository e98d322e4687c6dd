"""Names of spans and attributes, all of them, because the conventions still move.

Taken from the OpenTelemetry conventions for GenAI, RPC and messaging where they have a name; ours begin
with ``headrace.``.
"""

from enum import StrEnum


class SpanName(StrEnum):
    """What a span covers. The gateway's own span is named by ``gen_ai_span_name``."""

    VALIDATE = "headrace.validate"
    ADMIT = "headrace.admit"
    RELAY = "headrace.relay"
    QUEUE = "headrace.queue"
    TAKEOVER = "headrace.takeover"
    DISPATCH = "headrace.dispatch"
    BATCH = "headrace.batch"
    SETTLE = "headrace.settle"
    GENERATE = "headrace.generate"
    PREFILL = "headrace.prefill"
    DECODE = "headrace.decode"


class EventName(StrEnum):
    """Moments inside a span."""

    PREFILL_CHUNK = "headrace.prefill_chunk"
    FIRST_TOKEN = "headrace.first_token"  # noqa: S105 - no password
    PREEMPTED = "headrace.preempted"


class Operation(StrEnum):
    """Values of ``gen_ai.operation.name``."""

    CHAT = "chat"
    TEXT_COMPLETION = "text_completion"


def gen_ai_span_name(operation: Operation, model: str) -> str:
    """The convention's name for the span of one inference."""
    return f"{operation} {model}"


# GenAI.
GEN_AI_OPERATION_NAME = "gen_ai.operation.name"
GEN_AI_PROVIDER_NAME = "gen_ai.provider.name"
GEN_AI_OUTPUT_TYPE = "gen_ai.output.type"
GEN_AI_REQUEST_MODEL = "gen_ai.request.model"
GEN_AI_REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
GEN_AI_REQUEST_TEMPERATURE = "gen_ai.request.temperature"
GEN_AI_REQUEST_TOP_P = "gen_ai.request.top_p"
GEN_AI_REQUEST_TOP_K = "gen_ai.request.top_k"
GEN_AI_REQUEST_SEED = "gen_ai.request.seed"
GEN_AI_REQUEST_STOP_SEQUENCES = "gen_ai.request.stop_sequences"
GEN_AI_REQUEST_FREQUENCY_PENALTY = "gen_ai.request.frequency_penalty"
GEN_AI_REQUEST_PRESENCE_PENALTY = "gen_ai.request.presence_penalty"
GEN_AI_REQUEST_CHOICE_COUNT = "gen_ai.request.choice.count"
GEN_AI_REQUEST_STREAM = "gen_ai.request.stream"
GEN_AI_RESPONSE_ID = "gen_ai.response.id"
GEN_AI_RESPONSE_MODEL = "gen_ai.response.model"
GEN_AI_RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
GEN_AI_USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS = "gen_ai.usage.cache_read.input_tokens"
# Content, only where an operator asked for it.
GEN_AI_INPUT_MESSAGES = "gen_ai.input.messages"
GEN_AI_OUTPUT_MESSAGES = "gen_ai.output.messages"

# RPC and errors.
RPC_SYSTEM_NAME = "rpc.system.name"
RPC_METHOD = "rpc.method"
HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
RPC_RESPONSE_STATUS_CODE = "rpc.response.status_code"
ERROR_TYPE = "error.type"

# Messaging.
MESSAGING_SYSTEM = "messaging.system"
MESSAGING_DESTINATION_NAME = "messaging.destination.name"
MESSAGING_CONSUMER_GROUP_NAME = "messaging.consumer.group.name"
MESSAGING_OPERATION_NAME = "messaging.operation.name"
MESSAGING_OPERATION_TYPE = "messaging.operation.type"
MESSAGING_MESSAGE_ID = "messaging.message.id"

# Resource.
SERVICE_NAME = "service.name"
SERVICE_INSTANCE_ID = "service.instance.id"
SERVICE_VERSION = "service.version"

# Values.
PROVIDER_HEADRACE = "headrace"
SYSTEM_GRPC = "grpc"
SYSTEM_REDIS = "redis"

# Ours.
HEADRACE_REQUEST_ID = "headrace.request.id"
HEADRACE_RESPONSE_CACHE = "headrace.response_cache"
HEADRACE_CLIENT_REQUEST_ID = "headrace.client_request.id"
HEADRACE_TENANT = "headrace.tenant"
HEADRACE_PRIORITY = "headrace.priority"
HEADRACE_PARTITION = "headrace.partition"
HEADRACE_EPOCH = "headrace.epoch"
HEADRACE_ATTEMPT = "headrace.attempt"
HEADRACE_WORKER_ID = "headrace.worker.id"
HEADRACE_BATCH_ID = "headrace.batch.id"
HEADRACE_BATCH_SIZE = "headrace.batch.size"
HEADRACE_PLAN_REASON = "headrace.plan.reason"
HEADRACE_STATUS = "headrace.status"
HEADRACE_FINISH_REASON = "headrace.finish_reason"
HEADRACE_QUEUE_TIME_S = "headrace.queue_time_s"
HEADRACE_PREFILL_TOKENS = "headrace.prefill.tokens"
HEADRACE_PREFILL_CHUNKS = "headrace.prefill.chunks"
HEADRACE_DECODE_STEPS = "headrace.decode.steps"
HEADRACE_TOKENS_RESUMED = "headrace.tokens_resumed"
HEADRACE_WORKER_LOSSES = "headrace.worker_losses"
HEADRACE_CHOICE = "headrace.choice.index"
HEADRACE_OUTCOME = "headrace.outcome"
HEADRACE_REQUEUED_AFTER = "headrace.requeued_after"
HEADRACE_LABEL_PREFIX = "headrace.label."
