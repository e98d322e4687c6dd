"""Retries: only where the server says so, never twice the work, and within a budget."""

from headrace.client.errors import InternalFailure, ResourceExhausted, Unavailable
from headrace.client.retry import Retries, RetryPolicy
from headrace.v1 import inference_service_pb2 as pb

PLAIN, KEYED = pb.GenerateRequest(), pb.GenerateRequest(idempotency_key="k")
FULL = ResourceExhausted("full", code="RESOURCE_EXHAUSTED", retry_after_s=2.0)
AWAY = Unavailable("away", code="UNAVAILABLE", retry_after_s=1.0)


def test_only_where_the_server_says_that_it_helps() -> None:
    """A quota that is too small for ever, a failure, or a delay beyond patience end the call."""
    retries = Retries(RetryPolicy())
    assert retries.next_pause_s(PLAIN, FULL, 1) == 2.0
    never = ResourceExhausted("too large", code="RESOURCE_EXHAUSTED")
    assert retries.next_pause_s(PLAIN, never, 1) is None
    assert retries.next_pause_s(KEYED, InternalFailure("x", code="INTERNAL"), 1) is None
    late = ResourceExhausted("full", code="RESOURCE_EXHAUSTED", retry_after_s=3600.0)
    assert retries.next_pause_s(PLAIN, late, 1) is None


def test_what_may_have_been_accepted_needs_a_key() -> None:
    """Otherwise a lost answer would be generated twice."""
    retries = Retries(RetryPolicy())
    assert retries.next_pause_s(PLAIN, AWAY, 1) is None
    assert retries.next_pause_s(KEYED, AWAY, 1) == 1.0


def test_attempts_and_budget_end() -> None:
    """When most calls fail, the client stops adding to it; success earns retries again."""
    retries = Retries(RetryPolicy(max_attempts=3, budget=2.0, earned_per_success=0.5))
    assert retries.next_pause_s(PLAIN, FULL, 3) is None
    assert [retries.next_pause_s(PLAIN, FULL, 1) for _ in range(3)] == [2.0, 2.0, None]
    for _ in range(2):
        retries.succeeded()
    assert [retries.next_pause_s(PLAIN, FULL, 1) for _ in range(2)] == [2.0, None]


def test_without_a_policy_nothing_is_retried() -> None:
    """As long as nobody asks for it."""
    assert Retries(None).next_pause_s(KEYED, FULL, 1) is None
