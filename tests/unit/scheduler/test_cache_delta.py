"""What a worker tells of its prefix cache, as the scheduler reads and keeps it."""

from common.wire.session import CacheDelta, said_from_pb
from headrace.internal.v1 import worker_service_pb2 as pb
from scheduler.planning.prefixes import PrefixIndex


def test_a_delta_is_read_as_it_was_sent() -> None:
    """Hashes of eight bytes, evictions before additions."""
    said = said_from_pb(
        pb.ConnectRequest(cache_delta=pb.CacheDelta(added=[2**64 - 1, 5], evicted=[7]))
    )
    assert isinstance(said, CacheDelta)
    assert (list(said.evicted), list(said.added)) == ([7], [2**64 - 1, 5])


def test_what_is_held_is_counted() -> None:
    """Evictions come before additions: what is in both is held."""
    index = PrefixIndex()
    index.update("w", [1, 2, 3], [])
    index.update("w", [3], [2, 3])
    assert index.num_held("w") == 2
    index.forget("w")
    assert index.num_held("w") == 0
