"""The response cache as its callers see it: whose answer may be given again, and whether that is told."""

from headrace.v1 import inference_service_pb2 as pb
from tests.chaos.journal import History, Journal
from tests.support.outcomes import Outcome

# What an equal request may differ in (docs/api.md).
_NOT_COMPARED = (
    "priority",
    "timeout",
    "client_request_id",
    "labels",
    "bypass_prefix_cache",
    "resumable",
    "hold",
)


class Answered:
    """The requests of a tenant, and what each was asked."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._asked: dict[str, bytes] = {}
        self._own: set[str] = set()
        """Those that somebody was told as an answer of his own; whoever got it from the cache may be heard of earlier."""

    def check(
        self, asked: pb.GenerateRequest, model: str, outcome: Outcome, history: History
    ) -> None:
        """A hit bears the id of an equal request and says so, anything else an id of its own.

        That the text is the same is checked as for every answer. Of an id that is not known its client never heard.
        """
        compared = _compared(asked, model)
        first = self._asked.setdefault(outcome.request_id, compared)
        if asked.use_response_cache:
            kind = "hits" if outcome.is_from_cache else "misses"
            self._journal.counts[f"response cache {kind}"] += 1
        if outcome.is_from_cache:
            if not asked.use_response_cache:
                self._journal.fail("an answer from the cache that nobody asked for", history)
            if first != compared:
                self._journal.fail("the cache gives the answer to another request", history)
            return
        # Attach, which continues a stream that broke, follows the first request as itself; and so does a key.
        is_own = not asked.idempotency_key and not history.num_breaks
        if is_own and outcome.request_id in self._own:
            self._journal.fail("an earlier answer is not told as one", history)
        self._own.add(outcome.request_id)


def _compared(asked: pb.GenerateRequest, model: str) -> bytes:
    compared = pb.GenerateRequest()
    compared.CopyFrom(asked)
    for name in _NOT_COMPARED:
        compared.ClearField(name)  # type: ignore[arg-type]
    compared.model = model
    return compared.SerializeToString(deterministic=True)
