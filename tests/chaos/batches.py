"""Many requests in one call: each item's outcome is its own, whatever its neighbours are or become of."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc

from headrace.client import HeadraceError
from headrace.v1 import inference_service_pb2 as pb
from tests.chaos.asks import Known
from tests.chaos.calls import Calls
from tests.chaos.checks import is_refusal
from tests.chaos.journal import Journal
from tests.support.outcomes import Outcome

_MOST_ITEMS = 5
_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


@dataclass(frozen=True)
class _Bad:
    """What makes a request bad, and how it is refused."""

    fields: dict[str, Any]
    code: str
    field: str = ""


_BAD = (
    _Bad({"adapter": "millstone"}, "UNIMPLEMENTED"),
    _Bad({"model": "windmill"}, "NOT_FOUND"),
    _Bad({"cache_salt": 200 * "s"}, "INVALID_ARGUMENT", "cache_salt"),
)


@dataclass
class _Item:
    """One request of a batch."""

    calls: Calls
    asked: pb.GenerateRequest
    bad: _Bad | None = None
    outcomes: list[Outcome] = field(default_factory=list)


class Batches:
    """All batches of a tenant's callers of one kind."""

    def __init__(self, journal: Journal, kind: type[Calls]) -> None:
        """`kind`: what the callers call over, a part of the keys' names."""
        self._journal = journal
        self._kind = kind.__name__
        self._num_keys = 0

    async def ask(
        self, calls: Calls, known: Sequence[Known]
    ) -> list[tuple[Calls, pb.GenerateRequest, Outcome]]:
        """The ask of `calls` and a few others at once, some under keys, perhaps one twice, perhaps a bad one."""
        rng = calls.rng
        others = [rng.choice(known) for _ in range(rng.randint(0, _MOST_ITEMS - 1))]
        items = [self._item(calls)] + [self._item(calls.about(one)) for one in others]
        if rng.random() < 0.4:
            # Two with one key are one request.
            items.append(rng.choice(items))
        if rng.random() < 0.4:
            bad = rng.choice(_BAD)
            items.append(_Item(calls, calls.asking(**bad.fields), bad))
        rng.shuffle(items)
        await self._until_told(calls, items)
        for item in items:
            ids = {outcome.request_id for outcome in item.outcomes}
            if item.asked.idempotency_key and len(ids) > 1:
                self._journal.fail(f"one key, {len(ids)} executions: {ids}", calls.history)
        return [
            (item.calls, item.asked, outcome)
            for item in {id(item): item for item in items}.values()
            for outcome in item.outcomes
        ]

    def _item(self, calls: Calls) -> _Item:
        kind = calls.rng.random()
        if kind < 0.3:
            self._num_keys += 1
            key = f"batch-{self._kind}-{self._num_keys}"
            return _Item(calls, calls.asking(idempotency_key=key))
        return _Item(
            calls, calls.asking(use_response_cache=True) if kind < 0.5 else calls.asking()
        )

    async def _until_told(self, calls: Calls, items: Sequence[_Item]) -> None:
        """Send what is left until all have been told: a call may break, and items may be refused."""
        left = [*items]
        while left:
            sending, requests = left, [item.asked for item in left]
            began_s = time.monotonic()
            outcomes = await calls.until_taken(partial(calls.batch, requests))
            self._journal.counts["batches"] += 1
            left = [
                item
                for index, item in enumerate(sending)
                if index not in outcomes or not self._is_told(item, outcomes[index], began_s)
            ]

    def _is_told(self, item: _Item, told: pb.BatchGenerateResponse, began_s: float) -> bool:
        """Note the outcome; whether there was one, and no refusal."""
        self._journal.counts["items of batches"] += 1
        if told.WhichOneof("outcome") == "response":
            if item.bad is not None:
                self._journal.fail(f"{item.bad.fields} was accepted", item.calls.history)
            else:
                item.outcomes.append(item.calls.told(item.asked, told.response))
            return True
        error = _error_of(told.error)
        if is_refusal(error) or self._journal.is_stranded(error, began_s):
            self._journal.counts[f"refused: {error.code} {error.reason}".rstrip()] += 1
            return False
        fields = [one.field for one in told.error.field_violations]
        if item.bad is None:
            item.outcomes.append(Outcome(error=error))
        elif error.code != item.bad.code or (item.bad.field and fields != [item.bad.field]):
            self._journal.fail(
                f"{item.bad.fields} refused as {error} {fields}", item.calls.history
            )
        return True


def _error_of(told: pb.RequestError) -> HeadraceError:
    return HeadraceError(told.message, code=_CODES[told.code], reason=told.reason)
