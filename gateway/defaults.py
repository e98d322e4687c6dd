"""Fills in what a validated request leaves open: the model's defaults first, then the server's."""

import secrets
from collections.abc import Callable
from typing import TypeVar

from common.domain import (
    ConstraintKind,
    OutputConstraint,
    OutputOptions,
    SamplingParams,
    StopConditions,
)
from common.model_card import ModelCard
from gateway.draft import ConstraintDraft, OutputDraft, SamplingDraft, StopDraft

_SEED_BITS = 63

T = TypeVar("T")


def draw_seed() -> int:
    """A seed that signed 64-bit integers hold too."""
    return secrets.randbits(_SEED_BITS)


def sampling_of(
    draft: SamplingDraft, card: ModelCard, draw: Callable[[], int] = draw_seed
) -> SamplingParams:
    """Definite sampling parameters."""
    top_k = _first(draft.top_k, card.default_top_k, 0)
    return SamplingParams(
        seed=draw() if draft.seed is None else draft.seed,
        temperature=_first(draft.temperature, card.default_temperature, 1.0),
        top_p=_first(draft.top_p, card.default_top_p, 1.0),
        top_k=max(0, top_k),
        min_p=_first(draft.min_p, 0.0),
        typical_p=_first(draft.typical_p, 1.0),
        repetition_penalty=_first(draft.repetition_penalty, 1.0),
        presence_penalty=_first(draft.presence_penalty, 0.0),
        frequency_penalty=_first(draft.frequency_penalty, 0.0),
        logit_bias=dict(draft.logit_bias),
        n=_first(draft.n, 1),
    )


def stop_of(draft: StopDraft, max_tokens: int) -> StopConditions:
    """Definite stop conditions."""
    return StopConditions(
        max_tokens=max_tokens,
        min_tokens=draft.min_tokens or 0,
        stop=tuple(draft.stop),
        stop_token_ids=tuple(draft.stop_token_ids),
        include_stop_in_output=draft.include_stop_in_output,
        ignore_eos=draft.ignore_eos,
    )


def output_of(draft: OutputDraft) -> OutputOptions:
    """Definite output options; who asks for alternatives asks for log probabilities."""
    top_logprobs = draft.top_logprobs or 0
    return OutputOptions(
        token_ids=draft.token_ids,
        logprobs=draft.logprobs or top_logprobs > 0,
        top_logprobs=top_logprobs,
        prompt_logprobs=draft.prompt_logprobs,
        echo=draft.echo,
    )


def constraint_of(draft: ConstraintDraft | None) -> OutputConstraint | None:
    """What the output must look like."""
    if draft is None:
        return None
    return OutputConstraint(ConstraintKind(draft.kind), draft.text, tuple(draft.options))


def _first(*values: T | None) -> T:
    return next(value for value in values if value is not None)
