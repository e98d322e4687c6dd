"""The rules for single fields; lengths, which need tokens, come later (``lengths``)."""

import json
import math
import re

from common.domain import MODEL_NAME, ModelLimits, Priority
from gateway.draft import (
    ChatPrompt,
    ConstraintDraft,
    Draft,
    PromptDraft,
    SamplingDraft,
    StopDraft,
    TextPrompt,
    TokenPrompt,
)
from gateway.validation.findings import Findings

MAX_CHOICES = 16
MAX_LOGIT_BIAS = 1024
MAX_STOPS = 16
MAX_STOP_BYTES = 256
MAX_STOP_IDS = 64
MAX_TOP_LOGPROBS = 20
MAX_LABELS = 16
MAX_LABEL_BYTES = 64
MAX_ID_BYTES = 256
MAX_SALT_BYTES = 128
MAX_MESSAGES = 1024
MAX_NAME_BYTES = 256
MAX_CONSTRAINT_BYTES = 64 * 1024
MAX_OPTIONS = 1024
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def check_model(model: str, findings: Findings) -> None:
    """A name that a model could have."""
    if not MODEL_NAME.fullmatch(model):
        findings.add("model", "must name a model: letters, digits and . _ - /, at most 96")


def check_tenant(tenant: str, findings: Findings) -> None:
    """A name that a tenant could have."""
    if not _TENANT.fullmatch(tenant):
        findings.add("metadata.x-tenant-id", "must be letters, digits and . _ @ -, at most 64")


def check_key(key: str, findings: Findings) -> None:
    """A key of bounded length; empty means none."""
    findings.size("idempotency_key", key, MAX_ID_BYTES)


def check_fields(draft: Draft, limits: ModelLimits, findings: Findings) -> None:
    """Everything that can be said before the prompt is tokenized."""
    check_prompt(draft.prompt, limits, findings)
    _check_sampling(draft.sampling, limits, findings)
    _check_stop(draft, draft.stop, limits, findings)
    findings.number("output.top_logprobs", draft.output.top_logprobs, 0, MAX_TOP_LOGPROBS)
    if draft.constraint is not None:
        _check_constraint(draft.constraint, findings)
    _check_envelope(draft, findings)


def check_prompt(prompt: PromptDraft, limits: ModelLimits, findings: Findings) -> None:
    """A prompt that is there, in a form that can be tokenized."""
    match prompt.form:
        case None:
            findings.add("prompt", "must be set: text, chat or token_ids")
        case TextPrompt(text):
            if not text.strip():
                findings.add("prompt.text", "must hold more than white space")
        case TokenPrompt():
            _check_token_ids(prompt.form, prompt.truncate_to_tokens, limits, findings)
        case ChatPrompt():
            _check_chat(prompt.form, findings)
    if prompt.truncate_to_tokens == 0:
        findings.add("prompt.truncate_to_tokens", "must be at least 1")


def _check_token_ids(
    prompt: TokenPrompt, truncate: int | None, limits: ModelLimits, findings: Findings
) -> None:
    if not prompt.ids:
        findings.add("prompt.token_ids", "must hold at least one token")
    num_used = len(prompt.ids) if truncate is None else min(truncate, len(prompt.ids))
    if 0 < num_used <= limits.context_tokens:
        # Longer ones are refused for their length; looking at each id would only cost time.
        first = len(prompt.ids) - num_used
        findings.vocabulary("prompt.token_ids.ids", prompt.ids[first:], limits.vocab_size, first)


def _check_chat(chat: ChatPrompt, findings: Findings) -> None:
    if not chat.messages:
        findings.add("prompt.chat.messages", "must hold at least one message")
    if len(chat.messages) > MAX_MESSAGES:
        findings.add("prompt.chat.messages", f"must hold at most {MAX_MESSAGES} messages")
        return
    if chat.messages and not any(message.content.strip() for message in chat.messages):
        findings.add("prompt.chat.messages", "must hold more than white space")
    for index, message in enumerate(chat.messages):
        if message.role is None:
            findings.add(f"prompt.chat.messages[{index}].role", "must be set to a known role")
        if message.name is not None:
            findings.size(f"prompt.chat.messages[{index}].name", message.name, MAX_NAME_BYTES)


def _check_sampling(sampling: SamplingDraft, limits: ModelLimits, findings: Findings) -> None:
    findings.number("sampling.temperature", sampling.temperature, 0, 2)
    findings.number("sampling.top_p", sampling.top_p, 0, 1, open_low=True)
    if sampling.top_k is not None and sampling.top_k != -1 and sampling.top_k < 1:
        findings.add("sampling.top_k", f"must be at least 1, or -1 for off, is {sampling.top_k}")
    findings.number("sampling.min_p", sampling.min_p, 0, 1)
    findings.number("sampling.typical_p", sampling.typical_p, 0, 1, open_low=True)
    findings.number(
        "sampling.repetition_penalty", sampling.repetition_penalty, 0, 10, open_low=True
    )
    findings.number("sampling.presence_penalty", sampling.presence_penalty, -2, 2)
    findings.number("sampling.frequency_penalty", sampling.frequency_penalty, -2, 2)
    findings.number(
        "sampling.n", sampling.n, 1, min(MAX_CHOICES, limits.max_choices or MAX_CHOICES)
    )
    if len(sampling.logit_bias) > MAX_LOGIT_BIAS:
        findings.add("sampling.logit_bias", f"must hold at most {MAX_LOGIT_BIAS} entries")
        return
    for token_id, bias in sampling.logit_bias.items():
        if token_id >= limits.vocab_size:
            findings.add(
                f"sampling.logit_bias[{token_id}]", f"token id must be below {limits.vocab_size}"
            )
        findings.number(f"sampling.logit_bias[{token_id}]", bias, -100, 100)


def _check_stop(draft: Draft, stop: StopDraft, limits: ModelLimits, findings: Findings) -> None:
    scores_only = draft.output.echo or draft.output.prompt_logprobs
    if stop.max_tokens == 0 and not scores_only:
        findings.add("stop.max_tokens", "must be at least 1 (0 only with echo or prompt_logprobs)")
    if stop.min_tokens and stop.max_tokens is not None and stop.min_tokens > stop.max_tokens:
        findings.add("stop.min_tokens", f"must be at most max_tokens, {stop.max_tokens}")
    if len(stop.stop) > MAX_STOPS:
        findings.add("stop.stop", f"must hold at most {MAX_STOPS} strings, holds {len(stop.stop)}")
    else:
        for index, text in enumerate(stop.stop):
            if not text:
                findings.add(f"stop.stop[{index}]", "must not be empty")
            findings.size(f"stop.stop[{index}]", text, MAX_STOP_BYTES)
    if len(stop.stop_token_ids) > MAX_STOP_IDS:
        findings.add("stop.stop_token_ids", f"must hold at most {MAX_STOP_IDS} ids")
    else:
        findings.vocabulary("stop.stop_token_ids", stop.stop_token_ids, limits.vocab_size)


def _check_constraint(constraint: ConstraintDraft, findings: Findings) -> None:
    path = f"constraint.{constraint.kind}"
    if constraint.kind == "json_object":
        return
    if constraint.kind == "choice":
        if not 1 <= len(constraint.options) <= MAX_OPTIONS:
            findings.add(path, f"must hold 1 to {MAX_OPTIONS} options")
        elif sum(map(len, constraint.options)) > MAX_CONSTRAINT_BYTES:
            findings.add(path, f"must have at most {MAX_CONSTRAINT_BYTES} characters in all")
        for index, option in enumerate(constraint.options[:MAX_OPTIONS]):
            if not option:
                findings.add(f"{path}.options[{index}]", "must not be empty")
        return
    if not constraint.text:
        findings.add(path, "must not be empty")
    findings.size(path, constraint.text, MAX_CONSTRAINT_BYTES)
    if constraint.kind == "json_schema" and 0 < len(constraint.text) <= MAX_CONSTRAINT_BYTES:
        try:
            json.loads(constraint.text)
        except (ValueError, RecursionError):
            findings.add(path, "must be JSON")


def _check_envelope(draft: Draft, findings: Findings) -> None:
    if draft.priority not in Priority.__members__:
        findings.add("priority", f"must be one of {', '.join(Priority.__members__)}")
    if draft.timeout_s is not None and not (
        math.isfinite(draft.timeout_s) and draft.timeout_s > 0
    ):
        findings.add("timeout", "must be above 0")
    check_key(draft.idempotency_key, findings)
    if draft.use_response_cache and draft.idempotency_key:
        findings.add("use_response_cache", "must not be set beside an idempotency key")
    findings.size("client_request_id", draft.client_request_id, MAX_ID_BYTES)
    findings.size("cache_salt", draft.cache_salt, MAX_SALT_BYTES)
    findings.size("adapter", draft.adapter, MAX_NAME_BYTES)
    if len(draft.labels) > MAX_LABELS:
        findings.add("labels", f"must hold at most {MAX_LABELS} labels")
        return
    for name, value in draft.labels.items():
        findings.size(f"labels[{name[:MAX_LABEL_BYTES]}]", name, MAX_LABEL_BYTES)
        findings.size(f"labels[{name[:MAX_LABEL_BYTES]}]", value, MAX_LABEL_BYTES)
