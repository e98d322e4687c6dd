"""Tenants' limits at admission: a request is counted before it is let in, by as much as it may use at most."""

from dataclasses import replace

from common.errors import QuotaExceeded
from common.metrics import Metrics, class_labels
from common.streams.following import read_status
from common.streams.node import Node
from common.streams.quota import LimitReached, release, reserve
from gateway.background import Background, until_found
from gateway.prepare import Prepared
from gateway.settings import LONGEST_LIFE_S

_BOUND_S = 2.0


class Quotas:
    """Reserves and gives back; the scheduler settles."""

    def __init__(self, node: Node, background: Background, metrics: Metrics) -> None:
        """What is given back is given back in ``background``."""
        self._node = node
        self._background = background
        self._metrics = metrics

    async def reserve(self, prepared: Prepared) -> Prepared:
        """The request, counted if its tenant has limits that count.

        Raises:
            QuotaExceeded: a limit is reached.
            Unavailable: Redis cannot be reached.
        """
        if not prepared.limits.are_counted:
            return prepared
        request = prepared.request
        try:
            reached = await reserve(
                self._node,
                request.tenant,
                prepared.id,
                prepared.most_tokens,
                prepared.limits,
                budget_s=prepared.budget_s,
                bound_s=_BOUND_S,
            )
        except BaseException:
            self.release_unless_admitted(prepared)
            raise
        if reached is not None:
            labels = class_labels(request.model, request.priority)
            self._metrics.admission_refusals.add(1, {**labels, "reason": "QUOTA_EXCEEDED"})
            raise _exceeded(prepared, reached)
        return replace(prepared, is_reserved=True)

    def release(self, prepared: Prepared) -> None:
        """It was refused after all."""
        if prepared.is_reserved:
            self._background.start(
                release(self._node, prepared.request.tenant, prepared.id, bound_s=None),
                f"release quota of {prepared.id}",
                within_s=LONGEST_LIFE_S,
            )

    def release_unless_admitted(self, prepared: Prepared) -> None:
        """Nobody knows whether it was counted, or admitted: as soon as Redis can tell, only what was let in counts."""
        if prepared.limits.are_counted:
            self._background.start(
                self._release_unless_admitted(prepared),
                f"release quota of {prepared.id} unless admitted",
                within_s=LONGEST_LIFE_S,
            )

    async def _release_unless_admitted(self, prepared: Prepared) -> None:
        async def is_admitted() -> bool:
            return await read_status(self._node, prepared.id, bound_s=None) is not None

        if not await until_found(is_admitted):
            await release(self._node, prepared.request.tenant, prepared.id, bound_s=None)


def _exceeded(prepared: Prepared, reached: LimitReached) -> QuotaExceeded:
    most = getattr(prepared.limits, reached.limit)
    facts = {"limit_value": str(most)}
    if reached.limit == "tokens_per_minute":
        facts["tokens_asked_for"] = str(prepared.most_tokens)
    return QuotaExceeded(
        f"the tenant's limit of {most} {reached.limit.replace('_', ' ')} is reached",
        subject=f"tenant:{prepared.request.tenant}",
        limit=reached.limit,
        metadata=facts,
        retry_after_s=reached.retry_after_s,
    )
