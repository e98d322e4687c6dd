"""What a scheduler knows of a worker's cache."""

from common.wire.session import CacheDelta, said_from_pb
from headrace.internal.v1 import worker_service_pb2 as pb
from scheduler.prefix_index import PrefixIndex


def test_it_follows_what_the_worker_tells() -> None:
    """The longest known beginning counts; a hole ends it."""
    index = PrefixIndex(max_blocks=10)
    index.update([], [1, 2, 3])
    assert index.longest([1, 2, 3, 4]) == 3
    index.update([2], [4])
    assert index.longest([1, 2, 3, 4]) == 1
    assert index.longest([9, 1]) == 0
    index.update([1], [1])
    assert index.longest([1]) == 1


def test_it_never_grows_beyond_the_worker() -> None:
    """A worker that says more than it has is forgotten from the oldest on."""
    index = PrefixIndex(max_blocks=3)
    index.update([], range(10))
    assert len(index) == 3
    assert [index.longest([n]) for n in range(10)] == [0] * 7 + [1] * 3


def test_a_delta_is_read_as_it_was_sent() -> None:
    """Hashes of eight bytes, evictions before additions."""
    said = said_from_pb(
        pb.ConnectRequest(cache_delta=pb.CacheDelta(added=[2**64 - 1, 5], evicted=[7]))
    )
    assert isinstance(said, CacheDelta)
    assert (list(said.evicted), list(said.added)) == ([7], [2**64 - 1, 5])
