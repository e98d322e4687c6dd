"""What a call's span says of its request, by the GenAI conventions; content only where an operator asked for it."""

import json
from collections.abc import Mapping, Sequence

from common import telemetry_names as names
from common.domain import GenerationRequest
from gateway.draft import ChatPrompt, PromptForm, TextPrompt

Value = str | bool | int | float | Sequence[str]

# A whole book in a span helps nobody, and exporters refuse large messages.
MAX_CONTENT_CHARS = 32_768
_MAX_LABEL_CHARS = 200


def request_attributes(request: GenerationRequest) -> dict[str, Value]:
    """Attributes of a request that passed validation; penalties and stop strings where they are used."""
    sampling, stop = request.sampling, request.stop
    attributes: dict[str, Value] = {
        names.HEADRACE_REQUEST_ID: request.request_id,
        names.HEADRACE_CLIENT_REQUEST_ID: request.client_request_id,
        names.HEADRACE_TENANT: request.tenant,
        names.HEADRACE_PRIORITY: request.priority.name,
        names.GEN_AI_OUTPUT_TYPE: "text",
        names.GEN_AI_RESPONSE_ID: request.request_id,
        names.GEN_AI_RESPONSE_MODEL: request.model_revision,
        names.GEN_AI_REQUEST_MAX_TOKENS: stop.max_tokens,
        names.GEN_AI_REQUEST_TEMPERATURE: sampling.temperature,
        names.GEN_AI_REQUEST_TOP_P: sampling.top_p,
        names.GEN_AI_REQUEST_TOP_K: sampling.top_k,
        names.GEN_AI_REQUEST_SEED: sampling.seed,
    }
    if sampling.n != 1:
        attributes[names.GEN_AI_REQUEST_CHOICE_COUNT] = sampling.n
    if sampling.frequency_penalty:
        attributes[names.GEN_AI_REQUEST_FREQUENCY_PENALTY] = sampling.frequency_penalty
    if sampling.presence_penalty:
        attributes[names.GEN_AI_REQUEST_PRESENCE_PENALTY] = sampling.presence_penalty
    if stop.stop:
        attributes[names.GEN_AI_REQUEST_STOP_SEQUENCES] = list(stop.stop)
    for key, value in request.labels.items():
        attributes[names.HEADRACE_LABEL_PREFIX + key] = value[:_MAX_LABEL_CHARS]
    return attributes


def input_messages(form: PromptForm | None) -> str:
    """A prompt as ``gen_ai.input.messages``: JSON, and never longer than a span can carry; token ids are no text."""
    match form:
        case TextPrompt():
            return _messages([("user", form.text)])
        case ChatPrompt():
            return _messages([(one.role or "", one.content) for one in form.messages])
    return ""


def output_messages(texts: Mapping[int, str], reason: str) -> str:
    """The choices' texts as ``gen_ai.output.messages``."""
    return _messages([("assistant", texts[index]) for index in sorted(texts)], reason)


def _messages(messages: Sequence[tuple[str, str]], finish_reason: str = "") -> str:
    left, found = MAX_CONTENT_CHARS, []
    for role, content in messages:
        kept, left = content[:left], max(0, left - len(content))
        message: dict[str, object] = {
            "role": role,
            "parts": [{"type": "text", "content": kept}],
        }
        if finish_reason:
            message["finish_reason"] = finish_reason
        found.append(message)
    return json.dumps(found, ensure_ascii=False)
