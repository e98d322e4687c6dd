"""The tables of JSON fields: each one's name, its place in the message, and which paths take, refuse or ignore it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from common.errors import FieldViolation, NotImplementedYet
from gateway.http import neutral_fields as neutral
from gateway.http import special_fields as special
from gateway.http.errors import RefusedAsSent
from gateway.http.fields import (
    INT32_MAX,
    UINT32_MAX,
    UINT64_MAX,
    Field,
    flag,
    integer,
    integers,
    number,
    text,
    texts,
)
from gateway.http.json_values import leave_out, read_flag, read_object, shown
from gateway.http.message_fields import MESSAGES
from gateway.validation.fields import MAX_STOP_IDS, MAX_STOPS
from gateway.validation.findings import Findings
from headrace.v1 import inference_service_pb2 as pb

_COMMON: dict[str, Field] = {
    "model": text("model"),
    "temperature": number("sampling.temperature"),
    "top_p": number("sampling.top_p"),
    "top_k": integer("sampling.top_k", -INT32_MAX - 1, INT32_MAX),
    "min_p": number("sampling.min_p"),
    "typical_p": number("sampling.typical_p"),
    "repetition_penalty": number("sampling.repetition_penalty"),
    "presence_penalty": number("sampling.presence_penalty"),
    "frequency_penalty": number("sampling.frequency_penalty"),
    "seed": integer("sampling.seed", 0, UINT64_MAX),
    "n": integer("sampling.n", 0, UINT32_MAX),
    "logit_bias": special.LOGIT_BIAS,
    "max_tokens": integer("stop.max_tokens", 0, UINT32_MAX),
    "min_tokens": integer("stop.min_tokens", 0, UINT32_MAX),
    "stop": texts("stop.stop", MAX_STOPS),
    "stop_token_ids": integers("stop.stop_token_ids", MAX_STOP_IDS),
    "include_stop_in_output": flag("stop.include_stop_in_output"),
    "ignore_eos": flag("stop.ignore_eos"),
    "truncate_to_tokens": integer("prompt.truncate_to_tokens", 0, UINT32_MAX),
    "return_token_ids": flag("output.token_ids"),
    "priority": special.PRIORITY,
    "deadline": special.DEADLINE,
    "cache_salt": text("cache_salt"),
    "adapter": text("adapter"),
    "bypass_prefix_cache": flag("bypass_prefix_cache"),
    "resumable": flag("resumable"),
    "hold": flag("hold"),
    "use_response_cache": flag("use_response_cache"),
    "regex": text("constraint.regex"),
    "grammar": text("constraint.grammar"),
    "choice": special.CHOICE,
}
_OPENAI: dict[str, Field] = {
    "user": special.USER,
    "metadata": special.LABELS,
    "response_format": special.RESPONSE_FORMAT,
}
# Where a prompt is found by its form, and what it was sent as; the longer place comes first.
_PROMPT_PLACES = (
    ("prompt.text", "prompt"),
    ("prompt.token_ids.ids", "prompt"),
    ("prompt.token_ids", "prompt"),
    ("prompt.chat.messages", "messages"),
    ("prompt.chat.add_generation_prompt", "add_generation_prompt"),
    ("prompt.chat", "messages"),
    ("prompt.truncate_to_tokens", "truncate_to_tokens"),
)
# What completions ask for by two fields together.
_PROMPT_LOGPROBS = ("output.prompt_logprobs", "logprobs")


@dataclass(frozen=True, slots=True)
class Form:
    """One path's request. ``sends_ids``: whether token ids come back where nothing is said about them.

    ``echoes_logprobs``: whether an echo with log probabilities has the prompt's, too.
    """

    fields: Mapping[str, Field]
    neutral: Mapping[str, tuple[Any, ...]]
    required: tuple[str, ...]
    sends_ids: bool = False
    streams: bool = True
    echoes_logprobs: bool = False
    takes_many: bool = False
    instead: Mapping[str, str] | None = None
    """What serves for a field that other paths have."""

    def rename(self, path: str) -> str:
        """The JSON name of a path in the message, for errors from inside."""
        fields = ((field.path, name) for name, field in self.fields.items())
        places = [*_PROMPT_PLACES, *fields, _PROMPT_LOGPROBS]
        for place, name in places:
            if name in self.fields and re.match(rf"{re.escape(place)}(?=$|[.\[])", path):
                return name + path[len(place) :]
        return path


@dataclass(frozen=True, slots=True)
class Asked:
    """A request and how its answer is to come."""

    request: pb.GenerateRequest
    is_stream: bool = False
    include_usage: bool = False
    more: Sequence[pb.GenerateRequest] = ()
    """The same for further prompts, where the call has several."""


CHAT = Form(
    {
        **_COMMON,
        **_OPENAI,
        "max_completion_tokens": special.MAX_COMPLETION_TOKENS,
        "messages": MESSAGES,
        "add_generation_prompt": flag("prompt.chat.add_generation_prompt"),
        "logprobs": flag("output.logprobs"),
        "top_logprobs": integer("output.top_logprobs", 0, UINT32_MAX),
    },
    neutral.NEUTRAL_CHAT,
    ("model", "messages"),
)
COMPLETION = Form(
    {
        **_COMMON,
        **_OPENAI,
        "prompt": special.PROMPT,
        "logprobs": special.NUM_LOGPROBS,
        "echo": flag("output.echo"),
    },
    neutral.NEUTRAL_COMPLETION,
    ("model", "prompt"),
    echoes_logprobs=True,
    takes_many=True,
)
_PROMPTS: dict[str, Field] = {
    "prompt": special.PROMPT,
    "messages": MESSAGES,
    "add_generation_prompt": flag("prompt.chat.add_generation_prompt"),
}
NATIVE = Form(
    {
        **_COMMON,
        **_PROMPTS,
        "labels": special.LABELS,
        "json_schema": special.JSON_SCHEMA,
        "json_object": special.JSON_OBJECT,
        "logprobs": flag("output.logprobs"),
        "top_logprobs": integer("output.top_logprobs", 0, UINT32_MAX),
        "prompt_logprobs": flag("output.prompt_logprobs"),
        "echo": flag("output.echo"),
        "idempotency_key": text("idempotency_key"),
        "client_request_id": text("client_request_id"),
    },
    {},
    ("model",),
    sends_ids=True,
    instead=neutral.INSTEAD_NATIVE,
)
TOKENIZE = Form(
    {name: _COMMON[name] for name in ("model", "truncate_to_tokens")} | _PROMPTS,
    {},
    ("model",),
    streams=False,
)
_STREAMING = ("stream", "stream_options")
_ELSEWHERE = frozenset(
    {*_STREAMING}.union(
        *(form.fields.keys() | form.neutral.keys() for form in (CHAT, COMPLETION, NATIVE))
    )
)


Look = Callable[[pb.GenerateRequest], Sequence[FieldViolation]]
"""What is wrong with the values of a request, by paths in the message."""


def read_request(
    form: Form, body: Mapping[str, Any], prefix: str = "", look: Look = lambda _: ()
) -> Asked:
    """The request that a JSON object asks for; what is refused here is told with what ``look`` finds.

    Raises:
        RefusedAsSent: fields have the wrong type, are missing, or are not known.
        NotImplementedYet: fields of OpenAI's that are not built, and nothing else is wrong.
    """
    findings = Findings()
    given = {name: value for name, value in body.items() if value is not None}
    if form.takes_many and special.are_many(given.get("prompt")):
        return _read_many(form, given, prefix, look)
    request = pb.GenerateRequest()
    request.output.token_ids = form.sends_ids
    # In the table's order, so that what depends on another field finds it read.
    for name, field in form.fields.items():
        if name in given:
            field.read(request, given[name], prefix + name, findings)
    _check_prompt(form, given, prefix, findings)
    if form.echoes_logprobs and request.output.echo and request.output.logprobs:
        request.output.prompt_logprobs = True
    is_stream, include_usage = _read_streaming(form, given, prefix, findings)
    unsupported = _others(form, given, prefix, findings)
    if findings.violations or unsupported:
        _refuse(form, prefix, findings.violations, unsupported, look(request))
    return Asked(request, is_stream, include_usage)


def _read_many(form: Form, given: Mapping[str, Any], prefix: str, look: Look) -> Asked:
    """A request for each prompt; what is wrong with one of them is told as if it had come alone."""
    prompts = given["prompt"]
    if len(prompts) > special.MAX_PROMPTS:
        too_many = FieldViolation(f"{prefix}prompt", f"must hold at most {special.MAX_PROMPTS}")
        raise RefusedAsSent([too_many])
    odd = [index for index, one in enumerate(prompts) if not special.is_prompt(one)]
    if odd:
        description = "must be a string or a list of token ids"
        raise RefusedAsSent(
            [FieldViolation(f"{prefix}prompt[{index}]", description) for index in odd]
        )
    first = read_request(form, {**given, "prompt": prompts[0]}, prefix, look)
    # The other fields are the same, and not read dozens of times.
    others = pb.GenerateRequest()
    others.CopyFrom(first.request)
    for place in ("text", "token_ids"):
        others.prompt.ClearField(place)
    more = []
    for prompt in prompts[1:]:
        request, findings = pb.GenerateRequest(), Findings()
        request.CopyFrom(others)
        special.PROMPT.read(request, prompt, f"{prefix}prompt", findings)
        if findings.violations:
            _refuse(form, prefix, findings.violations, (), look(request))
        more.append(request)
    return replace(first, more=more)


def _refuse(
    form: Form,
    prefix: str,
    refused: Sequence[FieldViolation],
    unsupported: Sequence[str],
    found: Sequence[FieldViolation],
) -> NoReturn:
    """All of it at once. Of a field that could not be read its value is not judged, too."""
    names = {one.field.removeprefix(prefix) for one in refused}
    unread = {re.split(r"[.\[]", name)[0] for name in names}
    if unread & _PROMPTS.keys():
        unread |= {*_PROMPTS, "prompt"}
    named = [(form.rename(one.field), one.description) for one in found]
    values = [
        FieldViolation(prefix + name, description)
        for name, description in named
        if re.split(r"[.\[]", name)[0] not in unread
    ]
    if not refused and not values:
        raise NotImplementedYet(unsupported)
    missing = [FieldViolation(name, "is not implemented yet") for name in unsupported]
    raise RefusedAsSent([*refused, *values, *missing])


def _check_prompt(form: Form, given: Mapping[str, Any], prefix: str, findings: Findings) -> None:
    for name in form.required:
        if name not in given:
            findings.add(prefix + name, "must be set")
    if "prompt" in given and "messages" in given and "messages" in form.fields:
        findings.add(f"{prefix}prompt", "must not be set beside messages")


def _others(form: Form, given: Mapping[str, Any], prefix: str, findings: Findings) -> list[str]:
    """Fields that are refused: those known to ask for what is not there, and as findings those not known."""
    unsupported = []
    for name, value in given.items():
        if name in form.fields or (form.streams and name in _STREAMING):
            continue
        if name in form.neutral:
            if value not in form.neutral[name]:
                unsupported.append(prefix + name)
            continue
        complaint = "is not supported here" if name in _ELSEWHERE else "is not a known field"
        instead = (form.instead or {}).get(name)
        findings.add(prefix + shown(name), complaint + (f": use {instead}" if instead else ""))
    return sorted(unsupported)


def _read_streaming(
    form: Form, given: Mapping[str, Any], prefix: str, findings: Findings
) -> tuple[bool, bool]:
    if not form.streams:
        return False, False
    is_stream = bool(read_flag(given.get("stream", False), f"{prefix}stream", findings))
    if "stream_options" not in given:
        return is_stream, False
    name = f"{prefix}stream_options"
    if not is_stream:
        findings.add(name, "must be set only where stream is true")
    asked = leave_out(given["stream_options"], name, findings, neutral.NEUTRAL_STREAM_OPTIONS)
    options = read_object(asked, name, findings, ("include_usage",)) or {}
    usage = options.get("include_usage")
    return is_stream, usage is not None and bool(
        read_flag(usage, f"{name}.include_usage", findings)
    )
