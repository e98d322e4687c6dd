"""Enums and small values on both sides of the border."""

from common.domain import (
    ConstraintKind,
    FinishReason,
    MatchedStop,
    OutputConstraint,
    OutputOptions,
    Priority,
    SamplingParams,
    StopConditions,
    Usage,
)
from common.records import Timings
from common.request_status import RequestStatus
from headrace.v1 import generation_pb2 as pb

_PRIORITY: dict["pb.Priority.ValueType", Priority] = {
    pb.PRIORITY_UNSPECIFIED: Priority.NORMAL,
    pb.PRIORITY_BATCH: Priority.BATCH,
    pb.PRIORITY_NORMAL: Priority.NORMAL,
    pb.PRIORITY_HIGH: Priority.HIGH,
    pb.PRIORITY_CRITICAL: Priority.CRITICAL,
}
_PRIORITY_PB = {value: key for key, value in _PRIORITY.items()}
_REASON: dict["pb.FinishReason.ValueType", FinishReason] = {
    pb.FINISH_REASON_STOP: FinishReason.STOP,
    pb.FINISH_REASON_LENGTH: FinishReason.LENGTH,
    pb.FINISH_REASON_CANCELLED: FinishReason.CANCELLED,
    pb.FINISH_REASON_DEADLINE: FinishReason.DEADLINE,
    pb.FINISH_REASON_CONTENT_FILTER: FinishReason.CONTENT_FILTER,
    pb.FINISH_REASON_ERROR: FinishReason.ERROR,
}
_REASON_PB = {value: key for key, value in _REASON.items()}
_STATUS: dict["pb.RequestStatus.ValueType", RequestStatus] = {
    pb.REQUEST_STATUS_QUEUED: RequestStatus.QUEUED,
    pb.REQUEST_STATUS_RUNNING: RequestStatus.RUNNING,
    pb.REQUEST_STATUS_FINISHED: RequestStatus.FINISHED,
    pb.REQUEST_STATUS_CANCELLED: RequestStatus.CANCELLED,
    pb.REQUEST_STATUS_EXPIRED: RequestStatus.EXPIRED,
    pb.REQUEST_STATUS_FAILED: RequestStatus.FAILED,
    pb.REQUEST_STATUS_DEAD: RequestStatus.DEAD,
}
_STATUS_PB = {value: key for key, value in _STATUS.items()}


def priority_from_pb(value: "pb.Priority.ValueType") -> Priority:
    """An unset or unknown class is NORMAL: validation has refused unknown ones before."""
    return _PRIORITY.get(value, Priority.NORMAL)


def priority_to_pb(value: Priority) -> "pb.Priority.ValueType":
    """The class on the wire."""
    return _PRIORITY_PB[value]


def finish_reason_from_pb(value: "pb.FinishReason.ValueType") -> FinishReason:
    """Raises KeyError for UNSPECIFIED, which nobody sends."""
    return _REASON[value]


def finish_reason_to_pb(value: FinishReason) -> "pb.FinishReason.ValueType":
    """The reason on the wire."""
    return _REASON_PB[value]


def status_from_pb(value: "pb.RequestStatus.ValueType") -> RequestStatus:
    """Raises KeyError for UNSPECIFIED, which nobody sends."""
    return _STATUS[value]


def status_to_pb(value: RequestStatus) -> "pb.RequestStatus.ValueType":
    """The status on the wire."""
    return _STATUS_PB[value]


def matched_stop_from_pb(message: pb.MatchedStop) -> MatchedStop | None:
    """None when nothing matched."""
    match message.WhichOneof("kind"):
        case "stop_string":
            return MatchedStop(stop_string=message.stop_string)
        case "stop_token_id":
            return MatchedStop(stop_token_id=message.stop_token_id)
        case "eos_token_id":
            return MatchedStop(eos_token_id=message.eos_token_id)
        case _:
            return None


def matched_stop_to_pb(value: MatchedStop | None) -> pb.MatchedStop | None:
    """The match on the wire; None stays unset."""
    if value is None:
        return None
    message = pb.MatchedStop()
    if value.stop_string is not None:
        message.stop_string = value.stop_string
    elif value.stop_token_id is not None:
        message.stop_token_id = value.stop_token_id
    elif value.eos_token_id is not None:
        message.eos_token_id = value.eos_token_id
    return message


def usage_to_pb(value: Usage) -> pb.Usage:
    """Usage on the wire."""
    return pb.Usage(
        prompt_tokens=value.prompt_tokens,
        completion_tokens=value.completion_tokens,
        cached_prompt_tokens=value.cached_prompt_tokens,
        from_response_cache=value.from_response_cache,
    )


def usage_from_pb(message: pb.Usage) -> Usage:
    """Usage from the wire."""
    return Usage(
        message.prompt_tokens,
        message.completion_tokens,
        message.cached_prompt_tokens,
        message.from_response_cache,
    )


def timings_to_pb(value: Timings) -> pb.Timings:
    """Durations on the wire."""
    message = pb.Timings(attempts=value.attempts)
    for field, seconds in (
        (message.queue, value.queue_s),
        (message.prefill, value.prefill_s),
        (message.time_to_first_token, value.time_to_first_token_s),
        (message.total, value.total_s),
    ):
        field.FromNanoseconds(max(0, round(seconds * 1e9)))
    return message


def timings_from_pb(message: pb.Timings) -> Timings:
    """Durations from the wire."""
    return Timings(
        queue_s=message.queue.ToNanoseconds() / 1e9,
        prefill_s=message.prefill.ToNanoseconds() / 1e9,
        time_to_first_token_s=message.time_to_first_token.ToNanoseconds() / 1e9,
        total_s=message.total.ToNanoseconds() / 1e9,
        attempts=message.attempts,
    )


def sampling_to_pb(value: SamplingParams) -> pb.SamplingParams:
    """Definite parameters on the wire: every field is set."""
    return pb.SamplingParams(
        seed=value.seed,
        temperature=value.temperature,
        top_p=value.top_p,
        top_k=value.top_k or -1,
        min_p=value.min_p,
        typical_p=value.typical_p,
        repetition_penalty=value.repetition_penalty,
        presence_penalty=value.presence_penalty,
        frequency_penalty=value.frequency_penalty,
        n=value.n,
        logit_bias=value.logit_bias,
    )


def sampling_from_pb(message: pb.SamplingParams) -> SamplingParams:
    """Definite parameters from the wire (written by ``sampling_to_pb``)."""
    return SamplingParams(
        seed=message.seed,
        temperature=message.temperature,
        top_p=message.top_p,
        top_k=max(0, message.top_k),
        min_p=message.min_p,
        typical_p=message.typical_p,
        repetition_penalty=message.repetition_penalty,
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        n=message.n,
        logit_bias=dict(message.logit_bias),
    )


def stop_to_pb(value: StopConditions) -> pb.StopConditions:
    """Definite conditions on the wire: every field is set."""
    return pb.StopConditions(
        max_tokens=value.max_tokens,
        min_tokens=value.min_tokens,
        stop=value.stop,
        stop_token_ids=value.stop_token_ids,
        include_stop_in_output=value.include_stop_in_output,
        ignore_eos=value.ignore_eos,
    )


def stop_from_pb(message: pb.StopConditions) -> StopConditions:
    """Definite conditions from the wire (written by ``stop_to_pb``)."""
    return StopConditions(
        max_tokens=message.max_tokens,
        min_tokens=message.min_tokens,
        stop=tuple(message.stop),
        stop_token_ids=tuple(message.stop_token_ids),
        include_stop_in_output=message.include_stop_in_output,
        ignore_eos=message.ignore_eos,
    )


def constraint_to_pb(value: OutputConstraint | None) -> pb.OutputConstraint | None:
    """What an output must look like; None stays unset."""
    if value is None:
        return None
    match value.kind:
        case ConstraintKind.JSON_OBJECT:
            return pb.OutputConstraint(json_object=True)
        case ConstraintKind.CHOICE:
            return pb.OutputConstraint(choice=pb.ChoiceList(options=value.options))
        case ConstraintKind.JSON_SCHEMA:
            return pb.OutputConstraint(json_schema=value.text)
        case ConstraintKind.REGEX:
            return pb.OutputConstraint(regex=value.text)
        case ConstraintKind.GRAMMAR:
            return pb.OutputConstraint(grammar=value.text)


def constraint_from_pb(message: pb.OutputConstraint) -> OutputConstraint | None:
    """None where none is set; a JSON object that is not wanted is none."""
    kind = message.WhichOneof("kind")
    if kind is None or (kind == "json_object" and not message.json_object):
        return None
    if kind == "choice":
        return OutputConstraint(ConstraintKind.CHOICE, options=tuple(message.choice.options))
    text = "" if kind == "json_object" else getattr(message, kind)
    return OutputConstraint(ConstraintKind(kind), text)


def output_to_pb(value: OutputOptions) -> pb.OutputOptions:
    """What an answer carries: every field is set."""
    return pb.OutputOptions(
        token_ids=value.token_ids,
        logprobs=value.logprobs,
        top_logprobs=value.top_logprobs,
        prompt_logprobs=value.prompt_logprobs,
        echo=value.echo,
    )


def output_from_pb(message: pb.OutputOptions) -> OutputOptions:
    """What an answer carries (written by ``output_to_pb``)."""
    return OutputOptions(
        token_ids=wants_token_ids(message),
        logprobs=message.logprobs,
        top_logprobs=message.top_logprobs,
        prompt_logprobs=message.prompt_logprobs,
        echo=message.echo,
    )


def wants_token_ids(message: pb.OutputOptions) -> bool:
    """Whether an answer carries token ids; unset means yes."""
    return message.token_ids if message.HasField("token_ids") else True
