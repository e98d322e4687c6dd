"""The one worker that is kept for requests that run alone, from the moment at which nothing joins it any more."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scheduler.planning.fit import WorkerView


@dataclass(slots=True)
class KeptWorker:
    """Which worker, since when, and until when the others come first. '' and False while there is none."""

    worker_id: str = ""
    is_running: bool = False
    since_s: float = 0.0
    rests_until_s: float = float("-inf")

    def look(self, workers: Iterable[WorkerView], now_s: float) -> None:
        """See what has become of it."""
        view = next((worker for worker in workers if worker.worker_id == self.worker_id), None)
        if self.is_running and (view is None or not view.runs_alone):
            self.rests_until_s = now_s + (now_s - self.since_s)
            self.release_always()
        elif view is None:
            self.release_always()

    def choose(self, able: Sequence[WorkerView], now_s: float) -> str | None:
        """The worker that is kept, if it is ``able``; else one of these, unless the others come first now."""
        if self.worker_id:
            return self.worker_id if any(w.worker_id == self.worker_id for w in able) else None
        if not able or now_s < self.rests_until_s:
            return None
        nearest = min(able, key=lambda worker: (worker.num_running, worker.worker_id))
        self.worker_id, self.since_s = nearest.worker_id, now_s
        return self.worker_id

    def begin(self, worker: WorkerView) -> None:
        """A request begins to run alone on ``worker``."""
        if worker.worker_id == self.worker_id:
            self.is_running = True

    def release(self) -> None:
        """Nobody needs it any more, unless its run has begun."""
        if not self.is_running:
            self.release_always()

    def release_always(self) -> None:
        """There is none."""
        self.worker_id, self.is_running = "", False

    def next_s(self, now_s: float) -> float | None:
        """When the others have had their time, if somebody waits for that."""
        return self.rests_until_s if self.rests_until_s > now_s else None
