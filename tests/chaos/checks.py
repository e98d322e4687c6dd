"""What must hold of each request: nothing lost, nothing twice, nothing altered, and counted exactly."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from headrace.client import AsyncClient, HeadraceError
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.chaos.asks import Known
from tests.chaos.journal import History, Journal
from tests.support.outcomes import Outcome, Part
from tests.support.time_scale import scaled

T = TypeVar("T")
_TRANSPORT_CODES = frozenset({"CANCELLED", "INTERNAL", "UNKNOWN"})
_FINAL = frozenset(
    {
        gen.REQUEST_STATUS_FINISHED,
        gen.REQUEST_STATUS_CANCELLED,
        gen.REQUEST_STATUS_EXPIRED,
        gen.REQUEST_STATUS_FAILED,
        gen.REQUEST_STATUS_DEAD,
    }
)
_LOOK_INTERVAL_S = 0.5
_CUT = frozenset({gen.FINISH_REASON_CANCELLED, gen.FINISH_REASON_DEADLINE})
_CUT_CODES = frozenset({"CANCELLED", "DEADLINE_EXCEEDED"})


def is_refusal(error: HeadraceError) -> bool:
    """Whether the caller may simply come again: a definite refusal, or a connection that broke."""
    if error.code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED"):
        return True
    return error.code in _TRANSPORT_CODES and not error.reason


async def insisting(
    journal: Journal, call: Callable[[], Awaitable[T]], *, within_s: float = 120.0
) -> T:
    """The answer of a look-up or of a cancel, asked for again while the stack cannot be reached."""
    loop = asyncio.get_running_loop()
    gives_up_s = loop.time() + scaled(within_s)
    while True:
        try:
            return await call()
        except HeadraceError as error:
            may_retry = is_refusal(error) or error.code == "DEADLINE_EXCEEDED"
            if not may_retry or loop.time() > gives_up_s:
                raise
            journal.counts[f"look-up again: {error.code}"] += 1
            await asyncio.sleep(error.retry_after_s or 0.2)


def compare(known: Known, got: Outcome, *, may_be_cut: bool = False) -> list[str]:
    """What is wrong with an outcome; `may_be_cut`: it was cancelled or had little time, so a prefix is right too."""
    expected, wrong = known.answer, []
    if got.error is not None and not (may_be_cut and got.error.code in _CUT_CODES):
        wrong.append(f"ended with {got.error!r}: {got.error}")
    is_cut = may_be_cut and (got.error is not None or not got.finish_reason)
    is_cut = is_cut or (may_be_cut and got.finish_reason in _CUT)
    stops = known.ask.options.get("stop", ())
    for index in sorted(expected.choices | got.choices):
        parts = expected.choices.get(index, Part()), got.choices.get(index, Part())
        found = _compare_cut(*parts, stops) if is_cut else _compare_whole(*parts)
        wrong += [f"choice {index}: {one}" for one in found]
    if not is_cut and got.prompt_logprobs != expected.prompt_logprobs:
        wrong.append("log probabilities of the prompt are not there")
    if got.prompt_logprobs not in ([], expected.prompt_logprobs):
        wrong.append("log probabilities of the prompt differ")
    if got.token_ids and got.usage.completion_tokens != len(got.token_ids):
        wrong.append(f"usage {got.usage.completion_tokens} for {len(got.token_ids)} tokens")
    if got.token_ids and got.usage.prompt_tokens != expected.usage.prompt_tokens:
        wrong.append(f"prompt {got.usage.prompt_tokens}, not {expected.usage.prompt_tokens}")
    return wrong


def _is_cut_of(whole: str, text: str, stops: Sequence[str]) -> bool:
    """Whether `text` is what a cancellation leaves of `whole`.

    Where a character was cut in the middle it ends with U+FFFD; and what might have become a stop string was held
    back until then, and belongs to the text.
    """
    text = text.removesuffix("\ufffd")
    if whole.startswith(text):
        return True
    begins = [stop[:length] for stop in stops for length in range(1, len(stop))]
    return any(text.endswith(one) and whole.startswith(text.removesuffix(one)) for one in begins)


def _compare_cut(expected: Part, got: Part, stops: Sequence[str]) -> list[str]:
    if got.finish_reason not in (0, *_CUT):
        return _compare_whole(expected, got)  # this choice was over when the others were cut
    wrong = _compare_scores(expected, got)
    if got.token_ids != expected.token_ids[: len(got.token_ids)]:
        wrong.append(_difference("token ids are no prefix", expected.token_ids, got.token_ids))
    if not _is_cut_of(expected.text, got.text, stops):
        wrong.append(_difference("text is no prefix", expected.text, got.text))
    return wrong


def _compare_scores(expected: Part, got: Part) -> list[str]:
    if got.logprobs == expected.logprobs[: len(got.token_ids)]:
        return []
    return ["log probabilities: " + _difference("scores", expected.logprobs, got.logprobs)]


def _compare_whole(expected: Part, got: Part) -> list[str]:
    wrong = _compare_scores(expected, got)
    if got.token_ids != expected.token_ids:
        wrong.append(_difference("token ids", expected.token_ids, got.token_ids))
    if got.text != expected.text:
        wrong.append(_difference("text", expected.text, got.text))
    if got.finish_reason != expected.finish_reason:
        wrong.append(f"finish {got.finish_reason}, not {expected.finish_reason}")
    if got.matched_stop != expected.matched_stop:
        wrong.append(f"matched {got.matched_stop}, not {expected.matched_stop}")
    return wrong


def _difference(what: str, expected: Sequence[object], got: Sequence[object]) -> str:
    place = next(
        (i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b),
        min(len(expected), len(got)),
    )
    near = slice(max(0, place - 3), place + 5)
    return (
        f"{what} differ at {place} (of {len(expected)}, got {len(got)}):"
        f" expected {expected[near]!r}, got {got[near]!r}"
    )


def outcome_of(response: pb.GenerateResponse) -> Outcome:
    """A whole answer, as a stream would have brought it."""
    choices = {
        choice.index: Part(
            [*choice.token_ids],
            choice.text,
            choice.finish_reason,
            choice.matched_stop,
            [*choice.logprobs],
        )
        for choice in response.choices
    }
    reasons = [part.finish_reason for part in choices.values()]
    return Outcome(
        request_id=response.request_id,
        token_ids=[token for part in choices.values() for token in part.token_ids],
        text="".join(part.text for part in choices.values()),
        finish_reason=next((reason for reason in reasons if reason in _CUT), reasons[0]),
        usage=response.usage,
        seed=response.seed,
        timings=response.timings,
        prompt_logprobs=[*response.prompt_logprobs],
        choices=choices,
    )


async def check_record(
    journal: Journal, client: AsyncClient, known: Known, got: Outcome, history: History
) -> None:
    """The record says what the client saw: the same result and the same usage, once it has ended."""
    record = await ended_record(journal, client, got.request_id)
    stored = outcome_of(record.result) if record.result.choices else Outcome()
    # Its client left before the end, or counted its time itself.
    is_left = not got.finish_reason and (
        got.error is None or got.error.code == "DEADLINE_EXCEEDED"
    )
    for index in sorted(stored.choices | got.choices):
        seen, kept = got.choices.get(index, Part()), stored.choices.get(index, Part())
        if not is_left and (kept.token_ids, kept.text) != (seen.token_ids, seen.text):
            journal.fail(
                f"the record differs from the stream in choice {index}: "
                + _difference("token ids", seen.token_ids, kept.token_ids)
                + "; "
                + _difference("text", seen.text, kept.text),
                history,
            )
        if is_left and kept.token_ids[: len(seen.token_ids)] != seen.token_ids:
            journal.fail("the record lacks tokens that the client saw", history)
    if record.usage.completion_tokens != len(stored.token_ids):
        journal.fail(
            f"usage {record.usage.completion_tokens} of {len(stored.token_ids)} tokens in the record",
            history,
        )
    if record.result.usage != record.usage:
        journal.fail("usage of the record and of its result differ", history)
    if not is_left and got.token_ids and record.usage != got.usage:
        journal.fail(f"usage in the record {record.usage}, delivered {got.usage}", history)
    may_be_cut = record.status in (gen.REQUEST_STATUS_CANCELLED, gen.REQUEST_STATUS_EXPIRED)
    for wrong in compare(known, stored, may_be_cut=may_be_cut) if stored.token_ids else ():
        journal.fail(f"record: {wrong}", history)


async def ended_record(
    journal: Journal, client: AsyncClient, request_id: str, *, within_s: float = 150.0
) -> pb.GetRequestResponse:
    """The record once it has a final status.

    Raises:
        AssertionError: it has none in time.
    """
    loop = asyncio.get_running_loop()
    gives_up_s = loop.time() + scaled(within_s)
    while True:
        record = await insisting(journal, lambda: client.get_request(request_id))
        if record.status in _FINAL:
            return record
        if loop.time() > gives_up_s:
            raise AssertionError(
                f"{request_id} has not ended: {gen.RequestStatus.Name(record.status)}"
            )
        await asyncio.sleep(_LOOK_INTERVAL_S)
