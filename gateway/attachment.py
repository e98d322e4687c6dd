"""Following a request that was accepted earlier, here or at another gateway, from any seq."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from common import keys
from common.clock import monotonic_s
from common.domain import RequestId
from common.errors import DAMAGED_LOG, UNDECODABLE_RECORD, FieldViolation, InvalidRequest
from common.request_status import RequestStatus
from common.streams.following import Record, follow
from common.streams.node import Node
from common.wire import vocabulary
from common.wire.public import AcceptedFacts
from common.wire.records import UndecodableError
from common.wire.request import most_tokens, parse_body
from gateway.generation import Opened
from gateway.lookup import Lookup, request_not_found
from gateway.relay.history import checkpoint_of, result_of, unreadable
from gateway.relay.mailbox import Mailbox
from gateway.relay.relay import Relay

_BOUND_S = 2.0
_DAMAGED = frozenset({DAMAGED_LOG, UNDECODABLE_RECORD})
_GIVEN_UP = frozenset({RequestStatus.CANCELLED, RequestStatus.EXPIRED})


class Attachment:
    """Opens followers of requests that exist."""

    def __init__(self, node: Node, lookup: Lookup, relay: Relay) -> None:
        """``lookup`` says who may see what."""
        self._node = node
        self._lookup = lookup
        self._relay = relay

    @asynccontextmanager
    async def open(self, text: str, tenant: str, from_seq: int) -> AsyncIterator[Opened]:
        """A follower from ``from_seq`` on.

        Raises:
            HeadraceError: there is no such request (of this tenant), or it cannot be read now.
        """
        # Looked at before it is followed: joining lifts the order to cancel what everybody left.
        request_id, record = await self._lookup.find(text, tenant)
        async with self.open_found(request_id, record, from_seq, is_trial=True) as opened:
            yield opened

    @asynccontextmanager
    async def open_found(
        self, request_id: RequestId, record: Record, from_seq: int = 0, *, is_trial: bool = False
    ) -> AsyncIterator[Opened]:
        """A follower of a request that was just looked up, and may be followed by who looked.

        Raises:
            HeadraceError: it is not there any more, cannot be read now, or has not so many tokens.
        """
        name = self._relay.new_name()
        mailbox = Mailbox(record.prompt_tokens, from_seq)
        # What has ended is in its record: no foreign log is read for it.
        log_name, after = self._relay.gateway_id, ""
        if not record.terminal:
            log_name, after = record.log, checkpoint_of(record)[1]
        with self._relay.following(
            request_id, name, mailbox, log_name=log_name, after=after
        ) as follower:
            if not record.terminal:
                # Set before the answer is known: a lost answer may have joined all the same.
                follower.is_joined = True
                follower.is_trial = is_trial
                joined = await follow(self._node, request_id, name, bound_s=_BOUND_S)
                if joined is None:
                    raise request_not_found(str(request_id))
                record = joined
                now_ms = await self._node.time_ms(keys.record(request_id), bound_s=_BOUND_S)
                follower.expires_s = monotonic_s() + (record.deadline_ms - now_ms) / 1000
            facts, with_ids = accepted_facts(request_id, record)
            if from_seq:
                check_from_seq(record, from_seq)
            await follower.start_from(record)
            is_late = not record.terminal and follower.expires_s <= monotonic_s()
            is_given_up = record.status in _GIVEN_UP or (
                not record.status.is_final and (is_late or bool(record.cancel))
            )
            yield Opened(facts, follower, with_ids, is_given_up)


def check_from_seq(record: Record, from_seq: int) -> None:
    """Nobody waits for tokens that will not be.

    What a running request has logged is no bound: after a fail-over its client may know more than Redis, until its
    leader has written it again. One that failed over what is stored may lack tokens that its client was given: such a
    client is told how it ended.

    Raises:
        InvalidRequest: ``from_seq`` lies behind the last token, or behind the last that there may be.
        InternalFailure: the result cannot be read.
        UndecodableError: the body cannot (``accepted_facts`` says so first).
    """
    result = result_of(record)
    if result is None:
        most, what = most_tokens(record.body), "that the request may have"
    elif result.failure is not None and result.failure.reason in _DAMAGED:
        return
    else:
        most, what = result.progress.next_seq, f"of the request, which is {record.status}"
    if from_seq > most:
        text = f"must be at most {most}, the tokens {what}, is {from_seq}"
        raise InvalidRequest([FieldViolation("from_seq", text)])


def accepted_facts(request_id: RequestId, record: Record) -> tuple[AcceptedFacts, bool]:
    """What the client was told at first, and whether it wants token ids.

    While a request is open its body says so; its terminal record does after.

    Raises:
        HeadraceError: what is stored cannot be read.
    """
    result = result_of(record)
    if result is not None:
        seed, revision, with_ids = result.seed, result.model_revision, result.wants_token_ids
    else:
        try:
            body = parse_body(record.body)
        except UndecodableError as error:
            raise unreadable(error) from error
        seed, revision = body.sampling.seed, body.model_revision
        with_ids = vocabulary.wants_token_ids(body.output)
    facts = AcceptedFacts(
        request_id=str(request_id),
        model=request_id.partition.model,
        model_revision=revision,
        seed=seed,
        admitted_ms=record.admitted_ms,
    )
    return facts, with_ids
