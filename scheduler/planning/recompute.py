"""What pre-emption may cost: a share of the tokens that are computed, so that it never takes over.

Every victim has to be computed again. Beside a standing queue of short urgent requests that would be most of the work;
with a budget, throughput falls by the share at most, and the others wait for a slot.
"""

from scheduler.planning.settings import PlanningSettings


class RecomputeBudget:
    """Tokens that may be computed twice."""

    def __init__(self, settings: PlanningSettings) -> None:
        """Full."""
        self._share = settings.recompute_share
        self._most = float(settings.recompute_burst_tokens)
        self.tokens = self._most

    def computed(self, tokens: int) -> None:
        """So many tokens were computed: a share of them may be again."""
        self.tokens = min(self._most, self.tokens + self._share * tokens)

    def spend(self, tokens: int) -> None:
        """So many are going to be computed again."""
        self.tokens -= tokens
