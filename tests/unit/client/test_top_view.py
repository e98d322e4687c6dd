"""`headrace top`: what a frame says of queues, tenants and workers."""

from google.protobuf.duration_pb2 import Duration

from headrace.cli.top_view import frame
from headrace.v1 import admin_service_pb2 as admin
from headrace.v1 import generation_pb2 as gen


def queue(**fields) -> admin.Queue:
    classes = [
        admin.QueueClass(
            priority=gen.PRIORITY_HIGH,
            num_waiting=2,
            waiting_tokens=70,
            oldest_age=Duration(seconds=3, nanos=250_000_000),
        ),
        admin.QueueClass(priority=gen.PRIORITY_BATCH, num_waiting=5, waiting_tokens=30),
    ]
    return admin.Queue(
        model="m",
        leader="s:1",
        classes=classes,
        num_running=4,
        num_workers=2,
        drain_rate=1.5,
        tokens_per_s=120.4,
        **fields,
    )


def worker(name: str, **fields) -> admin.Worker:
    return admin.Worker(
        worker_id=name,
        model="m",
        num_running=3,
        max_seqs=8,
        kv_blocks_used=25,
        kv_blocks=100,
        **fields,
    )


def cells(line: str) -> list[str]:
    return line.split()


def test_the_whole_is_the_sum_of_the_partitions():
    """One line for all, one for each partition, with waiting requests by class."""
    lines = frame([queue(), queue(partition=1)], [], "12:00:00")
    assert "waiting 14" in lines[0]
    assert "running 8" in lines[0]
    assert "3.0/s" in lines[0]
    assert "tokens 241/s" in lines[0]
    assert cells(lines[3]) == (
        ["m", "0", "s:1", "0", "2", "0", "5", "3.2s", "100", "4", "2", "1.5", "120"]
    )


def test_a_partition_without_a_leader_says_so():
    """Nothing is known of it, and that is what is shown."""
    lines = frame([admin.Queue(model="m")], [], "")
    assert cells(lines[3])[2] == "none"


def test_workers_that_need_a_look_stand_out():
    """Draining and stalled ones are named; KV memory is a bar."""
    lines = frame(
        [],
        [
            worker("a"),
            worker("b", draining=True),
            worker("c", last_step_age=Duration(seconds=9)),
        ],
        "",
    )
    states = {cells(line)[0]: cells(line)[-1] for line in lines[-3:]}
    assert states == {"a": "serving", "b": "draining", "c": "stalled"}
    assert "##........" in lines[-1]
    assert "25%" in lines[-1]


def test_many_tenants_are_a_few_lines():
    """The busiest by name, the rest together, nothing lost."""
    tenants = [admin.QueueTenant(tenant=f"t{n:02}", num_waiting=n) for n in range(12)]
    lines = frame([queue(tenants=tenants)], [], "")
    named = [cells(line) for line in lines if line.startswith("t")]
    assert [name for name, *_ in named] == [f"t{n:02}" for n in range(11, 3, -1)]
    (others,) = [line for line in lines if "others" in line]
    assert cells(others) == ["4", "others", "6", "0"]


def test_requests_that_are_open_longest_come_last():
    """The oldest of all partitions first, a few at most, with what one needs to look further."""
    open_for = [
        admin.OpenRequest(
            request_id=f"r{n}",
            tenant="blue",
            priority=gen.PRIORITY_HIGH,
            status=gen.REQUEST_STATUS_RUNNING if n else gen.REQUEST_STATUS_QUEUED,
            age=Duration(seconds=n),
            tokens=n,
            worker_id="w" if n else "",
        )
        for n in range(9)
    ]
    lines = frame([queue(oldest=open_for[:5]), queue(oldest=open_for[5:])], [], "")
    shown = [cells(line) for line in lines if "blue" in line]
    assert [name for name, *_ in shown] == [f"r{n}" for n in range(8, 0, -1)]
    assert shown[0] == ["r8", "blue", "high", "running", "8.0s", "8", "w"]
