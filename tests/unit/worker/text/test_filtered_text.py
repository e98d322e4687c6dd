"""Content filters over what is generated: where it ends, and that an interruption changes nothing."""

import pytest

from common.content_patterns import PatternFilter
from common.domain import FinishReason, StopConditions
from tests.support import engines
from tests.support.engines import make_job, run_alone
from worker.simulated.vocabulary import tokenizer_json
from worker.text.texts import Texts

PLACE = 40
WHOLE = run_alone(make_job(max_tokens=120))
FORBIDDEN = WHOLE.text[PLACE : PLACE + 4]
FIRST = WHOLE.text.index(FORBIDDEN)


@pytest.fixture(autouse=True)
def filtered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines whose texts are judged."""
    import re

    judge = PatternFilter([re.escape(FORBIDDEN)], hold_back=10)
    monkeypatch.setattr(engines, "TEXTS", Texts(tokenizer_json(), [judge]))


def test_what_is_forbidden_is_not_told() -> None:
    """The choice ends with CONTENT_FILTER in front of the passage, some tokens behind which were generated and count."""
    outcome = run_alone(make_job(max_tokens=120))
    assert outcome.finish is not None
    assert outcome.finish.reason is FinishReason.CONTENT_FILTER
    assert outcome.full_text == WHOLE.text[:FIRST]
    assert outcome.token_ids == WHOLE.token_ids[: len(outcome.token_ids)]
    assert len(outcome.token_ids) <= len(WHOLE.text[: FIRST + 11].encode())


@pytest.mark.parametrize("done", [1, FIRST - 12, FIRST + 2, FIRST + 9, FIRST + 12])
def test_a_resumed_choice_is_judged_alike(done: int) -> None:
    """Whatever was generated before an interruption, the end is the same: state is rebuilt from the tokens."""
    undisturbed = run_alone(make_job(max_tokens=120))
    before = tuple(undisturbed.token_ids[:done])
    resumed = run_alone(make_job(max_tokens=120, generated={0: before}))
    assert resumed.finish == undisturbed.finish
    assert [*before, *resumed.token_ids] == undisturbed.token_ids


@pytest.mark.parametrize("max_tokens", [FIRST + 3, FIRST + 4, FIRST + 6])
def test_what_is_held_back_at_the_end_is_judged(max_tokens: int) -> None:
    """Where the limit cuts the passage it is told as far as it goes; where it is whole it is not, whatever ended the choice."""
    outcome = run_alone(make_job(max_tokens=max_tokens))
    assert outcome.finish is not None
    is_whole = max_tokens >= len((WHOLE.text[:FIRST] + FORBIDDEN).encode())
    assert outcome.finish.reason is (
        FinishReason.CONTENT_FILTER if is_whole else FinishReason.LENGTH
    )
    assert FORBIDDEN not in outcome.full_text
    assert WHOLE.full_text.startswith(outcome.full_text.rstrip("\ufffd"))


def test_a_stop_string_in_front_of_it_wins() -> None:
    """What a stop string cut off is not text, so nothing is refused."""
    stop = WHOLE.text[FIRST - 6 : FIRST - 2]
    outcome = run_alone(make_job(stop=StopConditions(max_tokens=120, stop=(stop,))))
    assert outcome.finish is not None
    assert outcome.finish.reason is FinishReason.STOP
    assert outcome.full_text == WHOLE.text[: WHOLE.text.index(stop)]
