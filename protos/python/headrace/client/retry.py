"""Whether a call that failed is made again: only where the server says that it helps, and never twice the work.

``generate`` of `client` and `aio_client` asks here, waits and calls again. A refusal by a full queue or a quota has accepted
nothing. A call that ended unavailable may have been accepted all the same, so it is repeated only under an idempotency key,
which makes one execution of both.
"""

import threading
from dataclasses import dataclass

from headrace.client.errors import HeadraceError
from headrace.v1 import inference_service_pb2 as pb

_CERTAINLY_REFUSED = "RESOURCE_EXHAUSTED"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and how much of all calls: when most fail, retries would only add to it."""

    max_attempts: int = 5
    """Of one call, the first among them."""
    longest_pause_s: float = 60.0
    """A server that asks for more patience is believed, and the call fails."""
    budget: float = 10.0
    """Retries that a client has to its name at most; each costs one,"""
    earned_per_success: float = 0.1
    """and each call that succeeds earns so much."""


class Retries:
    """The budget of one client. Safe to share between threads."""

    def __init__(self, policy: RetryPolicy | None) -> None:
        """Without a policy nothing is retried."""
        self._policy = policy
        self._left = 0.0 if policy is None else policy.budget
        self._lock = threading.Lock()

    def succeeded(self) -> None:
        """A call went well."""
        if self._policy is not None:
            with self._lock:
                self._left = min(self._policy.budget, self._left + self._policy.earned_per_success)

    def next_pause_s(
        self, request: pb.GenerateRequest, error: HeadraceError, attempt: int
    ) -> float | None:
        """The pause before the next attempt, when ``attempt`` (from 1) failed; None: the error stands."""
        policy, pause_s = self._policy, error.retry_after_s
        if policy is None or pause_s is None or pause_s > policy.longest_pause_s:
            return None
        if attempt >= policy.max_attempts:
            return None
        if error.code != _CERTAINLY_REFUSED and not request.idempotency_key:
            return None
        with self._lock:
            if self._left < 1.0:
                return None
            self._left -= 1.0
        return pause_s
