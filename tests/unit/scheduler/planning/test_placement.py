"""Where a request goes when workers hold the beginning of its prompt."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scheduler.planning.plan import plan
from scheduler.planning.prefixes import PrefixIndex
from tests.support.planning import make_queue, make_request, make_worker

PREFIX = (11, 12, 13, 14)


def placed(made) -> dict[str, tuple[str, ...]]:
    """What each worker gets."""
    return {batch.worker_id: batch.request_ids for batch in made.assignments}


def cached(index: PrefixIndex, prefix) -> dict[str, int]:
    """How much each worker that anybody knows of holds."""
    names = ("a", "b", "c", "z")
    return {name: held for name in names if (held := index.num_cached(name, prefix))}


def test_the_index_follows_what_workers_report():
    """A chain counts up to its first gap, for each worker on its own; who left holds nothing."""
    index = PrefixIndex()
    index.update("a", [11, 12, 14], [])
    index.update("b", [11, 12, 13], [99])
    assert cached(index, PREFIX) == {"a": 2, "b": 3}
    assert list(index.holders(PREFIX)) == ["a", "b"]
    index.update("b", [], [12])
    assert cached(index, PREFIX) == {"a": 2, "b": 1}
    assert cached(index, [99]) == cached(index, []) == {}
    index.forget("a")
    index.forget("a")
    index.update("b", [], [11, 13])
    assert len(index) == 0


def test_what_is_evicted_and_added_again_in_one_report_is_held():
    """A report says what is true after it."""
    index = PrefixIndex()
    index.update("a", [11], [])
    index.update("a", [11], [11])
    assert cached(index, PREFIX) == {"a": 1}


def test_a_request_goes_where_its_prefix_is():
    """Though the other worker is first by name, and the reason says what is saved."""
    queue = make_queue(make_request("a", tokens=200, prefix=PREFIX))
    queue.prefixes.update("z", PREFIX, [])
    made = plan(queue, [make_worker("b"), make_worker("z")], 1.0)
    assert placed(made) == {"z": ("a",)}
    assert made.assignments[0].reason == "cached prefix, bucket <=256"
    assert made.assignments[0].picks[0].why == "first of its class, 64 tokens cached"


def test_a_busier_worker_gets_it_only_for_what_that_saves():
    """64 tokens are an eighth of a step: worth one slot of eight, not four."""
    queue = make_queue(make_request("a", tokens=200, prefix=PREFIX))
    queue.prefixes.update("z", PREFIX, [])
    idle = make_worker("b")
    made = plan(queue, [idle, make_worker("z", num_running=4, free_seqs=4)], 1.0)
    assert placed(made) == {"b": ("a",)}


def test_only_where_it_fits_and_is_served():
    """A full, an unequal, a drained and an unknown worker are passed over."""
    queue = make_queue(make_request("a", tokens=200, prefix=PREFIX, fingerprint="f"))
    for worker_id in ("full", "unequal", "drained", "gone", "b"):
        queue.prefixes.update(worker_id, PREFIX if worker_id != "b" else PREFIX[:1], [])
    workers = [
        make_worker("b"),
        make_worker("full", free_blocks=3),
        make_worker("unequal", fingerprint="g"),
        make_worker("drained", draining=True),
    ]
    made = plan(queue, workers, 1.0)
    assert placed(made) == {"b": ("a",)}
    assert made.assignments[0].picks[0].why == "first of its class, 16 tokens cached"


def test_load_is_counted_pick_by_pick():
    """A worker that holds a common beginning gets requests until it is the busier by what that saves."""
    queue = make_queue(
        *(make_request(f"r{n}", arrival_s=n / 100, tokens=64, prefix=PREFIX) for n in range(8))
    )
    queue.prefixes.update("z", PREFIX, [])
    made = plan(queue, [make_worker("b"), make_worker("z")], 1.0)
    shares = {worker_id: len(ids) for worker_id, ids in placed(made).items()}
    assert shares["z"] > shares["b"] > 0
    assert sum(shares.values()) == 8


def test_at_least_one_token_is_computed():
    """A prompt that is cached whole still costs its last token."""
    queue = make_queue(make_request("a", tokens=64, prefix=PREFIX))
    queue.prefixes.update("w", PREFIX, [])
    made = plan(queue, [make_worker()], 1.0)
    assert made.assignments[0].picks[0].why == "first of its class, 63 tokens cached"


def test_a_full_worker_that_got_something_for_its_prefix_gets_no_more():
    """Its turn comes with what it has by then."""
    queue = make_queue(
        *(make_request(f"r{n}", arrival_s=n / 100, tokens=64, prefix=PREFIX) for n in range(3))
    )
    queue.prefixes.update("z", PREFIX, [])
    made = plan(queue, [make_worker("b"), make_worker("z", free_seqs=1)], 1.0)
    assert placed(made) == {"z": ("r0",), "b": ("r1", "r2")}


def test_buckets_and_deadlines_go_by_what_is_left_to_compute():
    """A long prompt that is nearly cached is a short one, for its neighbours and for its deadline."""
    long = make_request("long", tokens=70, prefix=PREFIX)
    queue = make_queue(make_request("short", tokens=6), make_request("other", tokens=70))
    queue.prefixes.update("w", PREFIX, [])
    queue.add(long)
    made = plan(queue, [make_worker()], 1.0)
    assert placed(made) == {"w": ("short", "long", "other")}
    pressed = replace(long, request_id="pressed", deadline_s=2.0, has_deadline=True)
    unknown = replace(pressed, request_id="unknown", prefix=())
    queue.pace.prefilled(10, 1.0)
    for request in (pressed, unknown):
        queue.add(request)
    assert list(plan(queue, [], 1.0).expired) == ["unknown"]


def test_few_of_many_holders_are_looked_at():
    """However many hold it, one of the first is found that is better than a worker without it."""
    queue = make_queue(make_request("a", tokens=70, prefix=PREFIX))
    workers = [make_worker(f"w{n:02}", num_running=1) for n in range(20)]
    for worker in workers:
        queue.prefixes.update(worker.worker_id, PREFIX, [])
    assert placed(plan(queue, [*workers, make_worker("idle")], 1.0)) == {"w00": ("a",)}


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.lists(st.integers(0, 5)),
            st.lists(st.integers(0, 5)),
            st.booleans(),
        )
    ),
    st.lists(st.integers(0, 5), max_size=6),
)
def test_the_index_equals_a_plain_model(reports, prefix):
    """Whatever is reported, the answer is that of a set per worker."""
    index, model = PrefixIndex(), {}
    for worker_id, added, evicted, leaves in reports:
        index.update(worker_id, added, evicted)
        model[worker_id] = (model.get(worker_id, set()) - set(evicted)) | set(added)
        if leaves:
            index.forget(worker_id)
            del model[worker_id]
    expected = {}
    for worker_id, held in model.items():
        length = next((n for n, block in enumerate(prefix) if block not in held), len(prefix))
        if length:
            expected[worker_id] = length
    assert cached(index, prefix) == expected
    assert set(expected) <= set(index.holders(prefix))
    assert index.longest(prefix) >= max(expected.values(), default=0)
    assert len(index) == len(set().union(*model.values()))
