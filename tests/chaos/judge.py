"""Every answer that came: against the undisturbed run, against the record, and hidden from other tenants."""

from collections.abc import Mapping, Sequence

from headrace.client import AsyncClient, HeadraceError
from headrace.v1 import inference_service_pb2 as pb
from tests.chaos.cached import Answered
from tests.chaos.calls import Calls
from tests.chaos.checks import NEVER, Cut, compare, insisting
from tests.chaos.journal import Journal
from tests.chaos.records import check_record
from tests.support.outcomes import Outcome


class Judge:
    """Of all answers of a run."""

    def __init__(self, journal: Journal, clients: Mapping[str, Sequence[AsyncClient]]) -> None:
        """`clients`: of each tenant."""
        self._journal = journal
        self._clients = clients
        self._answered = {tenant: Answered(journal) for tenant in clients}

    async def check(
        self, calls: Calls, asked: pb.GenerateRequest, outcome: Outcome, cut: Cut = NEVER
    ) -> None:
        """What `calls` got for `asked`; `cut`: how it may have ended before the answer did."""
        self._journal.counts["requests"] += 1
        if outcome.error is not None and cut is not NEVER:
            self._journal.counts["requests cut"] += 1
        for wrong in compare(calls.known, outcome, cut):
            self._journal.fail(wrong, calls.history)
        self._journal.counts["attempts"] += outcome.timings.attempts
        if outcome.request_id:
            answered = self._answered[calls.tenant]
            answered.check(asked, calls.known.model, outcome, calls.history)
            await check_record(
                self._journal, calls.any_client(), calls.known, outcome, calls.history, cut
            )
            await self._check_hidden(calls, outcome.request_id)

    async def _check_hidden(self, calls: Calls, request_id: str) -> None:
        """For another tenant there is no such request."""
        own = self._clients[calls.tenant]
        stranger = next(
            c for clients in self._clients.values() if clients is not own for c in clients
        )
        try:
            await insisting(self._journal, lambda: stranger.get_request(request_id))
        except HeadraceError as error:
            if error.code == "NOT_FOUND":
                return
            raise
        self._journal.fail("another tenant sees the request", calls.history)
