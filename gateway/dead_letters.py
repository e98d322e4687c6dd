"""Dead letters for operators: what was set aside, with its history, and running one again as a new request."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from common.domain import Partition, RequestId, TraceContext
from common.errors import (
    UNDECODABLE_RECORD,
    FieldViolation,
    InternalFailure,
    InvalidRequest,
    NotFound,
)
from common.logs import Log
from common.streams.dead_letters import DeadLetter, find_letter, read_letters
from common.streams.node import Node
from common.streams.reply_log import id_key
from common.wire.records import UndecodableError
from common.wire.request import parse_body, request_from_body
from gateway.admit import Admission
from gateway.catalogue import Catalogue
from gateway.prepare import Prepared
from gateway.queue_views import partitions_of
from gateway.relay.relay import Relay

_BOUND_S = 2.0
_DEFAULT_PAGE = 50
_MAX_PAGE = 500
_MIN_BUDGET_S = 60.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page ends: newest first, and by partition where two died in one moment."""

    entry_id: str
    partition: str

    @property
    def token(self) -> str:
        """As callers give it back."""
        return base64.urlsafe_b64encode(f"{self.entry_id} {self.partition}".encode()).decode()

    @classmethod
    def of(cls, token: str) -> Self:
        """From a caller.

        Raises:
            InvalidRequest: it is none of ours.
        """
        try:
            entry_id, _, partition = (
                base64.b64decode(token, b"-_", validate=True).decode().partition(" ")
            )
            id_key(entry_id)
        except (binascii.Error, UnicodeError, ValueError):
            violation = FieldViolation("page_token", "is not from an earlier answer")
            raise InvalidRequest([violation]) from None
        return cls(entry_id, partition)

    def start_in(self, partition: Partition) -> str:
        """Where the next page begins in a partition's stream."""
        return self.entry_id if str(partition) < self.partition else f"({self.entry_id}"


class DeadLetters:
    """Looks at letters and runs them again."""

    def __init__(
        self, node: Node, catalogue: Catalogue, admission: Admission, relay: Relay, log: Log
    ) -> None:
        """A letter that runs again is admitted by ``admission`` like any other request."""
        self._node = node
        self._catalogue = catalogue
        self._admission = admission
        self._relay = relay
        self._log = log

    async def page(
        self, model: str, page_size: int, page_token: str
    ) -> tuple[Sequence[tuple[Partition, DeadLetter]], str]:
        """Letters without their bodies, newest first, and the token of the next page ('' at the end).

        Raises:
            NotFound: there is no such model.
            InvalidRequest: the token is none of ours.
            Unavailable: Redis cannot be reached.
        """
        place = Place.of(page_token) if page_token else None
        size = min(page_size or _DEFAULT_PAGE, _MAX_PAGE)
        found: list[tuple[Partition, DeadLetter]] = []
        for partition in await self._partitions(model):
            start = "+" if place is None else place.start_in(partition)
            letters = await read_letters(
                self._node, partition, start=start, count=size + 1, bound_s=_BOUND_S
            )
            found += [(partition, letter) for letter in letters]
        found.sort(key=lambda one: (id_key(one[1].entry_id), str(one[0])), reverse=True)
        if len(found) <= size:
            return found, ""
        partition, last = found[size - 1]
        return found[:size], Place(last.entry_id, str(partition)).token

    async def get(self, text: str) -> tuple[Partition, DeadLetter]:
        """One letter, with its body.

        Raises:
            NotFound: there is none of this id.
            Unavailable: Redis cannot be reached.
        """
        request_id = RequestId.parse(text)
        letter = None
        if request_id is not None:
            letter = await find_letter(self._node, request_id, bound_s=_BOUND_S)
        if request_id is None or letter is None:
            raise NotFound(
                "there is no such dead letter",
                reason="DEAD_LETTER_NOT_FOUND",
                metadata={"resource_type": "dead letter", "resource_name": text[:256]},
            )
        return request_id.partition, letter

    async def replay(self, text: str, trace: TraceContext) -> RequestId:
        """Run one again: its body under a new id, for the same tenant and as long as it had. The letter stays.

        Nobody follows the new request yet, so it is resumable whatever it was before.

        Raises:
            HeadraceError: there is no such letter, its model is gone, or it is refused like any other request.
        """
        partition, letter = await self.get(text)
        model = await self._catalogue.get(partition.model)
        request_id = model.new_id()
        try:
            request = request_from_body(parse_body(letter.body))
        except (UndecodableError, KeyError, ValueError):
            raise InternalFailure(
                "the stored body cannot be read", reason=UNDECODABLE_RECORD
            ) from None
        renewed = replace(request, request_id=str(request_id), resumable=True, trace=trace)
        prepared = Prepared(request_id, renewed, max(_MIN_BUDGET_S, letter.budget_ms / 1000))
        await self._admission.enter(
            prepared,
            self._relay.new_name(),
            trace,
            lambda: self._relay.cancel(request_id, "admission unknown"),
        )
        self._log.info(
            "dead letter runs again", dead=letter.request_id, request_id=str(request_id)
        )
        return request_id

    async def _partitions(self, name: str) -> Sequence[Partition]:
        if name:
            models = [await self._catalogue.get(name)]
        else:
            await self._catalogue.first_look()
            models = [*self._catalogue.models]
        return [partition for model in models for partition in partitions_of(model)]
