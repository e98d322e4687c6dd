"""The calls of one client about one request. Refusals before acceptance are retried and counted; nothing else is.

`asked` is the request as this call sends it (`asking` draws it); its answer is that of the ask.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from google.protobuf import text_format

from headrace.client import AsyncClient, AsyncTokenStream, HeadraceError, ReattachPolicy
from headrace.client.requests import duration
from headrace.v1 import inference_service_pb2 as pb
from tests.chaos import features
from tests.chaos.asks import Known
from tests.chaos.checks import insisting, is_refusal, outcome_of
from tests.chaos.journal import History, Journal
from tests.chaos.settings import ChaosSettings
from tests.support.outcomes import UNTOLD, EventStream, Outcome, follow
from tests.support.time_scale import scaled

T = TypeVar("T")
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


def wants_ids(asked: pb.GenerateRequest) -> bool:
    """Whether its answer has token ids."""
    return not asked.output.HasField("token_ids") or asked.output.token_ids


class Calls:
    """Of one request, or of several equal ones under one key."""

    def __init__(
        self,
        settings: ChaosSettings,
        journal: Journal,
        known: Known,
        history: History,
        tenant: str,
        clients: Sequence[AsyncClient],
        rng: random.Random,
    ) -> None:
        """`clients` are of `tenant` and prefer different gateways; `rng` decides what is left open."""
        self.settings = settings
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
        return Calls(
            self.settings,
            self.journal,
            known,
            self.history,
            self.tenant,
            self._clients,
            self.rng,
        )

    def asking(self, **fields: Any) -> pb.GenerateRequest:
        """The request as one of many callers may send it, with `fields` set to these."""
        asked = features.varied(self.rng, self.known.request, self.settings)
        asked.MergeFrom(pb.GenerateRequest(**fields))
        self.history.note(f"asks {text_format.MessageToString(asked, as_one_line=True)}")
        return asked

    async def stream(
        self,
        asked: pb.GenerateRequest,
        *,
        at_some_token: Callable[[str, int], None] | None = None,
    ) -> Outcome:
        """A stream to its end; `at_some_token` is told id and number of tokens once, somewhere on the way."""
        place = self._place()
        told: list[int] = []

        def on_event(outcome: Outcome) -> bool:
            if at_some_token is not None and not told and len(outcome.token_ids) >= place:
                told.append(place)
                at_some_token(outcome.request_id, len(outcome.token_ids))
            return True

        return await self._stream(asked, on_event)

    async def stream_and_cancel(self, asked: pb.GenerateRequest) -> Outcome:
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

            return await self._stream(asked, on_event)

    async def stream_and_leave(self, asked: pb.GenerateRequest) -> Outcome:
        """A stream whose client closes it somewhere on the way; the outcome is what it had by then."""
        place = self._place()
        return await self._stream(asked, lambda outcome: len(outcome.token_ids) < place)

    async def stream_and_expire(self, asked: pb.GenerateRequest) -> Outcome:
        """A stream that has little time; the outcome has no id where it was over before the request was accepted."""
        asked.timeout.CopyFrom(duration(self.rng.uniform(0.05, _MOST_LITTLE_S)))
        try:
            return await self._stream(asked, lambda _: True)
        except HeadraceError as error:
            if error.code != "DEADLINE_EXCEEDED":
                raise
            return Outcome(error=error)

    async def unary(self, asked: pb.GenerateRequest) -> Outcome:
        """A whole answer at once."""
        client = self.any_client()

        async def call() -> Outcome:
            response = await client.generate(asked, timeout_s=TIMEOUT_S)
            return self.told(asked, response)

        return await self.until_taken(call, can_be_told=False)

    def told(self, asked: pb.GenerateRequest, response: pb.GenerateResponse) -> Outcome:
        """A whole answer that has come."""
        self.history.name(response.request_id)
        self.journal.token(self.known.model)
        return outcome_of(response, has_ids=wants_ids(asked))

    async def batch(
        self, requests: Sequence[pb.GenerateRequest]
    ) -> dict[int, pb.BatchGenerateResponse]:
        """The outcomes of many requests in one call, as far as they came before it broke.

        Raises:
            HeadraceError: it broke before the first.
        """
        outcomes: dict[int, pb.BatchGenerateResponse] = {}
        try:
            async for one in self.any_client().batch(requests, timeout_s=TIMEOUT_S):
                assert one.index not in outcomes, f"two outcomes of {one.index}"
                outcomes[one.index] = one
        except HeadraceError as error:
            if not outcomes or not is_refusal(error):
                raise
            self.history.note(f"the batch breaks: {error}")
        return outcomes

    async def count_tokens(self, asked: pb.GenerateRequest) -> Sequence[int]:
        """The prompt's tokens."""
        client = self.any_client()
        counted = await insisting(
            self.journal,
            lambda: client.count_tokens(asked.prompt, model=asked.model, return_token_ids=True),
        )
        assert counted.num_tokens == len(counted.token_ids)
        return [*counted.token_ids]

    async def follow_other(self, request_id: str, from_seq: int, *, has_ids: bool) -> Outcome:
        """Attach to a running request and stay to its end; the outcome has the tokens from `from_seq` on."""
        attach = patient_attach(self.any_client())
        outcome = Outcome(request_id, token_ids=[UNTOLD] * from_seq, has_ids=has_ids)
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
        self, asked: pb.GenerateRequest, on_event: Callable[[Outcome], bool]
    ) -> Outcome:
        """Until the end, or until `on_event` says that its client leaves."""

        async def call() -> Outcome:
            outcome = Outcome(has_ids=wants_ids(asked))
            noting = self._noting()
            async with self._opened(asked) as stream:

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

        return await self.until_taken(call)

    def _opened(
        self, asked: pb.GenerateRequest
    ) -> contextlib.AbstractAsyncContextManager[EventStream]:
        """A new request's events."""
        timeout_s = asked.timeout.ToNanoseconds() / 1e9 or TIMEOUT_S
        stream = self.any_client().stream(asked, reattach=_PATIENT, timeout_s=timeout_s)
        stream.on_break = self.broke
        return stream

    def broke(self, error: object) -> None:
        """A stream is about to be continued by Attach."""
        self.history.num_breaks += 1
        self.history.note(f"the stream breaks: {error}")

    async def until_taken(
        self, call: Callable[[], Awaitable[T]], *, can_be_told: bool = True
    ) -> T:
        """What `call` answers, once it is not refused.

        `can_be_told`: its gateway can say that it has lost the queue, so that nothing is lost with that.
        """
        loop = asyncio.get_running_loop()
        gives_up_s = loop.time() + scaled(TIMEOUT_S)
        while True:
            began_s = time.monotonic()
            try:
                with self.journal.waiting(self.known.model):
                    return await call()
            except HeadraceError as error:
                is_stranded = not can_be_told and self.journal.is_stranded(error, began_s)
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
                self.journal.token(self.known.model)

        return note
