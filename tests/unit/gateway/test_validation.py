"""The rules for fields, lengths and features that are not there yet."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.domain import ModelLimits
from common.errors import InvalidRequest, NotImplementedYet
from gateway.draft import (
    ChatMessage,
    ChatPrompt,
    ConstraintDraft,
    Draft,
    OutputDraft,
    PromptDraft,
    SamplingDraft,
    StopDraft,
    TextPrompt,
    TokenPrompt,
)
from gateway.validation.fields import check_fields, check_model, check_tenant
from gateway.validation.findings import MAX_FINDINGS, Findings
from gateway.validation.lengths import check_prompt_logprobs, max_tokens_of
from gateway.validation.unimplemented import refuse_unimplemented

LIMITS = ModelLimits(
    context_tokens=100, vocab_size=50, kv_capacity_tokens=80, default_max_tokens=16
)
TEXT = PromptDraft(TextPrompt("hello"))


def refused(draft: Draft) -> list[str]:
    """The fields that are refused, in order."""
    findings = Findings()
    check_fields(draft, LIMITS, findings)
    return [violation.field for violation in findings.violations]


def sampling(**fields: float | None) -> Draft:
    """A good request with these sampling parameters."""
    return Draft("m", TEXT, sampling=SamplingDraft(**fields))  # type: ignore[arg-type]


RANGES = {
    "temperature": (0, 2, True),
    "top_p": (0, 1, False),
    "min_p": (0, 1, True),
    "typical_p": (0, 1, False),
    "repetition_penalty": (0, 10, False),
    "presence_penalty": (-2, 2, True),
    "frequency_penalty": (-2, 2, True),
}


@pytest.mark.parametrize("name", RANGES)
@given(value=st.floats())
def test_a_number_is_accepted_exactly_in_its_range(name: str, value: float) -> None:
    """NaN and infinities never are; unset always is."""
    low, high, includes_low = RANGES[name]
    is_good = (low <= value if includes_low else low < value) and value <= high
    assert refused(sampling(**{name: value})) == ([] if is_good else [f"sampling.{name}"])
    assert refused(sampling(**{name: None})) == []


@pytest.mark.parametrize(
    ("top_k", "is_good"), [(-1, True), (0, False), (1, True), (2**31 - 1, True), (-2, False)]
)
def test_top_k(top_k: int, is_good: bool) -> None:
    """-1 is off; 0 asks for nothing that makes sense."""
    assert refused(sampling(top_k=top_k)) == ([] if is_good else ["sampling.top_k"])


@given(ids=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=100))
def test_token_ids_outside_the_vocabulary_are_each_named(ids: list[int]) -> None:
    """No more and no fewer, by index."""
    draft = Draft("m", PromptDraft(TokenPrompt(ids)))
    assert refused(draft) == [
        f"prompt.token_ids.ids[{index}]" for index, value in enumerate(ids) if value >= 50
    ]


@given(bias=st.dictionaries(st.integers(0, 60), st.floats(), max_size=20))
def test_logit_bias(bias: dict[int, float]) -> None:
    """Ids inside the vocabulary, finite values of at most 100."""
    bad = {
        f"sampling.logit_bias[{token}]"
        for token, value in bias.items()
        if token >= 50 or not abs(value) <= 100
    }
    draft = Draft("m", TEXT, sampling=SamplingDraft(logit_bias=bias))
    assert set(refused(draft)) == bad


PROMPTS = {
    "unset": (PromptDraft(), ["prompt"]),
    "empty": (PromptDraft(TextPrompt("")), ["prompt.text"]),
    "white": (PromptDraft(TextPrompt(" \n\t")), ["prompt.text"]),
    "no ids": (PromptDraft(TokenPrompt([])), ["prompt.token_ids"]),
    "no messages": (PromptDraft(ChatPrompt([])), ["prompt.chat.messages"]),
    "empty messages": (
        PromptDraft(ChatPrompt([ChatMessage("system", ""), ChatMessage("user", " \n")])),
        ["prompt.chat.messages"],
    ),
    "an empty message beside another": (
        PromptDraft(ChatPrompt([ChatMessage("system", "x"), ChatMessage("user", "")])),
        [],
    ),
    "no role": (
        PromptDraft(ChatPrompt([ChatMessage("user", ""), ChatMessage(None, "x")])),
        ["prompt.chat.messages[1].role"],
    ),
    "many messages": (
        PromptDraft(ChatPrompt([ChatMessage(None, "x")] * 2000)),
        ["prompt.chat.messages"],
    ),
    "truncated to nothing": (
        PromptDraft(TextPrompt("x"), truncate_to_tokens=0),
        ["prompt.truncate_to_tokens"],
    ),
}


@pytest.mark.parametrize("case", PROMPTS)
def test_prompts(case: str) -> None:
    """A prompt is there and can be tokenized."""
    prompt, fields = PROMPTS[case]
    assert refused(Draft("m", prompt)) == fields


STOPS = {
    "sixteen": (StopDraft(stop=["x" * 256] * 16), []),
    "seventeen": (StopDraft(stop=["x"] * 17), ["stop.stop"]),
    "ten thousand": (StopDraft(stop=[""] * 10_000), ["stop.stop"]),
    "empty": (StopDraft(stop=["a", ""]), ["stop.stop[1]"]),
    "long in bytes": (StopDraft(stop=["ü" * 129]), ["stop.stop[0]"]),
    "65 ids": (StopDraft(stop_token_ids=[1] * 65), ["stop.stop_token_ids"]),
    "id outside": (StopDraft(stop_token_ids=[1, 50]), ["stop.stop_token_ids[1]"]),
    "zero": (StopDraft(max_tokens=0), ["stop.max_tokens"]),
    "one": (StopDraft(max_tokens=1), []),
    "min above max": (StopDraft(max_tokens=3, min_tokens=4), ["stop.min_tokens"]),
}


@pytest.mark.parametrize("case", STOPS)
def test_stops(case: str) -> None:
    """Numbers and sizes of stop conditions."""
    stop, fields = STOPS[case]
    assert refused(Draft("m", TEXT, stop=stop)) == fields


def test_zero_tokens_are_for_scoring_only() -> None:
    """With echo or prompt_logprobs 0 is valid, and the prompt may be as long as everything."""
    for output in (OutputDraft(echo=True), OutputDraft(prompt_logprobs=True)):
        assert refused(Draft("m", TEXT, stop=StopDraft(max_tokens=0), output=output)) == []
    assert refused(Draft("m", TEXT, stop=StopDraft(max_tokens=0))) == ["stop.max_tokens"]
    assert max_tokens_of(0, 80, LIMITS) == 0
    with pytest.raises(InvalidRequest):
        max_tokens_of(0, 81, LIMITS)


def test_log_probabilities_of_a_prompt_are_bounded() -> None:
    """In number, alternatives included."""
    check_prompt_logprobs(OutputDraft(top_logprobs=20), 1 << 20)
    check_prompt_logprobs(OutputDraft(prompt_logprobs=True), 1 << 16)
    with pytest.raises(InvalidRequest) as caught:
        check_prompt_logprobs(OutputDraft(prompt_logprobs=True, top_logprobs=1), (1 << 15) + 1)
    assert caught.value.violations[0].field == "output.prompt_logprobs"


REST = {
    "priority": (Draft("m", TEXT, priority="77"), ["priority"]),
    "timeout 0": (Draft("m", TEXT, timeout_s=0.0), ["timeout"]),
    "timeout negative": (Draft("m", TEXT, timeout_s=-1.0), ["timeout"]),
    "timeout of a thousand years": (Draft("m", TEXT, timeout_s=3e10), []),
    "labels": (Draft("m", TEXT, labels={str(n): "" for n in range(17)}), ["labels"]),
    "label": (Draft("m", TEXT, labels={"k": "v" * 65}), ["labels[k]"]),
    "own id": (Draft("m", TEXT, client_request_id="x" * 257), ["client_request_id"]),
    "key": (Draft("m", TEXT, idempotency_key="x" * 257), ["idempotency_key"]),
    "salt": (Draft("m", TEXT, cache_salt="x" * 129), ["cache_salt"]),
    "schema": (
        Draft("m", TEXT, constraint=ConstraintDraft("json_schema", "{")),
        ["constraint.json_schema"],
    ),
    "deep schema": (
        Draft("m", TEXT, constraint=ConstraintDraft("json_schema", "[" * 60_000)),
        ["constraint.json_schema"],
    ),
    "choice": (Draft("m", TEXT, constraint=ConstraintDraft("choice")), ["constraint.choice"]),
    "empty option": (
        Draft("m", TEXT, constraint=ConstraintDraft("choice", options=["a", ""])),
        ["constraint.choice.options[1]"],
    ),
    "huge options": (
        Draft("m", TEXT, constraint=ConstraintDraft("choice", options=["x" * 1000] * 100)),
        ["constraint.choice"],
    ),
    "top logprobs": (
        Draft("m", TEXT, output=OutputDraft(top_logprobs=21)),
        ["output.top_logprobs"],
    ),
}


@pytest.mark.parametrize("case", REST)
def test_the_rest(case: str) -> None:
    """Everything around prompt and sampling."""
    draft, fields = REST[case]
    assert refused(draft) == fields


def test_everything_is_reported_at_once() -> None:
    """A bad field hides no other, and a flood is cut."""
    draft = Draft(
        "m",
        PromptDraft(),
        sampling=SamplingDraft(temperature=math.nan, n=0, logit_bias={60: math.inf}),
        stop=StopDraft(max_tokens=0),
        timeout_s=-1,
    )
    assert set(refused(draft)) == {
        "prompt",
        "sampling.temperature",
        "sampling.n",
        "sampling.logit_bias[60]",
        "stop.max_tokens",
        "timeout",
    }
    flood = Draft("m", TEXT, sampling=SamplingDraft(logit_bias=dict.fromkeys(range(50, 1050), 1)))
    assert len(refused(flood)) == MAX_FINDINGS


@pytest.mark.parametrize(("name", "is_good"), [("a/b-1.5", True), ("", False), ("a:b", False)])
def test_model_names(name: str, is_good: bool) -> None:
    """The colon separates the parts of a request id."""
    findings = Findings()
    check_model(name, findings)
    assert bool(findings.violations) != is_good


@pytest.mark.parametrize(("name", "is_good"), [("acme", True), ("", False), ("a b", False)])
def test_tenant_names(name: str, is_good: bool) -> None:
    """What can be a label and a part of a key."""
    findings = Findings()
    check_tenant(name, findings)
    assert bool(findings.violations) != is_good


@given(prompt=st.integers(0, 200), requested=st.none() | st.integers(1, 2**32 - 1))
def test_lengths(prompt: int, requested: int | None) -> None:
    """What is accepted fits into context and memory; what is refused would not."""
    room = 80 - prompt
    if prompt and room >= 1 and (requested is None or requested <= room):
        found = max_tokens_of(requested, prompt, LIMITS)
        assert found == (min(16, room) if requested is None else requested)
        return
    with pytest.raises(InvalidRequest) as caught:
        max_tokens_of(requested, prompt, LIMITS)
    if prompt:
        assert caught.value.reason == "CONTEXT_LENGTH_EXCEEDED"
        assert caught.value.metadata["prompt_tokens"] == str(prompt)


def test_a_least_length_raises_the_default_and_has_to_fit() -> None:
    """Without max_tokens, min_tokens is what the default must cover."""
    assert max_tokens_of(None, 10, LIMITS, min_tokens=5) == 16
    assert max_tokens_of(None, 10, LIMITS, min_tokens=40) == 40
    with pytest.raises(InvalidRequest) as caught:
        max_tokens_of(None, 10, LIMITS, min_tokens=71)
    assert caught.value.violations[0].field == "stop.min_tokens"


def test_neutral_values_are_no_feature() -> None:
    """Whoever spells out the defaults asks for nothing."""
    refuse_unimplemented(
        Draft(
            "m",
            TEXT,
            sampling=SamplingDraft(n=1),
        ),
        follows_constraints=False,
    )


def test_all_missing_features_are_named_together() -> None:
    """By path."""
    draft = Draft(
        "m",
        TEXT,
        adapter="lora",
        constraint=ConstraintDraft("json_object"),
    )
    with pytest.raises(NotImplementedYet) as caught:
        refuse_unimplemented(draft, follows_constraints=False)
    assert caught.value.fields == ("adapter", "constraint")


def test_memory_does_not_bound_what_rolls() -> None:
    """A model that looks back 16 tokens needs five blocks of 8 for a text of any length; choices share their prompt, and do not roll."""
    limits = replace(LIMITS, kv_capacity_tokens=40, kv_block_tokens=8)
    windowed = replace(limits, window_tokens=16)
    assert max_tokens_of(40, 60, windowed) == 40
    for refusing, num_choices in (
        (limits, 1),
        (windowed, 2),
        (replace(windowed, window_tokens=17), 1),
    ):
        with pytest.raises(InvalidRequest):
            max_tokens_of(40, 60, refusing, num_choices=num_choices)
