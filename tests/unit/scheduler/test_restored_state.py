"""Everything that a running request owns, and how it is there again after a takeover or on another worker.

Whoever adds a field to one of these has to say here how it is restored; until then this test fails. What is said of
tokens is held by the engine's and the scheduler's own tests, which interrupt runs at every position.
"""

import ast
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path

import pytest

from common.domain import (
    ConstraintKind,
    FinishReason,
    GenerationRequest,
    OrderingHeader,
    OutputConstraint,
    OutputOptions,
    Priority,
    SamplingParams,
    StopConditions,
    TraceContext,
)
from common.logprobs import Logprobs, TokenLogprob
from common.prefix_keys import root_key
from common.records import (
    ChoiceProgress,
    Failure,
    FinishRecord,
    Progress,
    PromptRecord,
    Timings,
    TokensRecord,
)
from common.streams.owner_answers import Owned
from common.wire.records import decode_progress, encode_progress
from common.wire.request import (
    decode_header,
    encode_body,
    encode_header,
    parse_body,
    request_from_body,
)
from headrace.internal.v1 import records_pb2, worker_service_pb2
from scheduler.led_request import LedRequest
from worker.engine.ending import EndRule
from worker.engine.job import Job, Ticket
from worker.session.messages import job_from_pb

ROOT = Path(__file__).parents[3]

BODY = "in the stored body, which every worker gets as it is"
HEADER = "in the inbox entry's header"
RECORD = "in the record: the owner's answer to `own`"
LOG = "in the log, from the checkpoint up to the fence"
TOKENS = "replayed from the logged tokens when the sequence is made"
ANEW = "made anew: it means nothing beyond this owner, worker or step"
NEVER = "never held by a request that goes on: it has ended"
REFUSED = "stored with the body; requests that use it are refused until it is implemented"

# What a worker has of a request.
JOB = {
    "ticket": ANEW,
    "prompt_token_ids": BODY,
    "sampling": BODY,
    "stop": BODY,
    "deadline_s": RECORD,
    "generated": LOG,
    "finished_choices": LOG,
    "output": BODY,
    "prefix_root": BODY,
    "constraint": BODY,
    "grammar": BODY,  # compiled anew, or kept by the worker
    "failure": ANEW,
}
TICKET = {"request_id": BODY, "epoch": RECORD, "attempt": ANEW}
SEQUENCE = {
    "job": BODY,
    "index": BODY,
    "blocks": ANEW,
    "tally": ANEW,  # of what is drawn here
    "token_ids": TOKENS,
    "num_computed": ANEW,
    "num_found": ANEW,
    "num_published": ANEW,
    "num_reached": TOKENS,
    "roll_tokens": BODY,
    "follows": ANEW,
    "_chain": BODY,
    "finish": NEVER,
    "_rule": BODY,
    "_text": TOKENS,
    "_seen": TOKENS,
    "_constraint": TOKENS,
    "prompt_logprobs": LOG,  # logged with the first token; computed anew where none is
}
GROUP = {
    "job": BODY,
    "sequences": TOKENS,
    "is_prompt_told": ANEW,
    "num_overtakes": ANEW,
    "number": ANEW,
    "cached_tokens": ANEW,
    "saved": ANEW,
    "parked_since_s": ANEW,
}
OUTPUT_TEXT = {
    "_detokenizer": TOKENS,
    "_matcher": TOKENS,
    "_include_stop": BODY,
    "_is_over": NEVER,
    "is_refused": NEVER,
    "bytes_of": ANEW,
    "_preface": TOKENS,
}
FILTERED_TEXT = {"_text": TOKENS, "_gate": TOKENS, "bytes_of": ANEW}
TEXT_GATE = {
    "_filters": ANEW,  # of the worker's own settings
    "_on_failure": ANEW,
    "_span": ANEW,  # the longest that a filter looks at
    "_text": TOKENS,
    "_num_out": TOKENS,
    "is_shut": TOKENS,
}
SEEN_TOKENS = {"_places": TOKENS, "token_ids": TOKENS, "counts": TOKENS}
GRAMMAR_CONSTRAINT = {"_matcher": TOKENS}
PREFIX_CHAIN = {"_root": BODY, "_block_size": ANEW, "_keys": TOKENS}
END_RULE = {"stop": BODY, "eos_token_ids": ANEW, "max_generated": BODY}
STOP_MATCHER = {"_stops": BODY, "_failures": BODY, "_states": TOKENS, "_held": TOKENS}
BYTE_LEVEL = {"_token_bytes": ANEW, "_decoder": TOKENS}
WINDOWED = {
    "_tokenizer": ANEW,
    "_kinds": ANEW,
    "_window": TOKENS,
    "_num_context": TOKENS,
    "_said": TOKENS,
}

# What a leader has of it.
LED_REQUEST = {
    "owned_s": ANEW,
    "waiting_since_s": ANEW,
    "settling_s": ANEW,
    "id": RECORD,
    "entry_id": RECORD,
    "header": HEADER,
    "epoch": RECORD,
    "log": RECORD,
    "start": RECORD,
    "arrival_s": RECORD,
    "deadline_s": RECORD,
    "progress": LOG,
    "fingerprint": RECORD,
    "worker_losses": RECORD,
    "num_stalls": RECORD,
    "num_dispatches": RECORD,
    "first_dispatch_s": RECORD,  # and with the prompt's record, by the clock of its first token
    "first_token_s": LOG,  # with the prompt's record
    "status": RECORD,
    "attempt": ANEW,  # the epoch tells former owners' attempts apart
    "is_charged": LOG,  # with the prompt's record
    "worker_id": ANEW,
    "why": ANEW,
    "since_s": ANEW,
    "num_preempted": ANEW,  # a new leader leaves it alone for a quantum, too
    "is_leaving": ANEW,
    "outcome": RECORD,  # of attempts that are over; `own` ends the one that runs
    "gateways": RECORD,  # with the next heartbeat
    "is_newcomer": ANEW,
    "is_taking": ANEW,
    "is_recovering": ANEW,
    "num_choices": HEADER,
    "seed": BODY,
    "next_seq": LOG,
    "has_prompt": LOG,
    "finished_choices": LOG,
    "num_unconfirmed": LOG,  # what of it arrived is in front of the fence, the rest is void
    "ending": LOG,
    "end_wanted": RECORD,  # the cancel flag and the deadline; a poison verdict by its count
    "is_settling": LOG,
    "is_returning": ANEW,
    "awaits_verdict": ANEW,  # a worker's grace to come back ends with its leader
    "is_logged": ANEW,
    "is_checkpointing": ANEW,
    "checkpoint_seq": RECORD,
    "checkpoint_s": ANEW,
    "key": RECORD,
}
PROGRESS = {
    "choices": LOG,
    "seq_choices": LOG,
    "prompt": LOG,
    "log_id": LOG,
    "epoch": RECORD,
}
CHOICE_PROGRESS = {
    "index": LOG,
    "token_ids": LOG,
    "text": LOG,
    "text_chars": LOG,
    "logprobs": LOG,
    "finish": LOG,
}
OWNED = {
    "epoch": RECORD,
    "status_before": RECORD,
    "now_ms": ANEW,
    "cancel": RECORD,
    "checkpoint": RECORD,
    "log": RECORD,
    "start": RECORD,
    "worker_losses": RECORD,
    "attempts": RECORD,
    "admitted_ms": RECORD,
    "deadline_ms": RECORD,
    "resume_grace_ms": RECORD,
    "first_dispatch_ms": RECORD,
    "fingerprint": RECORD,
    "stalls": RECORD,
}

# What is stored for both.
REQUEST_BODY = {
    "request_id": BODY,
    "model": BODY,
    "model_revision": BODY,
    "prompt_token_ids": BODY,
    "sampling": BODY,
    "stop": BODY,
    "output": BODY,
    "constraint": BODY,
    "priority": BODY,
    "tenant": BODY,
    "client_request_id": BODY,
    "labels": BODY,
    "cache_salt": BODY,
    "bypass_prefix_cache": BODY,
    "adapter": REFUSED,
    "resumable": BODY,
    "hold": BODY,
    "traceparent": BODY,
    "tracestate": BODY,
    "baggage": BODY,
}
INBOX_HEADER = {
    "tenant": HEADER,
    "priority": HEADER,
    "prompt_tokens": HEADER,
    "max_tokens": HEADER,
    "hold": HEADER,
    "traceparent": HEADER,
    "tracestate": HEADER,
    "model_revision": HEADER,
    "seed": HEADER,
    "output": HEADER,
    "has_deadline": HEADER,
    "num_choices": HEADER,
    "is_reserved": HEADER,
    "prefix_hashes": HEADER,
    "prefix_step_tokens": HEADER,
}
ASSIGNMENT = {
    "body": BODY,
    "epoch": RECORD,
    "attempt": ANEW,
    "remaining_ms": RECORD,
    "resume": LOG,
    "traceparent": ANEW,
}


def attributes(path: str, name: str) -> set[str]:
    """What a class without declared fields sets on itself, read from its source."""
    tree = ast.parse((ROOT / path).read_text())
    (found,) = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name]
    return {
        node.attr
        for node in ast.walk(found)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


@pytest.mark.parametrize(
    ("path", "name", "told"),
    [
        ("worker/engine/sequence.py", "Sequence", SEQUENCE),
        ("worker/engine/group.py", "SequenceGroup", GROUP),
        ("worker/text/output_text.py", "OutputText", OUTPUT_TEXT),
        ("worker/text/filtered_text.py", "FilteredText", FILTERED_TEXT),
        ("common/content_filter.py", "TextGate", TEXT_GATE),
        ("worker/engine/seen_tokens.py", "SeenTokens", SEEN_TOKENS),
        ("worker/grammar/matcher.py", "GrammarConstraint", GRAMMAR_CONSTRAINT),
        ("worker/kv/prefix_chain.py", "PrefixChain", PREFIX_CHAIN),
        ("worker/text/stop_matcher.py", "StopMatcher", STOP_MATCHER),
        ("worker/text/byte_level.py", "ByteLevelDetokenizer", BYTE_LEVEL),
        ("worker/text/windowed.py", "WindowedDetokenizer", WINDOWED),
    ],
)
def test_state_of_the_worker_is_restored(path: str, name: str, told: dict[str, str]):
    """Each attribute is named with how it comes back."""
    assert attributes(path, name) == told.keys(), f"say how {name}'s fields are restored"


@pytest.mark.parametrize(
    ("cls", "told"),
    [
        (Job, JOB),
        (Ticket, TICKET),
        (EndRule, END_RULE),
        (LedRequest, LED_REQUEST),
        (Progress, PROGRESS),
        (ChoiceProgress, CHOICE_PROGRESS),
        (Owned, OWNED),
    ],
)
def test_state_of_values_is_restored(cls: type, told: dict[str, str]):
    """Each field is named with how it comes back."""
    assert is_dataclass(cls)
    assert {field.name for field in fields(cls)} == told.keys(), f"say how {cls}'s are restored"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (records_pb2.RequestBody, REQUEST_BODY),
        (records_pb2.InboxHeader, INBOX_HEADER),
        (worker_service_pb2.Assignment, ASSIGNMENT),
    ],
)
def test_stored_fields_are_known(message, told: dict[str, str]):
    """Each field of what is stored is named with what it is for."""
    names = {field.name for field in message.DESCRIPTOR.fields}
    assert names == told.keys(), f"say what becomes of {message.DESCRIPTOR.name}'s fields"


REQUEST = GenerationRequest(
    request_id="m:0:" + "1" * 32,
    model="m",
    model_revision="r",
    prompt_token_ids=(1, 2),
    sampling=SamplingParams(
        seed=3,
        temperature=0.5,
        top_p=0.25,
        top_k=4,
        min_p=0.125,
        typical_p=0.5,
        repetition_penalty=1.5,
        presence_penalty=0.25,
        frequency_penalty=0.75,
        n=2,
        logit_bias={5: 1.5},
    ),
    stop=StopConditions(
        max_tokens=6,
        min_tokens=1,
        stop=("x",),
        stop_token_ids=(7,),
        include_stop_in_output=True,
        ignore_eos=True,
    ),
    priority=Priority.HIGH,
    tenant="t",
    client_request_id="c",
    labels={"a": "b"},
    output=OutputOptions(
        token_ids=False, logprobs=True, top_logprobs=2, prompt_logprobs=True, echo=True
    ),
    cache_salt="s",
    bypass_prefix_cache=True,
    constraint=OutputConstraint(ConstraintKind.CHOICE, options=("a", "b")),
    resumable=True,
    hold=False,
    trace=TraceContext("tp", "ts"),
    baggage="k=v",
)
HEADER_VALUE = OrderingHeader(
    "t", Priority.HIGH, 2, 6, hold=False, model_revision="r", trace=TraceContext("tp", "ts"),
    seed=3, wants_token_ids=False, has_deadline=True, num_choices=2, is_reserved=True,
    prefix_hashes=(2**64 - 1, 5), prefix_step_tokens=16,
)  # fmt: skip
FAILURE = Failure("INTERNAL", "m", "R", {"k": "v"})
TIMINGS = Timings(1.0, 2.0, 3.0, 4.0, 5)


def a_progress() -> Progress:
    """Two choices, one of which has ended, with everything that may be said of them."""
    progress = Progress(log_id="7-1", epoch=3)
    logprobs = Logprobs(TokenLogprob(1, -0.5, b"a"), (TokenLogprob(2, -0.25, b"\xff"),))
    progress.add(PromptRecord(1, "w", after_s=0.5, waited_s=0.25, logprobs=(Logprobs(), logprobs)))
    progress.add(TokensRecord(0, 0, (1, 2), "ab", (1, 1), (logprobs, logprobs)))
    progress.add(TokensRecord(2, 1, (3,), "c", (1,)))
    progress.add(
        FinishRecord(
            3, 1, FinishReason.STOP, None, text="d", last=False, failure=FAILURE, timings=TIMINGS
        )
    )
    return progress


@pytest.mark.parametrize(
    "value", [REQUEST, REQUEST.sampling, REQUEST.stop, REQUEST.output, HEADER_VALUE]
)
def test_no_field_is_left_at_its_default(value):
    """The values above can only show that a field is stored if it is not what it would be anyway."""
    for field in fields(value):
        if field.default is not MISSING:
            assert getattr(value, field.name) != field.default, field.name
        elif field.default_factory is not MISSING:
            assert getattr(value, field.name) != field.default_factory(), field.name


def test_what_is_stored_comes_back_whole():
    """Body, header and checkpoint decode to what was encoded, in every field."""
    assert request_from_body(parse_body(encode_body(REQUEST))) == REQUEST
    assert decode_header(encode_header(HEADER_VALUE)) == HEADER_VALUE
    assert decode_progress(encode_progress(a_progress())) == a_progress()


@pytest.mark.parametrize("kind", ConstraintKind)
def test_every_kind_of_constraint_is_stored(kind: ConstraintKind):
    """By its text or by its options."""
    options = ("x", "y") if kind is ConstraintKind.CHOICE else ()
    has_text = kind not in (ConstraintKind.CHOICE, ConstraintKind.JSON_OBJECT)
    constraint = OutputConstraint(kind, "text" if has_text else "", options)
    request = replace(REQUEST, constraint=constraint)
    assert request_from_body(parse_body(encode_body(request))) == request


def test_a_worker_gets_all_of_it():
    """The job of an assignment that resumes holds the request's parameters, its tokens and its ended choices."""
    assignment = worker_service_pb2.Assignment(
        body=parse_body(encode_body(REQUEST)), epoch=3, attempt=2, remaining_ms=1500
    )
    assignment.resume.ParseFromString(encode_progress(a_progress()))
    assert job_from_pb(assignment, 10.0) == Job(
        ticket=Ticket(REQUEST.request_id, 3, 2),
        prompt_token_ids=REQUEST.prompt_token_ids,
        sampling=REQUEST.sampling,
        stop=REQUEST.stop,
        deadline_s=11.5,
        generated={0: (1, 2), 1: (3,)},
        finished_choices=frozenset({1}),
        output=REQUEST.output,
        prefix_root=None,
        constraint=REQUEST.constraint,
    )
    assignment.body.bypass_prefix_cache = False
    root = root_key(tenant="t", salt="s", revision="r")
    assert job_from_pb(assignment, 10.0).prefix_root == root
