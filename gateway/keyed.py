"""A request with an idempotency key: a new one, or the one that the key stands for, running or ended.

    look ──▶ prepare ──▶ claim ──▶ admit ──▶ confirm        a new request
      └──────────────────▶ attach                           the key stands for one that was admitted

A claim comes before its admission, in another slot. Whoever finds a claim without a record admits the request under
the same id; of several who do only the first is its follower by that, and the others attach.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from common.backoff import backoff_delays_s
from common.clock import monotonic_s
from common.domain import RequestId, uuid7_hex
from common.errors import AlreadyExists, NotFound, Unavailable
from common.streams import idempotency
from common.streams.following import Record, read_record
from common.streams.idempotency import Claim, KeyName
from common.streams.node import Node
from gateway.attachment import Attachment
from gateway.background import Background
from gateway.caller import Caller
from gateway.draft import Draft
from gateway.generation import AdmittedBefore, Generation, Opened
from gateway.prepare import Preparation, Prepared
from gateway.relay.relay import Relay
from gateway.settings import LONGEST_LIFE_S
from gateway.story import Story
from gateway.validation.fields import check_key, check_tenant
from gateway.validation.findings import Findings
from gateway.verdict import Verdict, verdict_on

_BOUND_S = 2.0
# A request that is being cancelled ends within milliseconds where a leader is; elsewhere the caller comes again.
_PATIENCE_S = 5.0
_LONGEST_PAUSE_S = 0.3


@dataclass(slots=True)
class _Use:
    """One call's use of a key."""

    name: KeyName
    draft: Draft
    caller: Caller
    story: Story
    prepared: Prepared | None = None
    claimant: RequestId | None = None
    """Under which this call may count as a claimant, which is to be taken back when it is refused."""


class KeyedGeneration:
    """Opens requests that have a key."""

    def __init__(
        self,
        node: Node,
        preparation: Preparation,
        generation: Generation,
        attachment: Attachment,
        relay: Relay,
        background: Background,
    ) -> None:
        """``background`` says of claims what became of them."""
        self._node = node
        self._preparation = preparation
        self._generation = generation
        self._attachment = attachment
        self._relay = relay
        self._background = background

    @asynccontextmanager
    async def open(self, draft: Draft, caller: Caller, story: Story) -> AsyncIterator[Opened]:
        """A follower of the request that the key stands for, from now on if there is none yet.

        Raises:
            AlreadyExists: the key stands for a request with another body.
            HeadraceError: the request is refused, and why.
        """
        use = _Use(KeyName(caller.tenant, draft.idempotency_key), draft, caller, story)
        async with AsyncExitStack() as exits:
            try:
                opened = await self._resolve(use, exits)
            finally:
                if use.claimant is not None:
                    self._tell(
                        idempotency.release(self._node, use.name, use.claimant, bound_s=None)
                    )
            yield opened

    async def _resolve(self, use: _Use, exits: AsyncExitStack) -> Opened:
        await self._check(use)
        gives_up_s = monotonic_s() + _PATIENCE_S
        replaces: RequestId | None = None
        claim = await idempotency.look(self._node, use.name, bound_s=_BOUND_S)
        pauses_s = backoff_delays_s(random.random, first_s=0.005, max_s=_LONGEST_PAUSE_S)
        while True:
            is_new = claim is None
            if claim is None:
                claim = await self._claim(use, replaces)
            # My own claim needs no look, unless its answer was lost and others have gone on with it meanwhile.
            is_mine = claim.request_id == use.claimant and not claim.is_admitted
            record = None if is_new and is_mine else await self._record(claim.request_id)
            verdict = _verdict(claim, use.draft.body_digest, record)
            if verdict is Verdict.REUSED:
                raise _reused(claim.request_id)
            replaces = claim.request_id if verdict is Verdict.FREE else None
            if verdict is Verdict.FREE or (verdict is Verdict.ADMIT and not is_new):
                claim = None
                continue
            opened = await self._open(use, claim, verdict, record, exits)
            if opened is not None:
                return opened
            pause_s = next(pauses_s)
            if monotonic_s() + pause_s > gives_up_s:
                break
            await asyncio.sleep(pause_s)
            claim = await idempotency.look(self._node, use.name, bound_s=_BOUND_S)
        raise _busy()

    async def _check(self, use: _Use) -> None:
        """Names that go into a key of Redis are looked at before it is."""
        findings = Findings()
        check_tenant(use.name.tenant, findings)
        check_key(use.name.key, findings)
        if findings.violations:
            # Refused there, together with whatever else is wrong.
            await self._preparation.prepare(use.draft, use.caller, use.story.trace)
        findings.raise_if_any()

    async def _claim(self, use: _Use, replaces: RequestId | None) -> Claim:
        if use.prepared is None:
            use.prepared = await self._preparation.prepare(use.draft, use.caller, use.story.trace)
        # Each claim has an id of its own: the one before may be taken by now.
        unix_ms = int(use.prepared.id.unique[:12], 16)
        use.claimant = RequestId(use.prepared.id.partition, uuid7_hex(unix_ms))
        return await idempotency.claim(
            self._node,
            use.name,
            use.claimant,
            use.draft.body_digest,
            replaces=replaces,
            bound_s=_BOUND_S,
        )

    async def _record(self, request_id: RequestId) -> Record | None:
        return await read_record(self._node, request_id, bound_s=_BOUND_S)

    async def _open(
        self,
        use: _Use,
        claim: Claim,
        verdict: Verdict,
        record: Record | None,
        exits: AsyncExitStack,
    ) -> Opened | None:
        """The follower; None when the request is to be looked at again."""
        opened: Opened | None = None
        if verdict is Verdict.ADMIT:
            opened = await self._admit(use, claim, exits)
        elif verdict is Verdict.ATTACH:
            assert record is not None
            opened = await self._attach(use, claim, record, exits)
        else:
            return None
        if not claim.is_admitted:
            use.claimant = None
            digest = use.draft.body_digest
            self._tell(
                idempotency.confirm(self._node, use.name, claim.request_id, digest, bound_s=None)
            )
        return opened

    async def _admit(self, use: _Use, claim: Claim, exits: AsyncExitStack) -> Opened | None:
        assert use.prepared is not None
        model = claim.request_id.partition.model
        if model != use.prepared.request.model:
            # The claim is another caller's, for whom the same name stood for another model.
            draft = replace(use.draft, model=model)
            use.prepared = await self._preparation.prepare(draft, use.caller, use.story.trace)
        prepared = use.prepared.renamed(claim.request_id)

        def leave_late(name: str) -> None:
            # Not cancelled: the claim stands, and a retry within the grace goes on with what was admitted.
            use.claimant = None
            self._relay.leave_late(prepared.id, name)

        try:
            return await exits.enter_async_context(
                self._generation.admitting(prepared, use.story, leave_late)
            )
        except AdmittedBefore:
            return None

    async def _attach(
        self, use: _Use, claim: Claim, record: Record, exits: AsyncExitStack
    ) -> Opened | None:
        use.story.join(str(claim.request_id), use.name.tenant)
        async with AsyncExitStack() as stay:
            try:
                opened = await stay.enter_async_context(
                    self._attachment.open_found(claim.request_id, record)
                )
            except NotFound:
                return None
            if opened.is_given_up:
                return None
            await exits.enter_async_context(stay.pop_all())
            return opened

    def _tell(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.start(work, "idempotency key", within_s=LONGEST_LIFE_S)


def _verdict(claim: Claim, digest: str, record: Record | None) -> Verdict:
    return verdict_on(
        None if record is None else record.status,
        is_admitted=claim.is_admitted,
        is_cancelling=record is not None and bool(record.cancel),
        is_same=claim.digest == digest,
    )


def _reused(first: RequestId) -> AlreadyExists:
    return AlreadyExists(
        "the idempotency key was used with another request",
        reason="IDEMPOTENCY_KEY_REUSED",
        metadata={"request_id": str(first)},
    )


def _busy() -> Unavailable:
    return Unavailable(
        "the request that the idempotency key stands for is about to end",
        reason="IDEMPOTENCY_KEY_BUSY",
        retry_after_s=1.0,
    )
