"""The rules for lengths, once the prompt's tokens are known."""

from common.domain import ModelLimits
from common.errors import FieldViolation, InvalidRequest
from common.kv_need import may_roll, most_tokens
from gateway.draft import OutputDraft

# About 1 MB in the log, and again in each checkpoint.
MAX_PROMPT_LOGPROBS = 1 << 16
REASON = "CONTEXT_LENGTH_EXCEEDED"


def room_for(limits: ModelLimits, num_prompt_tokens: int, num_choices: int = 1) -> int:
    """Tokens that each choice can still generate behind such a prompt; 0 or less when there is no room."""
    size = limits.kv_block_tokens
    num_blocks = limits.kv_capacity_tokens // size
    in_context = limits.context_tokens - num_prompt_tokens
    if may_roll(num_choices, num_blocks, size, limits.window_tokens):
        return in_context
    return min(in_context, most_tokens(num_prompt_tokens, num_choices, num_blocks, size))


def max_tokens_of(
    requested: int | None,
    num_prompt_tokens: int,
    limits: ModelLimits,
    *,
    num_choices: int = 1,
    min_tokens: int = 0,
) -> int:
    """``max_tokens`` of a request, the default filled in; it never is less than ``min_tokens``.

    All choices must fit side by side.

    Raises:
        InvalidRequest: prompt and output cannot both fit.
    """
    if num_prompt_tokens == 0:
        raise InvalidRequest([FieldViolation("prompt", "must hold at least one token")])
    room = room_for(limits, num_prompt_tokens, num_choices)
    # A prompt that is only scored needs no room behind it.
    if room < (0 if requested == 0 else 1):
        raise _too_long(
            "prompt",
            f"must leave room for output: has {num_prompt_tokens} tokens, {_limits_text(limits)}",
            num_prompt_tokens,
            requested,
            limits,
        )
    wanted = max(min_tokens, requested or 0)
    if wanted > room:
        raise _too_long(
            "stop.max_tokens" if requested is not None else "stop.min_tokens",
            f"must be at most {room} behind a prompt of {num_prompt_tokens} tokens,"
            f" is {wanted}; {_limits_text(limits)}",
            num_prompt_tokens,
            requested,
            limits,
        )
    return (
        min(max(limits.default_max_tokens, min_tokens), room) if requested is None else requested
    )


def check_prompt_logprobs(output: OutputDraft, num_prompt_tokens: int) -> None:
    """Log probabilities of a prompt come in one piece, which must not become too large.

    Raises:
        InvalidRequest: there would be too many of them.
    """
    if not output.prompt_logprobs:
        return
    num_entries = num_prompt_tokens * (1 + (output.top_logprobs or 0))
    if num_entries > MAX_PROMPT_LOGPROBS:
        text = f"must come to at most {MAX_PROMPT_LOGPROBS} entries, tokens times alternatives; are {num_entries}"
        raise InvalidRequest([FieldViolation("output.prompt_logprobs", text)])


def _limits_text(limits: ModelLimits) -> str:
    text = f"the context is {limits.context_tokens} tokens"
    if limits.kv_capacity_tokens < limits.context_tokens:
        text += f" and memory holds {limits.kv_capacity_tokens}"
    return text


def _too_long(
    field: str, description: str, prompt: int, requested: int | None, limits: ModelLimits
) -> InvalidRequest:
    metadata = {
        "prompt_tokens": str(prompt),
        "context_tokens": str(limits.context_tokens),
        "kv_capacity_tokens": str(limits.kv_capacity_tokens),
    }
    if requested is not None:
        metadata["max_tokens"] = str(requested)
    return InvalidRequest([FieldViolation(field, description)], reason=REASON, metadata=metadata)
