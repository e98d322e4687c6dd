"""Memory and file descriptors of each process over its life: whatever survives many faults must not have grown by them."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from tests.chaos.cluster import Cluster
from tests.support.process_sizes import sizes_of

_INTERVAL_S = 3.0
# What a process takes while it starts, and caches that fill, say nothing.
_WARM_UP_S = 15.0
# A pool of connections to Redis keeps what was needed at once when Redis was away: a call of each client, and the
# goodbyes of those that left. Redis has the other ends of all of them.
_MOST_MORE_FDS = {"redis": 192}
_MORE_FDS = 72
# A model's KV memory is touched as it is used; Redis keeps results for ten minutes.
_MOST_MORE_MB = {"redis": 64.0}
_MORE_MB, _MORE_MODEL_MB = 24.0, 250.0


@dataclass
class Life:
    """One process: what it had when it was warm, at most, and last."""

    name: str
    pid: int
    age_s: float = 0.0
    warm: tuple[float, int] | None = None
    most: tuple[float, int] = (0.0, 0)
    last: tuple[float, int] = (0.0, 0)

    def saw(self, now: tuple[float, int], age_s: float) -> None:
        """A look at it."""
        self.age_s = age_s
        self.last = now
        self.most = (max(self.most[0], now[0]), max(self.most[1], now[1]))
        if self.warm is None and age_s >= _WARM_UP_S:
            self.warm = now

    def __str__(self) -> str:
        warm = self.warm or (0.0, 0)
        return (
            f"{self.name:12s} {self.age_s:6.0f} s   {warm[0]:6.1f} → {self.last[0]:6.1f} MB"
            f" (most {self.most[0]:6.1f})   {warm[1]:3d} → {self.last[1]:3d} fds (most {self.most[1]})"
        )


class Growth:
    """Looks at all processes now and then."""

    def __init__(self, cluster: Cluster, *, is_real: bool) -> None:
        self._cluster = cluster
        self._worker_mb = _MORE_MODEL_MB if is_real else _MORE_MB
        self._lives: dict[int, Life] = {}
        self._since_s: dict[int, float] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_INTERVAL_S)

    def look(self) -> None:
        """Once."""
        now_s = asyncio.get_running_loop().time()
        for name, pid in self._pids():
            try:
                now = sizes_of(pid)
            except OSError:
                continue  # gone between the two looks
            life = self._lives.setdefault(pid, Life(name, pid))
            life.saw(now, now_s - self._since_s.setdefault(pid, now_s))

    def survivors(self) -> list[Life]:
        """Processes that live now and were warm once."""
        alive = {pid for _, pid in self._pids()}
        return [
            life for pid, life in self._lives.items() if pid in alive and life.warm is not None
        ]

    def problems(self) -> Iterator[str]:
        """What has grown beyond what caches explain."""
        for life in self.survivors():
            assert life.warm is not None
            if life.last[1] - life.warm[1] > _MOST_MORE_FDS.get(life.name, _MORE_FDS):
                yield f"file descriptors grew: {life}"
            is_worker = life.name.startswith("worker")
            most_mb = self._worker_mb if is_worker else _MOST_MORE_MB.get(life.name, _MORE_MB)
            if life.last[0] - life.warm[0] > most_mb:
                yield f"memory grew: {life}"

    def _pids(self) -> Iterator[tuple[str, int]]:
        """Who serves now; one that a fault acts on may still be starting."""
        for member in self._cluster.members:
            if member.is_running and not member.busy.locked():
                yield member.name, member.process.pid
        try:
            yield "redis", self._cluster.redis.pid
        except AssertionError:
            return  # killed at the moment
