"""Requests to admit, for tests of what happens to them in Redis."""

from common.domain import OrderingHeader, Partition, Priority, RequestId
from common.streams.admission import QueueBounds, Submission
from common.wire.request import encode_header

ROOMY = QueueBounds(max_requests=1000, max_tokens=1_000_000)


def make_submission(
    partition: Partition,
    *,
    tokens: int = 10,
    log: str = "g1",
    priority: Priority = Priority.NORMAL,
) -> Submission:
    """A request of one follower, `<log>:a`, with a new id."""
    return Submission(
        request_id=RequestId(partition, RequestId.make("x", 1).unique),
        priority=priority,
        tenant="t",
        prompt_tokens=tokens,
        budget_ms=60_000,
        log=log,
        start="0-0",
        follower=f"{log}:a",
        header=encode_header(OrderingHeader("t", priority, tokens, 5)),
        body=b"body",
        resume_grace_ms=0,
    )
