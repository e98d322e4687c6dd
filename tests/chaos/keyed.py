"""Requests under idempotency keys: several callers at once, retries, late replays, another body."""

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from headrace.client import HeadraceError
from tests.chaos.asks import Known
from tests.chaos.calls import Calls
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

    key: str
    known: Known
    request_id: str
    resumable: bool
    priority: str
    ended_s: float


class Keyed:
    """All keys of a tenant's callers of one kind."""

    def __init__(self, journal: Journal, kind: type[Calls]) -> None:
        """`kind`: what the callers call over, a part of the keys' names."""
        self._journal = journal
        self._kind = kind.__name__
        self._num_keys = 0
        self._used: deque[_Used] = deque(maxlen=_NUM_KEPT)

    async def ask(self, calls: Calls) -> list[Outcome]:
        """One to three callers with the same key and body: one execution, whose result all get."""
        self._num_keys += 1
        key = f"{self._kind}-{self._num_keys}"
        # The body must be the same for all of them, and with it the class.
        options = {
            "idempotency_key": key,
            "resumable": calls.rng.random() < 0.5,
            "priority": calls.rng.choice(["normal", "high"]),
        }
        async with asyncio.TaskGroup() as tasks:
            callers = [
                tasks.create_task(self._call(calls, options))
                for _ in range(calls.rng.randint(1, _MOST_CALLERS))
            ]
        outcomes = [caller.result() for caller in callers]
        ids = {outcome.request_id for outcome in outcomes if outcome.error is None}
        if len(ids) > 1:
            self._journal.fail(f"one key, {len(ids)} executions: {sorted(ids)}", calls.history)
        await self._replay(calls)
        if len(ids) == 1:
            self._used.append(
                _Used(
                    key=key,
                    known=calls.known,
                    request_id=ids.pop(),
                    resumable=bool(options["resumable"]),
                    priority=str(options["priority"]),
                    ended_s=time.monotonic(),
                )
            )
        return outcomes

    async def _call(self, calls: Calls, options: dict[str, Any]) -> Outcome:
        await asyncio.sleep(calls.rng.uniform(0, _MOST_LATE_S) * calls.rng.choice([0, 1]))
        self._journal.counts["keyed calls"] += 1
        if calls.rng.random() < 0.5:
            return await calls.unary(**options)
        return await calls.stream(**options)

    async def _replay(self, calls: Calls) -> None:
        """A key of long ago answers with the same request, and refuses another body."""
        young_s = time.monotonic() - _MOST_OLD_S
        fresh = [used for used in self._used if used.ended_s > young_s]
        if not fresh:
            return
        used = calls.rng.choice(fresh)
        again = calls.about(used.known)
        options = {
            "idempotency_key": used.key,
            "resumable": used.resumable,
            "priority": used.priority,
        }
        self._journal.counts["replays"] += 1
        outcome = await again.unary(**options)
        if outcome.request_id != used.request_id:
            self._journal.fail(
                f"{used.key} ran again: {outcome.request_id} after {used.request_id}",
                calls.history,
            )
        if outcome.by_choice != used.known.answer.by_choice:
            self._journal.fail(f"{used.key} replays another answer", calls.history)
        try:
            other = await again.unary(**options, max_tokens=7)
        except HeadraceError as error:
            if error.code != "ALREADY_EXISTS":
                raise
        else:
            self._journal.fail(f"{used.key} took another body: {other.request_id}", calls.history)
