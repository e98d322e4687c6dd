"""Properties of plans over random queues and workers."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from common.domain import Priority
from scheduler.planning.open_order import order_of_service
from scheduler.planning.output_lengths import OutputLengths
from scheduler.planning.plan import Plan, WorkerView, plan
from scheduler.planning.queue import WaitingQueue
from scheduler.planning.settings import PlanningSettings
from scheduler.planning.waiting import WaitingRequest
from tests.support.planning import assigned, make_queue, make_request, make_worker

NOW_S = 100.0

# Beginnings of texts: groups that share some, and who holds them.
PREFIXES = [(), (1,), (1, 2, 3), (1, 2, 4, 5), (6, 7, 8, 9, 10)]
MAX_CHOICES = 3

requests = st.builds(
    lambda number, tenant, priority, tokens, done, max_tokens, age_s, left_s, has_deadline, lane, hold, prefix, choices: (
        make_request(
            f"r{number}",
            tenant=tenant,
            priority=priority,
            prompt_tokens=tokens,
            known_tokens=tokens + done,
            max_tokens=done + max_tokens,
            arrival_s=NOW_S - age_s,
            deadline_s=NOW_S + left_s,
            has_deadline=has_deadline,
            fingerprint=lane[0],
            model_revision=lane[1],
            hold=hold,
            prefix=prefix[: tokens // 16],
            num_choices=choices,
        )
    ),
    st.integers(0, 10_000),
    st.sampled_from("xyz"),
    st.sampled_from(Priority),
    st.integers(1, 1500),
    st.integers(0, 100),
    st.integers(1, 400),
    st.floats(0, 99),
    st.floats(-2, 600),
    st.booleans(),
    st.sampled_from([(None, ""), (None, "r"), ("f", "r"), ("g", "r"), (None, "s")]),
    st.booleans(),
    st.sampled_from(PREFIXES),
    st.integers(1, MAX_CHOICES),
)
queues = st.lists(requests, max_size=40, unique_by=lambda request: request.request_id)
workers = st.builds(
    lambda number, seqs, blocks, pending, running, fingerprint, draining: make_worker(
        f"w{number}",
        free_seqs=seqs,
        free_blocks=blocks,
        pending_prefill_tokens=pending,
        num_running=running,
        fingerprint=fingerprint,
        draining=draining,
        kv_blocks=max(blocks, 200),
    ),
    st.integers(0, 99),
    st.integers(0, 8),
    st.integers(0, 200),
    st.integers(0, 1200),
    st.integers(0, 3),
    st.sampled_from(["f", "g"]),
    st.booleans(),
)
fleets = st.lists(workers, max_size=4, unique_by=lambda worker: worker.worker_id)
caches = st.lists(st.sampled_from(PREFIXES), max_size=4)


def filled(waiting: list[WaitingRequest], fleet: list[WorkerView], held: list[tuple[int, ...]]):
    """A queue whose index knows what the first workers of a fleet hold."""
    queue = make_queue()
    for worker, blocks in zip(fleet, held, strict=False):
        queue.prefixes.update(worker.worker_id, blocks, ())
    for request in waiting:
        queue.add(request)
    return queue


@given(queues, fleets, caches)
@settings(max_examples=200)
def test_a_plan_is_valid(waiting, fleet, held):
    """Nothing is assigned twice, after its deadline, to the wrong worker, or beyond what the worker can take."""
    made = plan(filled(waiting, fleet, held), fleet, NOW_S)
    by_id = {request.request_id: request for request in waiting}
    picked = assigned(made)
    assert len(picked) == len(set(picked))
    assert set(made.expired) == {r.request_id for r in waiting if r.deadline_s <= NOW_S}
    assert not set(picked) & {*made.expired, *made.refused}
    for batch in made.assignments:
        worker = next(w for w in fleet if w.worker_id == batch.worker_id)
        cached = [pick.cached_tokens for pick in batch.picks]
        _check_batch(worker, [by_id[request_id] for request_id in batch.request_ids], cached)


def _check_batch(worker: WorkerView, batch: list[WaitingRequest], cached: list[int]) -> None:
    assert not worker.draining
    assert 0 < sum(request.num_choices for request in batch) <= worker.free_seqs
    assert all(worker.serves(request.lane_key) for request in batch)
    assert all(0 <= n < r.known_tokens for n, r in zip(cached, batch, strict=True))
    *others, last = batch
    computed = sum(r.known_tokens - n for r, n in zip(others, cached, strict=False))
    pending = worker.pending_prefill_tokens + computed
    two_steps = 2 * worker.max_batch_tokens
    assert pending + last.known_tokens <= two_steps or pending < worker.max_batch_tokens
    lengths = OutputLengths(PlanningSettings())
    blocks = sum(_blocks(r.known_tokens + lengths.reserve(r)) + r.num_choices - 1 for r in batch)
    alone_on_idle = len(batch) == 1 and worker.num_running == 0
    assert blocks <= worker.free_blocks or (
        alone_on_idle
        and _blocks(last.known_tokens + 1) + last.num_choices - 1 <= worker.free_blocks
    )


def _blocks(tokens: int) -> int:
    return -(-tokens // 16)


@given(queues, fleets, caches)
def test_a_plan_is_deterministic(waiting, fleet, held):
    """The same queue, workers and time give the same plan; and planning twice changes no order."""
    first, second = filled(waiting, fleet, held), filled(waiting, fleet, held)
    assert plan(first, fleet, NOW_S) == plan(second, fleet, NOW_S)
    assert order_of_service(first, 100) == order_of_service(second, 100)
    assert len(first) == len(waiting)


@given(queues, fleets)
def test_the_next_look_is_in_the_future(waiting, fleet):
    """A plan never asks to be looked at again at once: that would be a busy loop."""
    made = plan(make_queue(*waiting), fleet, NOW_S)
    assert made.look_again_s is None or made.look_again_s > NOW_S


@given(queues, workers, caches)
@settings(max_examples=200)
def test_an_idle_worker_does_not_idle_beside_work_it_can_do(waiting, worker, held):
    """Work conservation: an idle worker with room for every waiting request gets some, or all that it may run."""
    worker = replace(
        worker,
        num_running=0,
        draining=False,
        free_seqs=MAX_CHOICES,
        free_blocks=1000,
        pending_prefill_tokens=0,
    )
    made = plan(filled(waiting, [worker], held), [worker], NOW_S)
    runnable = [r for r in waiting if worker.serves(r.lane_key) and r.deadline_s > NOW_S]
    assert bool(assigned(made)) == bool(runnable)


@given(queues)
def test_the_first_pick_is_the_head_of_the_order(waiting):
    """With room for everything, what comes first in the queue is picked first: no class is inverted."""
    queue = make_queue(
        *(replace(r, fingerprint=None, deadline_s=900.0, model_revision="") for r in waiting)
    )
    made = plan(queue, [make_worker(free_blocks=10_000)], NOW_S)
    assert assigned(made)[:1] == [r.request_id for r in order_of_service(queue, 1)]


@given(
    st.lists(st.tuples(st.integers(1, 600), st.sampled_from(Priority)), min_size=5, max_size=40)
)
@settings(max_examples=60, deadline=None)
def test_no_request_starves(stream):
    """Whatever keeps arriving, each request starts within its patience plus a turn for each that is overdue before it.

    A worker with two slots finishes both each second, while a new request of any class and length arrives each
    half second, so the queue never shrinks.
    """
    queue = make_queue(patience_s=dict.fromkeys(Priority, 2.0), max_overtaken=2)
    queue.add(make_request("low", priority=Priority.BATCH, tokens=900, arrival_s=0.0))
    now_s = 0.0
    for round_number in range(60):
        now_s = float(round_number)
        for half in range(2):
            tokens, priority = stream[(2 * round_number + half) % len(stream)]
            queue.add(
                make_request(
                    f"{round_number}.{half}",
                    tokens=tokens,
                    priority=priority,
                    arrival_s=now_s + half / 2,
                )
            )
        _serve(queue, plan(queue, [make_worker(free_seqs=2, free_blocks=80, kv_blocks=80)], now_s))
        if "low" not in queue:
            break
    # Overdue after 2 s, then the next turn of eight picks, which take 4 s, plus a worker that is kept for its size.
    assert now_s <= 12, now_s


@given(
    st.lists(
        st.tuples(st.integers(1, 600), st.sampled_from(Priority), st.integers(0, 5)),
        min_size=5,
        max_size=40,
    ),
    st.sampled_from(Priority),
    st.integers(1, 700),
    st.integers(1, 2),
)
@settings(max_examples=60, deadline=None)
def test_no_flood_of_tenants_starves_anybody(stream, priority, tokens, choices):
    """Beside a flood of important requests of ever new tenants, who would all be served first, everybody is served.

    Two slots become free each second and four requests come, whose prompts the worker has cached. The victim's tenant
    was served much already, nothing of it is cached, and it may need both slots: so neither class, share, length nor
    place helps it, only every k-th pick. It is due after its patience, and nobody else's runs out earlier.
    """
    queue = make_queue(
        patience_s=dict.fromkeys(Priority, 2.0),
        max_overtaken=2,
        overdue_every=4,
        fairness_quantum_tokens=1,
    )
    for level in Priority:
        queue.charge(level, "victim", generated_tokens=10**6)
    queue.prefixes.update("w", (1, 2), ())
    queue.add(
        make_request(
            "victim", tenant="victim", priority=priority, tokens=tokens, num_choices=choices
        )
    )
    now_s = 0.0
    for second in range(60):
        now_s = float(second)
        for number in range(4):
            length, flood_priority, tenant = stream[(4 * second + number) % len(stream)]
            queue.add(
                make_request(
                    f"{second}.{number}",
                    tenant=f"{second}.{tenant}",
                    tokens=length,
                    priority=flood_priority,
                    arrival_s=now_s,
                    prefix=(1, 2),
                )
            )
        _serve(queue, plan(queue, [make_worker(free_seqs=2, free_blocks=80, kv_blocks=80)], now_s))
        if "victim" not in queue:
            break
    # Overdue after 2 s, then a turn of four picks, which take 2 s, plus a worker that is kept for its size.
    assert now_s <= 8, now_s


@given(queues.filter(bool), st.integers(0, 39), st.sampled_from(Priority))
def test_more_importance_never_means_later(waiting, which, raised):
    """Monotone priority: the same request in a higher class has no later place in the order of service."""
    chosen = waiting[which % len(waiting)]
    higher = max(raised, chosen.priority)
    before = order_of_service(make_queue(*waiting), 100)
    others = [replace(r, priority=higher) if r is chosen else r for r in waiting]
    after = order_of_service(make_queue(*others), 100)
    assert _place(after, chosen.request_id) <= _place(before, chosen.request_id)


def _place(order: list[WaitingRequest], request_id: str) -> int:
    return [request.request_id for request in order].index(request_id)


def _serve(queue: WaitingQueue, made: Plan) -> None:
    for request_id in assigned(made):
        queue.start(request_id)


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=60),
    st.integers(0, 5),
)
def test_a_head_is_overtaken_at_most_k_times(free, max_overtaken):
    """However the room varies, at most K requests start before a head that never fits while they do."""
    queue = make_queue(
        make_request("head", tokens=320),
        *(make_request(f"s{n}", arrival_s=1.0) for n in range(60)),
        max_overtaken=max_overtaken,
    )
    started = 0
    for num_free in free:
        made = plan(
            queue, [make_worker(num_running=3, free_seqs=num_free, free_blocks=2 * num_free)], 2.0
        )
        started += len(assigned(made))
        _serve(queue, made)
    assert started <= max_overtaken
    assert assigned(plan(queue, [make_worker(num_running=1, free_blocks=22)], 2.0))[0] == "head"


@given(queues)
def test_everything_is_served_in_the_end(waiting):
    """Planning and carrying out until nothing changes empties the queue of all that the workers may run."""
    queue = make_queue(*waiting, batch_window_ms=0.0)
    fleet = [make_worker("a"), make_worker("b", fingerprint="g", model_revision="s")]
    while picked := assigned(made := plan(queue, fleet, NOW_S)):
        for request_id in picked:
            queue.remove(request_id)
    left = {r.request_id for r in order_of_service(queue, 100)}
    runnable = {r.request_id for r in waiting if any(w.serves(r.lane_key) for w in fleet)}
    assert left & runnable == set(made.expired) & runnable


def test_default_settings_are_sound():
    """The defaults pass their own checks."""
    assert PlanningSettings().batch_window_s == 0
    assert PlanningSettings(batch_window_ms=10.0).batch_window_s == 0.010
