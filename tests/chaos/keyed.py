"""Requests under idempotency keys: several callers at once, retries, late replays, another body."""

import asyncio
import time
from collections import deque
from dataclasses import dataclass

from headrace.client import HeadraceError
from headrace.v1 import inference_service_pb2 as pb
from tests.chaos.asks import Known
from tests.chaos.calls import Calls
from tests.chaos.checks import compare
from tests.chaos.journal import Journal
from tests.support.outcomes import Outcome

_MOST_CALLERS = 3
_MOST_LATE_S = 1.5
_NUM_KEPT = 50
# Well within what a result is kept for.
_MOST_OLD_S = 300.0


@dataclass(frozen=True)
class _Used:
    """A key whose request has finished."""

    known: Known
    asked: pb.GenerateRequest
    request_id: str
    ended_s: float

    @property
    def key(self) -> str:
        """Its key."""
        return self.asked.idempotency_key


class Keyed:
    """All keys of a tenant's callers of one kind."""

    def __init__(self, journal: Journal, kind: type[Calls]) -> None:
        """`kind`: what the callers call over, a part of the keys' names."""
        self._journal = journal
        self._kind = kind.__name__
        self._num_keys = 0
        self._used: deque[_Used] = deque(maxlen=_NUM_KEPT)

    async def ask(self, calls: Calls) -> list[tuple[pb.GenerateRequest, Outcome]]:
        """One to three callers with the same key and body: one execution, whose result all get."""
        self._num_keys += 1
        # The body must be the same for all of them.
        asked = calls.asking(idempotency_key=f"{self._kind}-{self._num_keys}")
        async with asyncio.TaskGroup() as tasks:
            callers = [
                tasks.create_task(self._call(calls, asked))
                for _ in range(calls.rng.randint(1, _MOST_CALLERS))
            ]
        outcomes = [caller.result() for caller in callers]
        ids = {outcome.request_id for outcome in outcomes if outcome.error is None}
        if len(ids) > 1:
            self._journal.fail(f"one key, {len(ids)} executions: {sorted(ids)}", calls.history)
        await self._replay(calls)
        if len(ids) == 1:
            used = _Used(calls.known, asked, ids.pop(), ended_s=time.monotonic())
            self._used.append(used)
        return [(asked, outcome) for outcome in outcomes]

    async def _call(self, calls: Calls, asked: pb.GenerateRequest) -> Outcome:
        await asyncio.sleep(calls.rng.uniform(0, _MOST_LATE_S) * calls.rng.choice([0, 1]))
        self._journal.counts["keyed calls"] += 1
        if calls.rng.random() < 0.5:
            return await calls.unary(asked)
        return await calls.stream(asked)

    async def _replay(self, calls: Calls) -> None:
        """A key of long ago answers with the same request, and refuses another body."""
        young_s = time.monotonic() - _MOST_OLD_S
        fresh = [used for used in self._used if used.ended_s > young_s]
        if not fresh:
            return
        used = calls.rng.choice(fresh)
        again = calls.about(used.known)
        self._journal.counts["replays"] += 1
        outcome = await again.unary(used.asked)
        if outcome.request_id != used.request_id:
            self._journal.fail(
                f"{used.key} ran again: {outcome.request_id} after {used.request_id}",
                calls.history,
            )
        for wrong in compare(used.known, outcome):
            self._journal.fail(f"{used.key} replays another answer: {wrong}", calls.history)
        other_body = pb.GenerateRequest()
        other_body.CopyFrom(used.asked)
        other_body.stop.max_tokens = 7
        try:
            other = await again.unary(other_body)
        except HeadraceError as error:
            if error.code != "ALREADY_EXISTS":
                raise
        else:
            self._journal.fail(f"{used.key} took another body: {other.request_id}", calls.history)
