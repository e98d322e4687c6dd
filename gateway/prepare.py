"""From a message to a request that may be admitted: model, fields, tokens, lengths, defaults, in this order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from common.content_filter import CAPABILITY as OUTPUT_FILTER
from common.domain import (
    GenerationRequest,
    ModelLimits,
    OrderingHeader,
    OutputOptions,
    Priority,
    RequestId,
    SamplingParams,
    TraceContext,
)
from common.errors import FieldViolation, InvalidRequest
from common.grammars import CAPABILITY as CONSTRAINTS
from common.prefix_keys import sampled_hashes
from common.telemetry_names import SpanName
from common.tenancy import UNLIMITED, TenantLimits
from common.tracing import Tracing, context_of
from gateway.caller import Caller
from gateway.catalogue import Catalogue
from gateway.defaults import constraint_of, output_of, sampling_of, stop_of
from gateway.draft import Draft, PromptDraft
from gateway.model import Model
from gateway.policy import check_class_allowed, check_model_allowed
from gateway.tokenize import PromptTokenizer
from gateway.validation.fields import check_fields, check_model, check_prompt, check_tenant
from gateway.validation.findings import UINT32_MAX, Findings
from gateway.validation.lengths import check_prompt_logprobs, max_tokens_of
from gateway.validation.unimplemented import refuse_unimplemented

# Where the model itself is misnamed, the other fields are still looked at, without a model's limits.
_NO_LIMITS = ModelLimits(*(4 * [UINT32_MAX + 1]))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that lacks only its admission."""

    id: RequestId
    request: GenerationRequest
    budget_s: float
    has_deadline: bool = False
    limits: TenantLimits = UNLIMITED
    is_reserved: bool = False
    """Whether it counts against its tenant's limits, so that its end has to be settled."""
    kv_block_tokens: int = 0
    """Tokens of a worker's KV block, in which beginnings of prompts are named; 0: unknown."""

    @property
    def most_tokens(self) -> int:
        """Most tokens that it can use: the prompt once, and every choice."""
        request = self.request
        return len(request.prompt_token_ids) + request.stop.max_tokens * request.sampling.n

    def renamed(self, request_id: RequestId) -> Self:
        """The same request under another id."""
        return replace(
            self, id=request_id, request=replace(self.request, request_id=str(request_id))
        )

    def header(self, trace: TraceContext) -> OrderingHeader:
        """What ordering needs to know, with the trace of the admitting span."""
        request = self.request
        hashes, step_tokens = sampled_hashes(request, self.kv_block_tokens)
        return OrderingHeader(
            tenant=request.tenant,
            priority=request.priority,
            prompt_tokens=len(request.prompt_token_ids),
            max_tokens=request.stop.max_tokens * request.sampling.n,
            hold=request.hold,
            model_revision=request.model_revision,
            trace=trace,
            seed=request.sampling.seed,
            wants_token_ids=request.output.token_ids,
            has_deadline=self.has_deadline,
            num_choices=request.sampling.n,
            is_reserved=self.is_reserved,
            prefix_hashes=hashes,
            prefix_step_tokens=step_tokens,
        )


def _output(draft: Draft, model: Model) -> OutputOptions:
    """What the answer carries. Where workers filter text, it is all there is: tokens would tell what was held back.

    Raises:
        InvalidRequest: more is asked for.
    """
    output = output_of(draft.output)
    if OUTPUT_FILTER not in model.card.capabilities:
        return output
    if output.logprobs:
        raise InvalidRequest(
            [FieldViolation("output.logprobs", "is not to be had behind a content filter")]
        )
    return replace(output, token_ids=False)


@dataclass(slots=True)
class _Checked:
    """What the checks of a request worked out."""

    sampling: SamplingParams
    output: OutputOptions
    tokens: Sequence[int] = ()
    max_tokens: int = 0


class Preparation:
    """Validates and tokenizes."""

    def __init__(
        self,
        catalogue: Catalogue,
        tokenizer: PromptTokenizer,
        tracing: Tracing,
        *,
        default_timeout_s: float,
        longest_life_s: float,
    ) -> None:
        """``default_timeout_s`` counts where neither the request nor the call has a deadline."""
        self._catalogue = catalogue
        self._tokenizer = tokenizer
        self._tracing = tracing
        self._default_timeout_s = default_timeout_s
        self._longest_life_s = longest_life_s

    async def prepare(self, draft: Draft, caller: Caller, trace: TraceContext) -> Prepared:
        """The request, ready to be admitted.

        Raises:
            HeadraceError: it is refused, and why.
        """
        with self._tracing.span(SpanName.VALIDATE, parent=trace) as span:
            model = await self._model(draft, caller)
            checked = await self._check(draft, caller, model)
            check_class_allowed(caller.limits, Priority[draft.priority])
            await self._tokenizer.check_content(model, draft.prompt, checked.tokens)
            refuse_unimplemented(draft, follows_constraints=CONSTRAINTS in model.card.capabilities)
            request_id = model.new_id()
            return Prepared(
                request_id,
                GenerationRequest(
                    request_id=str(request_id),
                    model=model.card.model,
                    model_revision=model.card.revision,
                    prompt_token_ids=tuple(checked.tokens),
                    sampling=checked.sampling,
                    stop=stop_of(draft.stop, checked.max_tokens),
                    priority=Priority[draft.priority],
                    tenant=caller.tenant,
                    client_request_id=draft.client_request_id,
                    labels=dict(draft.labels),
                    output=checked.output,
                    cache_salt=draft.cache_salt,
                    bypass_prefix_cache=draft.bypass_prefix_cache,
                    constraint=constraint_of(draft.constraint),
                    resumable=draft.resumable,
                    hold=draft.hold,
                    trace=context_of(span),
                    baggage=caller.baggage,
                ),
                self._budget_s(draft, caller),
                has_deadline=bool(draft.timeout_s) or caller.remaining_s is not None,
                limits=caller.limits,
                kv_block_tokens=model.card.kv_block_tokens,
            )

    async def _check(self, draft: Draft, caller: Caller, model: Model) -> _Checked:
        """Everything that can be said of the request's fields, in one pass: nothing is sent twice to be refused twice.

        Raises:
            InvalidRequest: what is wrong, all of it.
        """
        findings = Findings()
        check_tenant(caller.tenant, findings)
        check_fields(draft, model.limits, findings)
        checked = _Checked(sampling_of(draft.sampling, model.card), output_of(draft.output))
        if (
            draft.use_response_cache
            and checked.sampling.temperature
            and draft.sampling.seed is None
        ):
            findings.add("use_response_cache", "must be set with temperature 0 or a seed only")
        # What was refused by itself is not looked at further.
        if not findings.has("prompt"):
            with findings.gathering():
                checked.tokens = await self._tokenizer.tokens(model, draft.prompt)
                checked.max_tokens = max_tokens_of(
                    draft.stop.max_tokens,
                    len(checked.tokens),
                    model.limits,
                    num_choices=1 if findings.has("sampling.n") else draft.sampling.n or 1,
                    min_tokens=draft.stop.min_tokens or 0,
                )
            with findings.gathering():
                check_prompt_logprobs(draft.output, len(checked.tokens))
        with findings.gathering():
            checked.output = _output(draft, model)
        constraint = None if findings.has("constraint") else constraint_of(draft.constraint)
        if constraint is not None and CONSTRAINTS in model.card.capabilities:
            with findings.gathering():
                await self._tokenizer.check_constraint(constraint)
        findings.raise_if_any()
        return checked

    def violations(self, draft: Draft) -> Sequence[FieldViolation]:
        """What is wrong with single fields of a request that is refused anyway, as far as its model is known here."""
        models = (one for one in self._catalogue.models if one.card.model == draft.model)
        model = next(models, None)
        findings = Findings()
        check_model(draft.model, findings)
        check_fields(draft, _NO_LIMITS if model is None else model.limits, findings)
        return findings.violations

    async def count(
        self, name: str, prompt: PromptDraft, caller: Caller
    ) -> tuple[Model, Sequence[int]]:
        """The tokens of a prompt, exactly as a request would have them.

        Raises:
            HeadraceError: the prompt is refused, and why.
        """
        findings = Findings()
        check_model(name, findings)
        findings.raise_if_any()
        check_model_allowed(caller.limits, name)
        model = await self._catalogue.get(name)
        check_prompt(prompt, model.limits, findings)
        findings.raise_if_any()
        return model, await self._tokenizer.tokens(model, prompt)

    async def _model(self, draft: Draft, caller: Caller) -> Model:
        findings = Findings()
        check_model(draft.model, findings)
        if findings.violations:
            check_tenant(caller.tenant, findings)
            check_fields(draft, _NO_LIMITS, findings)
        findings.raise_if_any()
        check_model_allowed(caller.limits, draft.model)
        return await self._catalogue.get(draft.model)

    def _budget_s(self, draft: Draft, caller: Caller) -> float:
        """The earliest of the request's timeout, the call's deadline and the longest life."""
        bounds = [self._longest_life_s, draft.timeout_s or self._default_timeout_s]
        if caller.remaining_s is not None:
            bounds.append(max(0.001, caller.remaining_s))
        return min(bounds)
