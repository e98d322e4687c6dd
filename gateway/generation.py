"""A new request from its message to an open follower: validate, tokenize, admit, follow."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from common.clock import monotonic_s
from common.errors import Unavailable
from common.streams.admission import Admitted
from common.wire.public import AcceptedFacts
from gateway.admit import Admission
from gateway.caller import Caller
from gateway.draft import Draft
from gateway.prepare import Preparation, Prepared
from gateway.quotas import Quotas
from gateway.relay.follower import Follower
from gateway.relay.mailbox import Mailbox
from gateway.relay.relay import Relay
from gateway.story import Story


@dataclass(frozen=True, slots=True)
class Opened:
    """A request that was accepted, and who follows it here.

    ``is_given_up``: it was cancelled or has expired, or that is about to happen.
    """

    facts: AcceptedFacts
    follower: Follower
    with_ids: bool
    is_given_up: bool = False


class AdmittedBefore(Unavailable):
    """The id was admitted already, and not for this follower."""

    def __init__(self) -> None:
        """A caller who has the id from an idempotency key joins the request instead."""
        super().__init__(
            "the request is followed elsewhere", reason="ADMITTED_BEFORE", retry_after_s=1.0
        )


class Generation:
    """Opens new requests."""

    def __init__(
        self, preparation: Preparation, quotas: Quotas, admission: Admission, relay: Relay
    ) -> None:
        """The stages, in order."""
        self._preparation = preparation
        self._quotas = quotas
        self._admission = admission
        self._relay = relay

    @asynccontextmanager
    async def open(self, draft: Draft, caller: Caller, story: Story) -> AsyncIterator[Opened]:
        """A new request, which its follower leaves with the block.

        Raises:
            HeadraceError: it is refused, and why.
        """
        prepared = await self._preparation.prepare(draft, caller, story.trace)
        async with self.open_prepared(prepared, story) as opened:
            yield opened

    @asynccontextmanager
    async def open_prepared(self, prepared: Prepared, story: Story) -> AsyncIterator[Opened]:
        """The same, of what was prepared before; what may have been admitted for nobody is cancelled.

        Raises:
            HeadraceError: it is refused, and why.
        """

        def cancel(name: str) -> None:
            self._relay.cancel(prepared.id, "admission unknown")

        async with self.admitting(prepared, story, cancel) as opened:
            yield opened

    @asynccontextmanager
    async def admitting(
        self, prepared: Prepared, story: Story, when_unknown: Callable[[str], None]
    ) -> AsyncIterator[Opened]:
        """Admit a prepared request; ``when_unknown`` gets the name of the follower that may or may not be counted.

        Raises:
            AdmittedBefore: somebody else admitted it.
            HeadraceError: it is refused, and why.
        """
        request = prepared.request
        story.tell(request)
        mailbox = Mailbox(len(request.prompt_token_ids))
        name = self._relay.new_name()
        # The mailbox stands before the request is admitted: its first record may overtake the answer.
        with self._relay.following(
            prepared.id, name, mailbox, log_name=self._relay.gateway_id
        ) as follower:
            admitted = await self._admit(prepared, follower, name, story, when_unknown)
            if not admitted.is_followed:
                raise AdmittedBefore
            follower.expires_s = monotonic_s() + prepared.budget_s
            facts = AcceptedFacts(
                request_id=request.request_id,
                model=request.model,
                model_revision=request.model_revision,
                seed=request.sampling.seed,
                admitted_ms=admitted.admitted_ms,
            )
            yield Opened(facts, follower, request.output.token_ids)

    async def _admit(
        self,
        prepared: Prepared,
        follower: Follower,
        name: str,
        story: Story,
        when_unknown: Callable[[str], None],
    ) -> Admitted:
        """Reserve, then admit; what was reserved for a request that was refused for certain is given back."""
        prepared = await self._quotas.reserve(prepared)
        is_unknown = False

        def note_unknown() -> None:
            nonlocal is_unknown
            is_unknown = True
            when_unknown(name)
            self._quotas.release_unless_admitted(prepared)

        try:
            return await self._admission.admit(prepared, follower, name, story.trace, note_unknown)
        except BaseException:
            if not is_unknown:
                self._quotas.release(prepared)
            raise
