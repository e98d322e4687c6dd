"""What must hold of a request's record: it says what its client saw, once it has ended."""

import asyncio

from headrace.client import AsyncClient
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.chaos.asks import Known
from tests.chaos.checks import GIVEN_UP, NEVER, Cut, compare, difference, insisting, outcome_of
from tests.chaos.journal import History, Journal
from tests.support.outcomes import Outcome, Part
from tests.support.time_scale import scaled

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


async def check_record(
    journal: Journal,
    client: AsyncClient,
    known: Known,
    got: Outcome,
    history: History,
    cut: Cut = NEVER,
) -> None:
    """The record says what the client saw: the same result and the same usage, once it has ended."""
    record = await ended_record(journal, client, got.request_id)
    stored = outcome_of(record.result, has_ids=got.has_ids) if record.result.choices else Outcome()
    # Its client left before the end, or counted its time itself.
    is_left = not got.finish_reason and (
        got.error is None or got.error.code == "DEADLINE_EXCEEDED"
    )
    wrong = _compare_left(stored, got) if is_left else _compare_stored(stored, got)
    if record.usage.completion_tokens != len(stored.token_ids):
        wrong.append(f"usage {record.usage.completion_tokens} of {len(stored.token_ids)} tokens")
    if record.result.usage != record.usage:
        wrong.append("usage of the record and of its result differ")
    if not is_left and got.token_ids and record.usage != _counted(got):
        wrong.append(f"usage {record.usage}, delivered {got.usage}")
    if record.model != known.model:
        wrong.append(f"model {record.model}")
    ended = GIVEN_UP if cut is NEVER else cut
    is_cut = record.status in ended.statuses
    if not is_cut and record.status != gen.REQUEST_STATUS_FINISHED:
        wrong.append(f"status {gen.RequestStatus.Name(record.status)}: {record.error}")
    if stored.choices:
        wrong += compare(known, stored, ended if is_cut else NEVER)
    for one in wrong:
        journal.fail(f"record: {one}", history)


def _compare_stored(stored: Outcome, got: Outcome) -> list[str]:
    """The record of what was followed to its end."""
    wrong = []
    for index in sorted(stored.choices | got.choices):
        seen, kept = got.choices.get(index, Part()), stored.choices.get(index, Part())
        is_counted = seen.is_counted and kept.is_counted
        if kept.text != seen.text or (is_counted and kept.token_ids != seen.token_ids):
            wrong.append(
                f"choice {index} differs from what was told: "
                + difference("token ids", seen.token_ids, kept.token_ids)
                + "; "
                + difference("text", seen.text, kept.text)
            )
    return wrong


def _compare_left(stored: Outcome, got: Outcome) -> list[str]:
    """The record of what its client did not wait for."""
    wrong = []
    for index, seen in got.choices.items():
        kept = stored.choices.get(index, Part())
        if kept.is_counted and kept.token_ids[: len(seen.token_ids)] != seen.token_ids:
            wrong.append(f"choice {index} lacks tokens that the client saw")
        if not kept.text.startswith(seen.text):
            wrong.append(f"choice {index} lacks text that the client saw")
    if len(stored.token_ids) < len(got.token_ids):
        wrong.append("tokens that the client saw are not counted")
    return wrong


def _counted(got: Outcome) -> gen.Usage:
    """Its usage, but for where the answer came from."""
    usage = gen.Usage()
    usage.CopyFrom(got.usage)
    usage.ClearField("from_response_cache")
    return usage


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
