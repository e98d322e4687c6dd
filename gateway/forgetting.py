"""Forgetting a tenant's requests, or one: what is open is cancelled first, what has ended is deleted."""

import asyncio

from common.clock import monotonic_s
from common.domain import Partition, RequestId
from common.errors import FieldViolation, InvalidRequest, Unavailable
from common.streams import following
from common.streams.forgetting import forget_letters, forget_record, requests_of
from common.streams.node import Node
from gateway.catalogue import Catalogue
from gateway.lookup import request_not_found
from gateway.queue_views import partitions_of
from headrace.v1 import admin_service_pb2 as pb

_BOUND_S = 5.0
_END_WITHIN_S = 10.0
_PAUSE_S = 0.1


class Forgetting:
    """Deletes on an operator's order, before the time at which everything goes by itself."""

    def __init__(self, node: Node, catalogue: Catalogue) -> None:
        """``catalogue`` names the partitions in which dead letters may lie."""
        self._node = node
        self._catalogue = catalogue

    async def forget(self, request: pb.ForgetRequest) -> pb.ForgetResponse:
        """Cancel, wait for the ends, delete; how many requests are gone.

        Raises:
            InvalidRequest: neither a tenant nor a request is named.
            NotFound: there is no such request.
            Unavailable: some do not end now; once more, later.
        """
        if request.WhichOneof("scope") == "tenant" and request.tenant:
            tenant = request.tenant
            found = {one async for one in requests_of(self._node, tenant, bound_s=_BOUND_S)}
            gone = await self._delete(found)
            letters = [
                await forget_letters(self._node, partition, tenant=tenant, bound_s=_BOUND_S)
                for partition in await self._partitions()
            ]
            return pb.ForgetResponse(requests=max(gone, sum(letters)))
        request_id = RequestId.parse(request.request_id)
        if not request.request_id:
            raise InvalidRequest([FieldViolation("scope", "must be a tenant or a request_id")])
        if request_id is None:
            raise request_not_found(request.request_id)
        gone = await self._delete({request_id})
        letters_gone = await forget_letters(
            self._node, request_id.partition, request_id=str(request_id), bound_s=_BOUND_S
        )
        if not gone and not letters_gone:
            raise request_not_found(request.request_id)
        return pb.ForgetResponse(requests=1)

    async def _delete(self, waiting: set[RequestId]) -> int:
        num_gone, gives_up_s = 0, monotonic_s() + _END_WITHIN_S
        is_first = True
        while waiting:
            for request_id in [*waiting]:
                status = await forget_record(self._node, request_id, bound_s=_BOUND_S)
                if status is None or status.is_final:
                    waiting.discard(request_id)
                    num_gone += status is not None
                elif is_first:
                    await following.cancel(
                        self._node, request_id, "to be forgotten", bound_s=_BOUND_S
                    )
            is_first = False
            if waiting and monotonic_s() > gives_up_s:
                raise Unavailable(
                    f"{len(waiting)} requests have not ended yet",
                    reason="STILL_OPEN",
                    retry_after_s=_END_WITHIN_S,
                )
            if waiting:
                await asyncio.sleep(_PAUSE_S)
        return num_gone

    async def _partitions(self) -> list[Partition]:
        await self._catalogue.first_look()
        return [p for model in self._catalogue.models for p in partitions_of(model)]
