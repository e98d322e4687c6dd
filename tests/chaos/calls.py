"""The calls of one client about one request. Refusals before acceptance are retried and counted; nothing else is."""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from headrace.client import AsyncClient, AsyncTokenStream, HeadraceError, ReattachPolicy
from tests.chaos.asks import Known, random_call_options
from tests.chaos.checks import insisting, is_refusal, outcome_of
from tests.chaos.journal import History, Journal
from tests.support.outcomes import EventStream, Outcome, follow
from tests.support.time_scale import scaled

# Nothing takes so long but a request that hangs, or a real model whose workers take a minute to start again.
TIMEOUT_S = 480.0
_RETRY_S = 0.3
_SILENT_S = 0.5
_MOST_LITTLE_S = 3.0
# Faults come one after the other: a client that gives up in between would tell nothing about the stack.
_PATIENT = ReattachPolicy(max_attempts=400, longest_pause_s=1.0)


def patient_attach(client: AsyncClient) -> Callable[[str, int], AsyncTokenStream]:
    """Follows a request from a seq on, as long as it takes."""

    def attach(request_id: str, from_seq: int) -> AsyncTokenStream:
        return client.attach(request_id, from_seq, timeout_s=TIMEOUT_S, reattach=_PATIENT)

    return attach


class Calls:
    """Of one request, or of several equal ones under one key."""

    def __init__(
        self,
        journal: Journal,
        known: Known,
        history: History,
        tenant: str,
        clients: Sequence[AsyncClient],
        rng: random.Random,
    ) -> None:
        """`clients` are of `tenant` and prefer different gateways; `rng` decides what is left open."""
        self.journal = journal
        self.known = known
        self.history = history
        self.tenant = tenant
        self.rng = rng
        self._clients = clients

    def any_client(self) -> AsyncClient:
        """One of them."""
        return self.rng.choice(self._clients)

    def about(self, known: Known) -> "Calls":
        """Calls of the same client about another request, told in the same history."""
        return Calls(self.journal, known, self.history, self.tenant, self._clients, self.rng)

    async def stream(
        self, *, at_some_token: Callable[[str, int], None] | None = None, **options: Any
    ) -> Outcome:
        """A stream to its end; `at_some_token` is told id and number of tokens once, somewhere on the way."""
        place = self._place()
        told: list[int] = []

        def on_event(outcome: Outcome) -> bool:
            if at_some_token is not None and not told and len(outcome.token_ids) >= place:
                told.append(place)
                at_some_token(outcome.request_id, len(outcome.token_ids))
            return True

        return await self._stream(on_event, options)

    async def stream_and_cancel(self) -> Outcome:
        """A stream that is cancelled by a call of its own, perhaps too late, perhaps twice."""
        place = self._place()
        cancels: list[asyncio.Task[object]] = []
        client, other = self.any_client(), self.any_client()

        async with asyncio.TaskGroup() as tasks:

            def on_event(outcome: Outcome) -> bool:
                if not cancels and outcome.request_id and len(outcome.token_ids) >= place:
                    cancels.extend(
                        tasks.create_task(self._cancel(one, outcome.request_id))
                        for one in (client, other)[: self.rng.randint(1, 2)]
                    )
                return True

            return await self._stream(on_event, {})

    async def stream_and_leave(self, **options: Any) -> Outcome:
        """A stream whose client closes it somewhere on the way; the outcome is what it had by then."""
        place = self._place()
        return await self._stream(lambda outcome: len(outcome.token_ids) < place, options)

    async def stream_and_expire(self) -> Outcome:
        """A stream that has little time; the outcome has no id where it was over before the request was accepted."""
        timeout_s = self.rng.uniform(0.05, _MOST_LITTLE_S)
        try:
            return await self._stream(lambda _: True, {"timeout_s": timeout_s})
        except HeadraceError as error:
            if error.code != "DEADLINE_EXCEEDED":
                raise
            return Outcome(error=error)

    async def unary(self, **options: Any) -> Outcome:
        """A whole answer at once."""
        client, given = self.any_client(), self._options(options)

        async def call() -> Outcome:
            response = await client.generate(self.known.ask.body, timeout_s=TIMEOUT_S, **given)
            self.history.name(response.request_id)
            self.journal.token(self.known.ask.model)
            return outcome_of(response)

        return await self._until_taken(call, can_be_told=False)

    async def follow_other(self, request_id: str, from_seq: int) -> Outcome:
        """Attach to a running request and stay to its end; the outcome has the tokens from `from_seq` on."""
        attach = patient_attach(self.any_client())
        outcome = Outcome(request_id=request_id, token_ids=[-1] * from_seq)
        self.history.note(f"another attaches from {from_seq}")
        self.journal.counts["attaches"] += 1
        async with attach(request_id, from_seq) as stream:
            await follow(stream, outcome)
        self.history.note(f"the other ends: {outcome.finish_reason} {outcome.error}")
        del outcome.token_ids[:from_seq]
        return outcome

    async def go_on(self, outcome: Outcome) -> None:
        """Attach where `outcome` ends, at any gateway, and complete it."""
        from_seq = len(outcome.token_ids)
        self.history.note(f"comes back from {from_seq}")
        self.journal.counts["attaches"] += 1
        attach = patient_attach(self.any_client())
        async with attach(outcome.request_id, from_seq) as stream:
            await follow(stream, outcome, on_event=self._noting())
        self.history.note(f"ends: {outcome.finish_reason} {outcome.error}")

    async def _stream(
        self, on_event: Callable[[Outcome], bool], options: dict[str, Any]
    ) -> Outcome:
        """Until the end, or until `on_event` says that its client leaves."""

        async def call() -> Outcome:
            outcome = Outcome()
            noting = self._noting()
            async with self._opened(options) as stream:

                def observe(event: Any) -> None:
                    noting(event)
                    if outcome.request_id:
                        self.history.name(outcome.request_id)
                    if not on_event(outcome) and not outcome.finish_reason:
                        self.history.note("leaves")
                        stream.close()

                await follow(stream, outcome, on_event=observe)
            if outcome.error is not None and not outcome.request_id:
                raise outcome.error
            self.history.note(f"ends: {outcome.finish_reason} {outcome.error}")
            return outcome

        return await self._until_taken(call)

    def _opened(
        self, options: dict[str, Any]
    ) -> contextlib.AbstractAsyncContextManager[EventStream]:
        """A new request's events."""
        given = {"timeout_s": TIMEOUT_S} | self._options(options)
        return self.any_client().stream(self.known.ask.body, reattach=_PATIENT, **given)

    async def _until_taken(
        self, call: Callable[[], Awaitable[Outcome]], *, can_be_told: bool = True
    ) -> Outcome:
        """`can_be_told`: its gateway can say that it has lost the queue, so that nothing is lost with that."""
        loop = asyncio.get_running_loop()
        gives_up_s = loop.time() + scaled(TIMEOUT_S)
        while True:
            began_s = time.monotonic()
            try:
                with self.journal.waiting(self.known.ask.model):
                    return await call()
            except HeadraceError as error:
                is_stranded = (
                    not can_be_told
                    and error.code == "CANCELLED"
                    and self.journal.was_stranding_since(began_s)
                )
                if not (is_refusal(error) or is_stranded) or loop.time() > gives_up_s:
                    raise
                self.journal.counts[f"refused: {error.code} {error.reason}".rstrip()] += 1
                self.history.note(f"refused: {error}")
                await asyncio.sleep(min(error.retry_after_s or _RETRY_S, 2.0))

    async def _cancel(self, client: AsyncClient, request_id: str) -> object:
        self.journal.counts["cancels"] += 1
        answer = await insisting(self.journal, lambda: client.cancel(request_id, "chaos"))
        self.history.note(f"cancel: {answer.status} {answer.cancelling}")
        return answer

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        return self.known.ask.options | random_call_options(self.rng) | options

    def _place(self) -> int:
        """Somewhere in the answer."""
        return self.rng.randint(0, max(0, len(self.known.answer.token_ids) - 1))

    def _noting(self) -> Callable[[Any], None]:
        """Writes events to the history; keeps the longest silence between tokens."""
        loop = asyncio.get_running_loop()
        last_s: list[float] = []

        def note(event: Any) -> None:
            kind = event.WhichOneof("event")
            if kind != "keepalive":
                self.history.note(f"{kind} seq {event.seq} count {event.count}")
            if kind == "delta" and event.count:
                now_s = loop.time()
                if last_s and now_s - last_s[0] > _SILENT_S:
                    self.journal.silence(now_s - last_s[0], self.history)
                last_s[:] = [now_s]
                self.journal.token(self.known.ask.model)

        return note
