"""A request that takes the answer of an earlier equal one, where both can only have the same answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from common.domain import FinishReason, RequestId
from common.metrics import Metrics, model_labels
from common.request_status import RequestStatus
from common.streams.following import Record, read_record
from common.streams.node import Node
from common.streams.response_cache import find_answer, note_answer
from common.telemetry_names import HEADRACE_RESPONSE_CACHE
from common.wire.digest import answer_digest
from gateway.attachment import Attachment
from gateway.background import Background
from gateway.caller import Caller
from gateway.draft import Draft
from gateway.generation import Generation, Opened
from gateway.prepare import Preparation, Prepared
from gateway.settings import LONGEST_LIFE_S
from gateway.story import Story

_BOUND_S = 2.0
_GOOD = frozenset({FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTENT_FILTER})


class CachedGeneration:
    """Opens requests that may be answered from the response cache."""

    def __init__(
        self,
        node: Node,
        preparation: Preparation,
        generation: Generation,
        attachment: Attachment,
        background: Background,
        metrics: Metrics,
    ) -> None:
        """Answers are noted in ``background``."""
        self._node = node
        self._preparation = preparation
        self._generation = generation
        self._attachment = attachment
        self._background = background
        self._metrics = metrics

    @asynccontextmanager
    async def open(self, draft: Draft, caller: Caller, story: Story) -> AsyncIterator[Opened]:
        """A follower of a request that has ended, if there is an equal one, or of a new request.

        Raises:
            HeadraceError: it is refused, and why.
        """
        prepared = await self._preparation.prepare(draft, caller, story.trace)
        digest = answer_digest(prepared.request)
        found = await self._find(caller.tenant, digest)
        self._tell(story, prepared, is_hit=found is not None)
        if found is not None:
            story.join(str(found[0]), caller.tenant)
            async with self._attachment.open_found(*found) as opened:
                opened.follower.mailbox.is_from_cache = True
                yield opened
            return
        async with self._generation.open_prepared(prepared, story) as opened:
            yield opened
        if story.finish is not None and story.finish.last and story.finish.reason in _GOOD:
            self._background.start(
                note_answer(self._node, caller.tenant, digest, prepared.id, bound_s=None),
                "response cache",
                within_s=LONGEST_LIFE_S,
            )

    async def _find(self, tenant: str, digest: str) -> tuple[RequestId, Record] | None:
        request_id = await find_answer(self._node, tenant, digest, bound_s=_BOUND_S)
        if request_id is None:
            return None
        record = await read_record(self._node, request_id, bound_s=_BOUND_S)
        # Its end may be told before it is on record: until then the cache does not know it.
        if (
            record is None
            or record.tenant != tenant
            or record.status is not RequestStatus.FINISHED
        ):
            return None
        return request_id, record

    def _tell(self, story: Story, prepared: Prepared, *, is_hit: bool) -> None:
        result = "hit" if is_hit else "miss"
        story.span.set_attribute(HEADRACE_RESPONSE_CACHE, result)
        labels = {**model_labels(prepared.request.model), "result": result}
        self._metrics.response_cache_lookups.add(1, labels)
