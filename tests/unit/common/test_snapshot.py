"""Leaders' snapshots, as another version may have written them."""

import pytest

from common.wire.records import UndecodableError
from common.wire.snapshot import decode_status
from headrace.internal.v1 import records_pb2 as pb


@pytest.mark.parametrize("status", [0, 99])
def test_a_status_that_nobody_here_knows_is_undecodable_by_name(status: int):
    """So that readers do without the snapshot, as they do without one that is late."""
    snapshot = pb.PartitionStatus(oldest=[pb.OpenRequest(request_id="r", status=status)])  # type: ignore[arg-type]
    with pytest.raises(UndecodableError):
        decode_status(snapshot.SerializeToString())
