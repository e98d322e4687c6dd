"""Reads what former owners logged: from a request's checkpoint up to the first fence of ours, and no further.

    log   … t0 t1 | t2 (old) | FENCE e2 | t2' (old, a zombie's) | …
                  checkpoint ─────▶ here: t2 counts, t2' never will, for any reader

Only after that is anything decided about the request.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from common.log_fold import LogFold, LogGapError
from common.logs import Log
from common.records import FenceRecord, LogRecord
from common.streams import following, reply_log
from common.streams.node import Node
from common.wire.orders import open_body
from common.wire.records import UndecodableError, decode_log_batch
from scheduler.failures import damaged_log, undecodable
from scheduler.led_request import LedRequest
from scheduler.messages import Recovered
from scheduler.owned_tasks import OwnedTasks


@dataclass(slots=True)
class _Reading:
    """One request while its log is read. Its progress is nobody else's until the reading is over."""

    request: LedRequest
    after: tuple[int, int]
    fold: LogFold
    is_over: bool = False
    has_gap: bool = False

    def apply(self, entry_id: str, record: LogRecord) -> None:
        """One record of this request, in log order."""
        if self.is_over or reply_log.id_key(entry_id) <= self.after:
            return
        progress = self.request.progress
        progress.log_id = entry_id
        if isinstance(record.fact, FenceRecord) and record.epoch == self.request.epoch:
            self.is_over = True
            return
        try:
            fact = self.fold.apply(record)
        except LogGapError:
            self.is_over = self.has_gap = True
            return
        if fact is not None:
            progress.add(fact)


class TakeoverReader:
    """Reads logs beside the loop; each log in a task of its own, so that a slow one delays nobody else."""

    def __init__(self, node: Node, post: Callable[[Recovered], None], log: Log) -> None:
        """``post`` hears of each request's past."""
        self._node = node
        self._post = post
        self._log = log
        self._tasks: OwnedTasks | None = None

    def begin(self, tasks: OwnedTasks) -> None:
        """Readings run in ``tasks``."""
        self._tasks = tasks

    def recover(self, log: str, until_id: str, requests: Sequence[LedRequest]) -> None:
        """Read ``log`` up to ``until_id``, where a fence of each request stands."""
        assert self._tasks is not None, "begin comes first"
        self._tasks.start(self._recover(log, until_id, requests), f"takeover {log}")

    async def _recover(self, log: str, until_id: str, requests: Sequence[LedRequest]) -> None:
        readings = {
            request.key: _Reading(
                request, reply_log.id_key(request.keep_from), LogFold.behind(request.progress)
            )
            for request in requests
        }
        first = min((request.keep_from for request in requests), key=reply_log.id_key)
        async for entry in reply_log.read_range(self._node, log, first, until_id):
            for record in self._decoded(entry):
                reading = readings.get(record.request_id)
                if reading is not None:
                    reading.apply(entry.id, record)
        for reading in readings.values():
            self._post(await self._result(reading))

    def _decoded(self, entry: reply_log.LogEntry) -> list[LogRecord]:
        try:
            return decode_log_batch(entry.payload)
        except UndecodableError as error:
            # Whose records these were is unknown; those who miss them find a gap.
            self._log.error("undecodable log entry", entry=entry.id, error=str(error))
            return []

    async def _result(self, reading: _Reading) -> Recovered:
        request, progress = reading.request, reading.request.progress
        found = Recovered(request, progress)
        if reading.has_gap:
            return replace(found, failure=damaged_log())
        if not (progress.next_seq or progress.last_finish):
            return found
        record = await following.read_record(self._node, request.id, bound_s=None)
        try:
            body = open_body(record.body if record is not None else b"")
        except UndecodableError:
            return replace(found, failure=undecodable("body"))
        return replace(found, seed=body.seed, num_choices=body.num_choices)
