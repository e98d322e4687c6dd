"""The checks of a chaos run notice what they are there for, whatever an answer was asked to carry."""

import copy
from collections.abc import Callable

import pytest

from headrace.client import HeadraceError
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.chaos.asks import Known
from tests.chaos.cached import Answered
from tests.chaos.checks import GIVEN_UP, NEVER, NO_WORKER, compare, outcome_of
from tests.chaos.journal import History, Journal
from tests.support.outcomes import UNTOLD, Outcome

REQUEST = pb.GenerateRequest(
    model="sim", sampling=gen.SamplingParams(seed=7), stop=gen.StopConditions(stop=["mill"])
)
RESPONSE = pb.GenerateResponse(
    request_id="sim:0:1",
    model="sim",
    seed=7,
    choices=[
        gen.Choice(text="abc", token_ids=[97, 98, 99], finish_reason=gen.FINISH_REASON_LENGTH)
    ],
    usage=gen.Usage(prompt_tokens=2, completion_tokens=3),
)
KNOWN = Known(0, REQUEST, outcome_of(RESPONSE), [104, 105])


def without_ids() -> Outcome:
    """The whole answer, as text alone."""
    response = pb.GenerateResponse()
    response.CopyFrom(RESPONSE)
    del response.choices[0].token_ids[:]
    return outcome_of(response, has_ids=False)


def streamed_without_ids() -> Outcome:
    """The same as a stream brings it: each token counts, and none is told."""
    outcome = without_ids()
    outcome.choices[0].token_ids, outcome.choices[0].is_counted = [UNTOLD] * 3, True
    return outcome


WHOLE = [outcome_of(RESPONSE), without_ids(), streamed_without_ids()]


def _text(outcome: Outcome) -> None:
    outcome.choices[0].text = "abd"


def _a_token_less(outcome: Outcome) -> None:
    outcome.token_ids.pop()
    outcome.usage.completion_tokens = 2


def _usage(outcome: Outcome) -> None:
    outcome.usage.completion_tokens = 4


def _prompt(outcome: Outcome) -> None:
    outcome.usage.prompt_tokens = 3


def _ending(outcome: Outcome) -> None:
    outcome.choices[0].finish_reason = gen.FINISH_REASON_STOP


def _a_score(outcome: Outcome) -> None:
    outcome.choices[0].logprobs.append(gen.Logprobs())


def _model(outcome: Outcome) -> None:
    outcome.model = "sim-too"


def _seed(outcome: Outcome) -> None:
    outcome.seed = 8


def _a_choice(outcome: Outcome) -> None:
    outcome.choices.clear()


def _error(outcome: Outcome) -> None:
    outcome.error = HeadraceError("", code="INTERNAL", reason="POISON_REQUEST")


@pytest.mark.parametrize(
    "wrong",
    [_text, _a_token_less, _usage, _prompt, _ending, _a_score, _model, _seed, _a_choice, _error],
)
@pytest.mark.parametrize("whole", WHOLE, ids=["ids", "text", "streamed text"])
def test_whatever_differs_is_found(whole: Outcome, wrong: Callable[[Outcome], None]):
    """And nothing where nothing does."""
    assert compare(KNOWN, whole) == []
    altered = copy.deepcopy(whole)
    wrong(altered)
    assert compare(KNOWN, altered) != []


def test_a_cut_answer_is_a_prefix_and_only_where_it_may_be_cut():
    """Cancelled or out of time, and for want of a worker only who would not wait for one."""
    cut = copy.deepcopy(WHOLE[0])
    part = cut.choices[0]
    part.text, part.token_ids, cut.token_ids = "ab", [97, 98], [97, 98]
    cut.usage.completion_tokens = 2
    part.finish_reason = cut.finish_reason = gen.FINISH_REASON_CANCELLED
    cut.error = HeadraceError("", code="CANCELLED", reason="CANCELLED")
    assert compare(KNOWN, cut, GIVEN_UP) == []
    assert compare(KNOWN, cut, NEVER) != []
    assert compare(KNOWN, cut, NO_WORKER) != []
    part.finish_reason = cut.finish_reason = gen.FINISH_REASON_ERROR
    cut.error = HeadraceError("", code="UNAVAILABLE", reason="NO_WORKER")
    assert compare(KNOWN, cut, NO_WORKER) == []
    assert compare(KNOWN, cut, GIVEN_UP) != []
    part.token_ids = cut.token_ids = [97, 99]
    assert compare(KNOWN, cut, NO_WORKER) != []


def _told(*answers: tuple[pb.GenerateRequest, str, bool]) -> list[str]:
    """What is found of answers to requests, by their ids; the last says whether it came from the cache."""
    journal = Journal()
    answered = Answered(journal)
    for asked, request_id, is_from_cache in answers:
        outcome = Outcome(request_id, is_from_cache=is_from_cache)
        answered.check(asked, "sim", outcome, History("asks"))
    return [failure.message for failure in journal.failures]


def test_an_answer_from_the_cache_is_that_of_an_equal_request_and_says_so():
    """Whose class, labels and name of the model may differ, and nothing else."""
    plain = pb.GenerateRequest(model="sim")
    first = pb.GenerateRequest(model="sim", use_response_cache=True)
    equal = pb.GenerateRequest(model="sim-too", priority=3, labels={"a": "b"})
    equal.use_response_cache = True
    salted = pb.GenerateRequest(model="sim", use_response_cache=True, cache_salt="s")
    assert _told((first, "1", False), (equal, "1", True), (plain, "2", False)) == []
    assert _told((equal, "1", True), (first, "1", False)) == [], "whoever is heard of first"
    assert _told((first, "1", False), (salted, "1", True))
    assert _told((first, "1", False), (equal, "1", False))
    assert _told((plain, "1", False), (plain, "1", True))
