"""Why a choice ends, and what its text is then."""

import pytest

from common.domain import FinishReason, MatchedStop, StopConditions
from tests.support.engines import make_job, run_alone
from worker.simulated.vocabulary import EOS_ID

WHOLE = run_alone(make_job(max_tokens=120))


def test_text_is_the_decoding_of_the_tokens() -> None:
    """Deltas and the finish's text are together what the tokens say."""
    assert bytes(WHOLE.token_ids).decode(errors="replace") == WHOLE.full_text
    assert "\ufffd" not in WHOLE.text


@pytest.mark.parametrize("max_tokens", range(1, 120))
def test_every_cut_is_a_beginning(max_tokens: int) -> None:
    """Cut anywhere, inside a character too, the text is that of the tokens, with one U+FFFD at most, at the end."""
    cut = run_alone(make_job(max_tokens=max_tokens))
    assert cut.token_ids == WHOLE.token_ids[:max_tokens]
    assert cut.full_text == bytes(cut.token_ids).decode(errors="replace")
    assert WHOLE.full_text.startswith(cut.text)
    assert cut.full_text.rstrip("\ufffd") == cut.text


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("position", [0, 3, 40, 77])
def test_stop_string(position: int, length: int, include: bool) -> None:
    """Generation ends with the token that completes the string, whose text is there only when asked for."""
    wanted = WHOLE.text[position : position + length]
    first = WHOLE.text.index(wanted)
    outcome = run_alone(
        make_job(
            stop=StopConditions(max_tokens=120, stop=(wanted,), include_stop_in_output=include)
        )
    )
    assert outcome.finish.reason is FinishReason.STOP
    assert outcome.finish.matched_stop == MatchedStop(stop_string=wanted)
    assert outcome.full_text == WHOLE.text[:first] + (wanted if include else "")
    assert len(outcome.token_ids) == len((WHOLE.text[:first] + wanted).encode())


def test_held_back_text_comes_with_the_finish() -> None:
    """A beginning of a stop string at the last token belongs to the text after all."""
    stop = WHOLE.text[8:10] + "\0"
    outcome = run_alone(make_job(stop=StopConditions(max_tokens=10, stop=(stop,))))
    assert WHOLE.text[:10].isascii()
    assert outcome.full_text == WHOLE.text[:10]
    assert outcome.text == WHOLE.text[:8]
    assert outcome.finish.reason is FinishReason.LENGTH


def test_stop_token_counts_but_has_no_text() -> None:
    """The token that ended it is among the tokens and not in the text."""
    token_id = WHOLE.token_ids[6]
    end = WHOLE.token_ids.index(token_id)
    outcome = run_alone(make_job(stop=StopConditions(max_tokens=120, stop_token_ids=(token_id,))))
    assert outcome.token_ids == WHOLE.token_ids[: end + 1]
    assert outcome.full_text == bytes(WHOLE.token_ids[:end]).decode()
    assert outcome.finish.matched_stop == MatchedStop(stop_token_id=token_id)


def test_end_of_sequence() -> None:
    """The model's own end stops, unless it is to be ignored."""
    stopped = run_alone(make_job(max_tokens=100), eos_every=10)
    assert stopped.token_ids[-1] == EOS_ID
    assert stopped.finish.matched_stop == MatchedStop(eos_token_id=EOS_ID)
    ignoring = run_alone(
        make_job(stop=StopConditions(max_tokens=100, ignore_eos=True)), eos_every=10
    )
    assert ignoring.token_ids[: len(stopped.token_ids)] == stopped.token_ids
    assert ignoring.finish.reason is FinishReason.LENGTH


def test_min_tokens_puts_every_stop_off() -> None:
    """No stop string ends it before so many tokens, and what would end it is not even drawn."""
    banned = WHOLE.token_ids[0]
    stop = StopConditions(
        max_tokens=50, min_tokens=20, stop=tuple("aeiou "), stop_token_ids=(banned,)
    )
    outcome = run_alone(make_job(stop=stop), eos_every=3)
    assert not {banned, EOS_ID} & set(outcome.token_ids[:19])
    assert 20 <= len(outcome.token_ids) < 50
    assert outcome.finish.reason is FinishReason.STOP
