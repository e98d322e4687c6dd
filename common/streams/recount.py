"""Admission counters, put right by whoever leads (script ``recount``)."""

from common import keys
from common.domain import Partition, Priority
from common.streams.node import Node, decoded
from common.streams.scripts import ScriptCall, run_script

# A script that walks so many entries keeps its node for some ten milliseconds.
MAX_ENTRIES = 10_000


async def recount(
    node: Node, partition: Partition, *, bound_s: float, max_entries: int = MAX_ENTRIES
) -> int:
    """Count what waits; how many counters had been wrong. A class with more entries is left as it is.

    Raises:
        Unavailable: no definite answer within ``bound_s``; repeating it is harmless.
    """
    answer = await run_script(
        node,
        ScriptCall(
            "recount",
            [keys.queued(partition), *(keys.inbox(partition, priority) for priority in Priority)],
            [
                keys.record_prefix(partition),
                max_entries,
                *(priority.name.lower() for priority in Priority),
            ],
        ),
        bound_s=bound_s,
    )
    return int(decoded(answer)[0])
