"""Rule 4: inside a class the tenant that was served least comes first, by virtual counters of weighted tokens.

    counter += (prompt tokens * 1 + generated tokens * 2) / weight of the tenant

The prompt is charged when a request starts, what is generated as it is produced, each class on its own. A tenant that
comes (back) to a class is lifted to the least served one that waits there: idle time is no credit. Two tenants that
both wait can therefore never drift further apart than about one request of each, whatever they send.

Counters are compared in quanta: within one, the due time decides between tenants, so that small differences do not
undo the order of deadlines and arrival.
"""

from collections.abc import Callable

from common.domain import Priority
from scheduler.planning.settings import PlanningSettings

INPUT_WEIGHT = 1
OUTPUT_WEIGHT = 2
_MAX_IDLE = 10_000


class Fairness:
    """Counters by class and tenant."""

    def __init__(self, settings: PlanningSettings) -> None:
        """Nobody was served yet."""
        self._settings = settings
        self._served: dict[Priority, dict[str, float]] = {level: {} for level in Priority}
        self._waiting: dict[Priority, dict[str, int]] = {level: {} for level in Priority}
        self._floor = dict.fromkeys(Priority, 0.0)
        self._last_left: dict[Priority, str] = {}
        self._most_known = dict.fromkeys(Priority, _MAX_IDLE)

    def served(self, level: Priority, tenant: str) -> float:
        """The counter."""
        return self._served[level].get(tenant, self._floor[level])

    def rank_of(self, served: float) -> int:
        """A counter in quanta."""
        return int(served // self._settings.fairness_quantum_tokens)

    def cost(self, tenant: str, prompt_tokens: int = 0, generated_tokens: int = 0) -> float:
        """By how much these tokens move the tenant's counter."""
        tokens = INPUT_WEIGHT * prompt_tokens + OUTPUT_WEIGHT * generated_tokens
        return tokens / self._settings.tenant_weights.get(tenant, 1.0)

    def charge(self, level: Priority, tenant: str, cost: float) -> bool:
        """Add to a counter; whether its rank among tenants changes."""
        before = self.served(level, tenant)
        after = self._served[level][tenant] = before + cost
        return self.rank_of(after) != self.rank_of(before)

    def join(
        self, level: Priority, tenant: str, least_rank_of_all: Callable[[], int | None]
    ) -> None:
        """One more of the tenant's requests waits; ``least_rank_of_all`` knows the least served tenant's who waits."""
        waiting = self._waiting[level]
        waiting[tenant] = waiting.get(tenant, 0) + 1
        if waiting[tenant] > 1:
            return
        least = self._floor[level]
        least_rank = least_rank_of_all()
        if least_rank is not None:
            least = least_rank * float(self._settings.fairness_quantum_tokens)
        elif level in self._last_left:
            # Nobody waits: whoever comes stands where the last one is by now.
            least = self.served(level, self._last_left[level])
        self._floor[level] = max(self._floor[level], least)
        served = self._served[level]
        served[tenant] = max(served.get(tenant, 0.0), self._floor[level])

    def leave(self, level: Priority, tenant: str) -> None:
        """One request less of the tenant waits."""
        waiting = self._waiting[level]
        waiting[tenant] -= 1
        if waiting[tenant]:
            return
        del waiting[tenant]
        self._last_left[level] = tenant
        self._forget_idle(level)

    def _forget_idle(self, level: Priority) -> None:
        """Counters below the floor say nothing: whoever comes back is lifted to it."""
        served, waiting, floor = self._served[level], self._waiting[level], self._floor[level]
        if len(served) > self._most_known[level]:
            self._served[level] = kept = {
                tenant: count
                for tenant, count in served.items()
                if tenant in waiting or count > floor
            }
            # Each look is paid for by as many new tenants: amortized constant.
            self._most_known[level] = max(_MAX_IDLE, 2 * len(kept))
