"""How long answers get, learned from those that ended: by tenant, from all tenants where one has ended too few.

Held back for a request is what about five in six of its kind stay under: mean and mean deviation, both following the
last fifty or so. Before anything is known it is a setting, and never more than the request may generate.
"""

from collections import OrderedDict
from dataclasses import dataclass

from scheduler.planning.settings import PlanningSettings
from scheduler.planning.waiting import WaitingRequest

_WEIGHT = 1 / 32
_MIN_SEEN = 16
_MAX_TENANTS = 4096


@dataclass(slots=True)
class _Seen:
    """Answers of one kind."""

    count: int = 0
    mean: float = 0.0
    deviation: float = 0.0

    def add(self, tokens: int) -> None:
        self.count += 1
        # An average of all at first, then of the last ones.
        weight = max(_WEIGHT, 1 / self.count)
        distance = tokens - self.mean
        self.mean += weight * distance
        self.deviation += weight * (abs(distance) - self.deviation) if self.count > 1 else 0.0


class OutputLengths:
    """What is known of lengths. It learns only, so that the same ends in the same order give the same plans."""

    def __init__(self, settings: PlanningSettings) -> None:
        """Nothing is known."""
        self._settings = settings
        self._all = _Seen()
        self._by_tenant: OrderedDict[str, _Seen] = OrderedDict()

    def learn(self, tenant: str, generated_tokens: int) -> None:
        """A request ended by itself after so many tokens."""
        seen = self._by_tenant.get(tenant)
        if seen is None:
            seen = self._by_tenant[tenant] = _Seen()
            if len(self._by_tenant) > _MAX_TENANTS:
                self._by_tenant.popitem(last=False)
        self._by_tenant.move_to_end(tenant)
        for one in (seen, self._all):
            one.add(generated_tokens)

    def likely(self, tenant: str) -> float:
        """Tokens that most answers stay under."""
        seen = self._by_tenant.get(tenant)
        if seen is None or seen.count < _MIN_SEEN:
            seen = self._all
        if seen.count < _MIN_SEEN:
            return self._settings.reserve_tokens
        return seen.mean + 1.25 * seen.deviation

    def reserve(self, request: WaitingRequest) -> int:
        """Tokens to hold back for what a waiting request will still generate."""
        generated = request.known_tokens - request.prompt_tokens
        return self.left(request.tenant, generated, request.remaining_tokens, request.num_choices)

    def left(self, tenant: str, generated: int, remaining: int, num_choices: int = 1) -> int:
        """Tokens that a request probably still generates, having generated some and being allowed ``remaining`` more.

        Both are of all its choices together, which are taken for equally long. One that has passed what is likely is
        expected to go on for a while: a quarter of what it has.
        """
        likely = max(self.likely(tenant) * num_choices - generated, generated / 4, num_choices)
        return max(1, min(remaining, round(likely)))
