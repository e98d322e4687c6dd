"""What must hold of each request: nothing lost, nothing twice, nothing altered, and counted exactly."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headrace.client import HeadraceError
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.chaos.asks import Known
from tests.chaos.journal import Journal
from tests.support.outcomes import UNTOLD, Outcome, Part
from tests.support.time_scale import scaled

T = TypeVar("T")
_TRANSPORT_CODES = frozenset({"CANCELLED", "INTERNAL", "UNKNOWN"})
# How an accepted request ends: asked again it would succeed, but it should not have come to that.
_LOST = frozenset({"REQUEST_LOST", "NO_EQUAL_WORKER", "REVISION_LEFT"})


@dataclass(frozen=True)
class Cut:
    """How a request may rightly end before its answer does: a prefix of the answer is right then, too."""

    codes: frozenset[str] = frozenset()
    reasons: frozenset[str] = frozenset()
    finishes: frozenset[int] = frozenset()
    statuses: frozenset[int] = frozenset()

    def allows(self, error: HeadraceError) -> bool:
        """Whether it may end with this."""
        return error.code in self.codes or error.reason in self.reasons


NEVER = Cut()
GIVEN_UP = Cut(
    codes=frozenset({"CANCELLED", "DEADLINE_EXCEEDED"}),
    finishes=frozenset({gen.FINISH_REASON_CANCELLED, gen.FINISH_REASON_DEADLINE}),
    statuses=frozenset({gen.REQUEST_STATUS_CANCELLED, gen.REQUEST_STATUS_EXPIRED}),
)
"""It was cancelled, or had little time."""
NO_WORKER = Cut(
    reasons=frozenset({"NO_WORKER"}),
    finishes=frozenset({gen.FINISH_REASON_ERROR}),
    statuses=frozenset({gen.REQUEST_STATUS_FAILED}),
)
"""It would not wait for a worker."""
_BAD_FINISHES = GIVEN_UP.finishes | NO_WORKER.finishes


def is_refusal(error: HeadraceError) -> bool:
    """Whether the caller may simply come again: a definite refusal, or a connection that broke."""
    if error.code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED"):
        return error.reason not in _LOST
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


def compare(known: Known, got: Outcome, cut: Cut = NEVER) -> list[str]:
    """What is wrong with an outcome; `cut`: how it may have ended before the answer did."""
    expected, wrong = known.answer, []
    if got.error is not None and not cut.allows(got.error):
        wrong.append(f"ended with {got.error!r}: {got.error}")
    is_cut = cut is not NEVER and (
        got.error is not None or not got.finish_reason or got.finish_reason in cut.finishes
    )
    for index in sorted(expected.choices | got.choices):
        parts = expected.choices.get(index, Part()), got.choices.get(index, Part())
        if is_cut:
            found = _compare_cut(*parts, [*known.request.stop.stop], cut)
        else:
            found = _compare_whole(*parts)
        wrong += [f"choice {index}: {one}" for one in found]
    if not is_cut and len(got.token_ids) != len(expected.token_ids):
        wrong.append(f"{len(got.token_ids)} tokens, not {len(expected.token_ids)}")
    if not is_cut and got.prompt_logprobs != expected.prompt_logprobs:
        wrong.append("log probabilities of the prompt are not there")
    if got.prompt_logprobs not in ([], expected.prompt_logprobs):
        wrong.append("log probabilities of the prompt differ")
    return wrong + _compare_counts(known, got, is_cut=is_cut) + _compare_facts(known, got)


def _compare_counts(known: Known, got: Outcome, *, is_cut: bool) -> list[str]:
    """Usage is that of the tokens which came, and of the prompt once it was taken up."""
    wrong: list[str] = []
    if is_cut and not got.token_ids:
        return wrong
    if got.usage.completion_tokens != len(got.token_ids):
        wrong.append(f"usage {got.usage.completion_tokens} for {len(got.token_ids)} tokens")
    if got.usage.prompt_tokens != len(known.prompt_ids):
        wrong.append(f"prompt {got.usage.prompt_tokens}, not {len(known.prompt_ids)}")
    return wrong


def _compare_facts(known: Known, got: Outcome) -> list[str]:
    """The model by its own name, and the seed that was sent."""
    wrong = []
    if got.model not in ("", known.model):
        wrong.append(f"answered by {got.model}, not {known.model}")
    sampling = known.request.sampling
    if got.model and sampling.HasField("seed") and got.seed != sampling.seed:
        wrong.append(f"seed {got.seed}, not {sampling.seed}")
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


def _compare_cut(expected: Part, got: Part, stops: Sequence[str], cut: Cut) -> list[str]:
    if got.finish_reason not in (0, *cut.finishes):
        return _compare_whole(expected, got)  # this choice was over when the others were cut
    wrong = _compare_scores(expected, got)
    if not _are_same(expected.token_ids[: len(got.token_ids)], got):
        wrong.append(difference("token ids are no prefix", expected.token_ids, got.token_ids))
    if not _is_cut_of(expected.text, got.text, stops):
        wrong.append(difference("text is no prefix", expected.text, got.text))
    return wrong


def _compare_scores(expected: Part, got: Part) -> list[str]:
    num_tokens = len(got.token_ids) if got.is_counted else len(got.logprobs)
    if got.logprobs == expected.logprobs[:num_tokens]:
        return []
    return ["log probabilities: " + difference("scores", expected.logprobs, got.logprobs)]


def _are_same(expected: Sequence[int], got: Part) -> bool:
    """Whether the tokens are those expected, as far as they were told."""
    if not got.is_counted:
        return True
    return len(got.token_ids) == len(expected) and all(
        told in (token, UNTOLD) for token, told in zip(expected, got.token_ids, strict=True)
    )


def _compare_whole(expected: Part, got: Part) -> list[str]:
    wrong = _compare_scores(expected, got)
    if len(got.logprobs) != len(expected.logprobs):
        wrong.append(f"{len(got.logprobs)} scores, not {len(expected.logprobs)}")
    if not _are_same(expected.token_ids, got):
        wrong.append(difference("token ids", expected.token_ids, got.token_ids))
    if got.text != expected.text:
        wrong.append(difference("text", expected.text, got.text))
    if got.finish_reason != expected.finish_reason:
        wrong.append(f"finish {got.finish_reason}, not {expected.finish_reason}")
    if got.matched_stop != expected.matched_stop:
        wrong.append(f"matched {got.matched_stop}, not {expected.matched_stop}")
    return wrong


def difference(what: str, expected: Sequence[object], got: Sequence[object]) -> str:
    """Where two sequences part."""
    place = next(
        (i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b),
        min(len(expected), len(got)),
    )
    near = slice(max(0, place - 3), place + 5)
    return (
        f"{what} differ at {place} (of {len(expected)}, got {len(got)}):"
        f" expected {expected[near]!r}, got {got[near]!r}"
    )


def outcome_of(response: pb.GenerateResponse, *, has_ids: bool = True) -> Outcome:
    """A whole answer, as a stream would have brought it."""
    choices = {
        choice.index: Part(
            [*choice.token_ids],
            choice.text,
            choice.finish_reason,
            choice.matched_stop,
            [*choice.logprobs],
            is_counted=has_ids,
        )
        for choice in response.choices
    }
    reasons = [part.finish_reason for part in choices.values()]
    token_ids = [token for part in choices.values() for token in part.token_ids]
    if not has_ids:
        assert not token_ids, f"token ids that nobody asked for: {token_ids}"
        token_ids = [UNTOLD] * response.usage.completion_tokens
    return Outcome(
        request_id=response.request_id,
        token_ids=token_ids,
        text="".join(part.text for part in choices.values()),
        finish_reason=next((reason for reason in reasons if reason in _BAD_FINISHES), reasons[0]),
        usage=response.usage,
        seed=response.seed,
        timings=response.timings,
        prompt_logprobs=[*response.prompt_logprobs],
        choices=choices,
        model=response.model,
        is_from_cache=response.usage.from_response_cache,
        has_ids=has_ids,
    )
