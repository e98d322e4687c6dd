"""Requests from plain Python values: what may be a prompt, and the options of a generation."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, Unpack

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb

PriorityName = Literal["batch", "normal", "high", "critical"]
PromptLike = str | Sequence[Mapping[str, str]] | Sequence[int] | gen.Prompt


class GenerateOptions(TypedDict, total=False):
    """Everything of a request but its prompt; what is left out is left to the server."""

    model: str
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    typical_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    seed: int
    n: int
    logit_bias: Mapping[int, float]
    max_tokens: int
    min_tokens: int
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    include_stop_in_output: bool
    ignore_eos: bool
    output: gen.OutputOptions
    constraint: gen.OutputConstraint
    priority: PriorityName
    idempotency_key: str
    client_request_id: str
    labels: Mapping[str, str]
    cache_salt: str
    bypass_prefix_cache: bool
    adapter: str
    resumable: bool
    hold: bool
    use_response_cache: bool


# Where an option goes, if not into the request itself.
_SAMPLING = frozenset(gen.SamplingParams.DESCRIPTOR.fields_by_name)
_STOP = frozenset(gen.StopConditions.DESCRIPTOR.fields_by_name)


def build_request(
    prompt: PromptLike | pb.GenerateRequest, **options: Unpack[GenerateOptions]
) -> pb.GenerateRequest:
    """A request; a ready one is copied, and options replace its fields."""
    request = pb.GenerateRequest()
    if isinstance(prompt, pb.GenerateRequest):
        request.CopyFrom(prompt)
    else:
        request.prompt.CopyFrom(build_prompt(prompt))
    for name, value in options.items():
        if name not in GenerateOptions.__annotations__:
            raise TypeError(f"unknown option: {name}")
        if name == "priority":
            request.priority = priority_value(str(value))
            continue
        if name == "stop" and isinstance(value, str):
            value = [value]
        _set(_part(request, name), name, value)
    return request


def build_prompt(prompt: PromptLike) -> gen.Prompt:
    """A text, chat messages or token ids, told apart by their type."""
    if isinstance(prompt, gen.Prompt):
        return prompt
    if isinstance(prompt, str):
        return gen.Prompt(text=prompt)
    messages = [_message(item) for item in prompt if isinstance(item, Mapping)]
    ids = [item for item in prompt if isinstance(item, int)]
    if len(messages) == len(prompt) and messages:
        return gen.Prompt(chat=gen.ChatPrompt(messages=messages))
    if len(ids) != len(prompt):
        raise TypeError("a prompt is a text, a list of messages, or a list of token ids")
    return gen.Prompt(token_ids=gen.TokenIds(ids=ids))


def priority_value(name: str) -> gen.Priority.ValueType:
    """The class of that name."""
    try:
        return gen.Priority.Value(f"PRIORITY_{name.upper()}")
    except ValueError:
        raise ValueError(f"priority is batch, normal, high or critical, not {name!r}") from None


def with_timeout(request: pb.GenerateRequest, timeout_s: float | None) -> None:
    """Gives a request its own limit, unless it has one."""
    if timeout_s is not None and not request.HasField("timeout"):
        request.timeout.CopyFrom(duration(timeout_s))


def duration(seconds: float) -> Duration:
    """A proto duration."""
    return Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))


def _message(message: Mapping[str, str]) -> gen.ChatMessage:
    unknown = set(message) - {"role", "content", "name"}
    if unknown or "role" not in message or "content" not in message:
        raise ValueError(f"a message has role, content and perhaps name, not {sorted(message)}")
    try:
        role = gen.Role.Value(f"ROLE_{message['role'].upper()}")
    except ValueError:
        raise ValueError(
            f"a role is system, user, assistant or tool, not {message['role']!r}"
        ) from None
    return gen.ChatMessage(role=role, content=message["content"], name=message.get("name"))


def _part(request: pb.GenerateRequest, name: str) -> Message:
    """The message that holds an option."""
    if name in _SAMPLING:
        return request.sampling
    return request.stop if name in _STOP else request


def _set(part: Message, name: str, value: object) -> None:
    """Sets any kind of field: scalar, repeated, map or message."""
    part.ClearField(name)
    part.MergeFrom(type(part)(**{name: value}))
