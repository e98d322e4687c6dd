"""Reply logs: append, read on, read a range. A log's ids are positions on its own node only.

Marks keep the log from being trimmed: one per open request (its checkpoint) and one per reader (its position).
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from common import keys
from common.streams.node import BLOCK_MS, Node, decoded
from common.streams.scripts import ScriptCall, run_script
from common.streams.vault import Sealed

_PAGE = 256


class LostTailError(Exception):
    """The log does not hold an append that was confirmed: Redis has lost the log's end, and nothing was written."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One append: its position and its payload."""

    id: str
    payload: bytes


def id_ms(entry_id: str) -> int:
    """Milliseconds of a position, as marks hold them."""
    return int(entry_id.split("-", 1)[0])


def id_key(entry_id: str) -> tuple[int, int]:
    """A position as a sortable pair."""
    milliseconds, _, counter = entry_id.partition("-")
    return int(milliseconds), int(counter or 0)


async def append(
    node: Node,
    log: str,
    payload: bytes,
    marks: Mapping[str, int | None],
    *,
    last: str = "",
    bound_s: float | None = None,
) -> str:
    """Append ``payload`` (nothing when empty), move marks (None removes one), trim; answers the new id or ''.

    Repeated with the same bytes until the answer is definite: readers skip what they know. ``last`` is the id of the
    caller's last confirmed append, if it has to be there still.

    Raises:
        LostTailError: it is not.
        Unavailable: no definite answer within ``bound_s``.
    """
    pairs = [fact for name, ms in marks.items() for fact in (name, "" if ms is None else ms)]
    answer = await run_script(
        node,
        ScriptCall(
            "append",
            [keys.reply_log(log), keys.log_marks(log)],
            [Sealed(payload), keys.LOG_TTL_MS, last, *pairs],
        ),
        bound_s=bound_s,
    )
    (log_id,) = decoded(answer)
    if log_id == "lost":
        raise LostTailError(log)
    return log_id


async def read_on(node: Node, log: str, after: str) -> list[LogEntry]:
    """Entries behind ``after``, waiting up to BLOCK_MS for the first; empty also after a transient error."""
    answer = await node.read(
        lambda client: client.xread({keys.reply_log(log): after}, count=_PAGE, block=BLOCK_MS)
    )
    return [_entry(node, entry) for _, entries in (answer or []) for entry in entries]


async def read_range(node: Node, log: str, after: str, until: str) -> AsyncIterator[LogEntry]:
    """Entries behind ``after`` up to and with ``until``, in bounded pages."""
    start = f"({after}"
    while True:
        page = await node.call(
            lambda client, start=start: client.xrange(  # type: ignore[misc]
                keys.reply_log(log), start, until, count=_PAGE
            )
        )
        for entry in page:
            yield _entry(node, entry)
        if len(page) < _PAGE:
            return
        start = f"({page[-1][0].decode()}"


async def last_id(node: Node, log: str, *, bound_s: float | None = None) -> str:
    """Position of the newest entry; '0-0' when there is none."""
    page = await node.call(
        lambda client: client.xrevrange(keys.reply_log(log), count=1), bound_s=bound_s
    )
    return page[0][0].decode() if page else "0-0"


def _entry(node: Node, entry: tuple[bytes, dict[bytes, bytes] | None]) -> LogEntry:
    entry_id, fields = entry
    return LogEntry(entry_id.decode(), node.vault.open((fields or {}).get(b"b", b"")))
