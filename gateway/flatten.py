"""Flattens a protobuf request into a draft: the border to what clients send. Nothing is judged here."""

from common.wire.digest import body_digest
from gateway.draft import (
    ChatMessage,
    ChatPrompt,
    ConstraintDraft,
    Draft,
    OutputDraft,
    PromptDraft,
    PromptForm,
    SamplingDraft,
    StopDraft,
    TextPrompt,
    TokenPrompt,
)
from gateway.validation.fields import MAX_LABELS, MAX_LOGIT_BIAS, MAX_MESSAGES
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb

_ROLES = {
    gen.ROLE_SYSTEM: "system",
    gen.ROLE_USER: "user",
    gen.ROLE_ASSISTANT: "assistant",
    gen.ROLE_TOOL: "tool",
}
_PREFIX = "PRIORITY_"


def draft_of(
    message: pb.GenerateRequest, default_priority: str = "NORMAL", default_key: str = ""
) -> Draft:
    """The request as a draft; the defaults count where the request itself names no class and no key."""
    key = message.idempotency_key or default_key
    # Maps are put in order for the digest; a request that is let in has no more of them than this.
    is_small = (
        len(message.sampling.logit_bias) <= MAX_LOGIT_BIAS and len(message.labels) <= MAX_LABELS
    )
    return Draft(
        model=message.model,
        prompt=prompt_of(message.prompt),
        sampling=_sampling(message.sampling),
        stop=_stop(message.stop),
        output=_output(message.output),
        constraint=_constraint(message.constraint),
        priority=_priority(message.priority) or default_priority,
        timeout_s=_timeout_s(message),
        idempotency_key=key,
        body_digest=body_digest(message) if key and is_small else "",
        client_request_id=message.client_request_id,
        labels=message.labels,
        cache_salt=message.cache_salt,
        bypass_prefix_cache=message.bypass_prefix_cache,
        adapter=message.adapter,
        resumable=message.resumable,
        hold=message.hold if message.HasField("hold") else True,
        use_response_cache=message.use_response_cache,
    )


def prompt_of(message: gen.Prompt) -> PromptDraft:
    """The prompt as a draft. Token ids stay where they are: there may be a million."""
    form: PromptForm | None = None
    match message.WhichOneof("form"):
        case "text":
            form = TextPrompt(message.text)
        case "token_ids":
            form = TokenPrompt(message.token_ids.ids)
        case "chat":
            chat = message.chat
            form = ChatPrompt(
                [
                    ChatMessage(
                        _ROLES.get(item.role),
                        item.content,
                        item.name if item.HasField("name") else None,
                    )
                    # One more than there may be is refused for that; four megabytes hold two million empty ones.
                    for item in chat.messages[: MAX_MESSAGES + 1]
                ],
                chat.add_generation_prompt if chat.HasField("add_generation_prompt") else True,
            )
    truncate = message.truncate_to_tokens if message.HasField("truncate_to_tokens") else None
    return PromptDraft(form, truncate)


def _sampling(message: gen.SamplingParams) -> SamplingDraft:
    given = {field.name: value for field, value in message.ListFields()}
    return SamplingDraft(**given)


def _stop(message: gen.StopConditions) -> StopDraft:
    given = {field.name: value for field, value in message.ListFields()}
    return StopDraft(**given)


def _output(message: gen.OutputOptions) -> OutputDraft:
    given = {field.name: value for field, value in message.ListFields()}
    return OutputDraft(**given)


def _constraint(message: gen.OutputConstraint) -> ConstraintDraft | None:
    kind = message.WhichOneof("kind")
    match kind:
        case None:
            return None
        case "choice":
            return ConstraintDraft(kind, options=message.choice.options)
        case "json_object":
            return ConstraintDraft(kind) if message.json_object else None
        case _:
            return ConstraintDraft(kind, getattr(message, kind))


def _priority(number: int) -> str:
    """Name of the class without its prefix, '' when unset, the number itself when it is unknown."""
    if number == gen.PRIORITY_UNSPECIFIED:
        return ""
    known = number in gen.Priority.values()
    return gen.Priority.Name(number).removeprefix(_PREFIX) if known else str(number)  # type: ignore[arg-type]


def _timeout_s(message: pb.GenerateRequest) -> float | None:
    # Plain arithmetic: the library's own conversion refuses values that we want to name an error for.
    if not message.HasField("timeout"):
        return None
    return message.timeout.seconds + message.timeout.nanos / 1e9
