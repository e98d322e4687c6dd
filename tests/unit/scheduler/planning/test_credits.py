"""Workers get what suits them: by speed, by pool, by what they serve; and what waits, waits here and not there."""

from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.planning.fit import WorkerView
from scheduler.planning.plan import plan
from scheduler.planning.queue import WaitingQueue
from tests.support.planning import make_queue, make_request, make_worker

if TYPE_CHECKING:
    from scheduler.planning.waiting import WaitingRequest

SLOTS = 8


class Fleet:
    """Workers whose running requests end at their own pace, ``per_round`` of each."""

    def __init__(self, per_round: dict[str, int]) -> None:
        self._per_round = per_round
        self._running: dict[str, list[WaitingRequest]] = {name: [] for name in per_round}
        self.started = dict.fromkeys(per_round, 0)

    def views(self) -> list[WorkerView]:
        return [
            make_worker(name, free_seqs=SLOTS - len(running), num_running=len(running))
            for name, running in self._running.items()
        ]

    def round(self, queue: WaitingQueue, now_s: float) -> None:
        """Plan, start, and end what each worker has time for."""
        for batch in plan(queue, self.views(), now_s).assignments:
            for request_id in batch.request_ids:
                request = queue.start(request_id)
                assert request is not None
                self._running[batch.worker_id].append(request)
                self.started[batch.worker_id] += 1
        for name, count in self._per_round.items():
            del self._running[name][:count]


def test_a_slow_worker_gets_less():
    """Beside one that is four times as fast it gets a quarter as many, behind what fills its slots once."""
    queue = make_queue(*(make_request(str(n), arrival_s=n / 1000) for n in range(400)))
    fleet = Fleet({"fast": 8, "slow": 2})
    for number in range(30):
        fleet.round(queue, 1.0 + number)
    assert fleet.started["slow"] <= SLOTS + 2 * 30
    assert fleet.started["fast"] >= 8 * 29


def test_without_a_backlog_the_faster_one_gets_more_too():
    """What arrives goes to whoever is less busy, and the slow one is busy with what it has."""
    queue, fleet = make_queue(), Fleet({"fast": 4, "slow": 1})
    for number in range(60):
        for part in range(4):
            queue.add(make_request(f"{number}.{part}", arrival_s=float(number)))
        fleet.round(queue, number + 0.5)
    assert fleet.started["fast"] > 2.5 * fleet.started["slow"]
    assert len(queue) <= 4


def test_a_small_pool_gets_what_fits_it():
    """Long prompts go where there is memory for them, short ones to both, and the small one is not passed over."""
    small = make_worker("s", free_blocks=30, kv_blocks=30)
    large = make_worker("l", max_batch_tokens=2048)
    short = [make_request(f"short{n}", tokens=40, max_tokens=40) for n in range(6)]
    long = [make_request(f"long{n}", tokens=600, max_tokens=40) for n in range(2)]
    made = plan(make_queue(*long, *short), [small, large], 1.0)
    by_worker = {batch.worker_id: batch.request_ids for batch in made.assignments}
    assert not [name for name in by_worker["s"] if name.startswith("long")]
    assert by_worker["s"]
    assert [name for name in by_worker["l"] if name.startswith("long")] == ["long0", "long1"]


def test_each_revision_goes_to_its_own_workers():
    """However idle those of another one are."""
    old, new = make_worker("o", model_revision="old"), make_worker("n", model_revision="new")
    waiting = [
        make_request(f"{revision}{n}", model_revision=revision)
        for revision in ("old", "new")
        for n in range(3)
    ]
    made = plan(make_queue(*waiting), [replace(old, free_seqs=1), new], 1.0)
    by_worker = {batch.worker_id: batch.request_ids for batch in made.assignments}
    assert by_worker == {"o": ("old0",), "n": ("new0", "new1", "new2")}


def test_what_waits_does_not_wait_at_workers():
    """However much waits and however many slots are free, a worker has two steps of prefill ahead at most."""
    queue = make_queue(*(make_request(str(n), tokens=100) for n in range(200)))
    roomy = make_worker(free_seqs=200, free_blocks=100_000, kv_blocks=100_000)
    (batch,) = plan(queue, [roomy], 1.0).assignments
    assert len(batch.picks) * 100 <= 2 * roomy.max_batch_tokens
    full = replace(roomy, pending_prefill_tokens=2 * roomy.max_batch_tokens)
    assert plan(queue, [full], 1.0).assignments == ()
