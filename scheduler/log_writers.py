"""The log writers of a partition, one for each gateway that has open requests."""

from collections.abc import Callable, Iterable, Sequence

from common.records import LogRecord
from common.streams.node import Node
from scheduler.lease import HeldLease
from scheduler.log_writer import Appended, LogWriter, TailLost
from scheduler.owned_tasks import OwnedTasks


class LogWriters:
    """Begins writers when they are needed, and lets them end when their gateway is gone."""

    def __init__(
        self,
        node: Node,
        lease: HeldLease,
        post: Callable[[Appended | TailLost], None],
        *,
        max_backlog: int,
        on_append: Callable[[float], None],
    ) -> None:
        """``max_backlog`` records of a log are too many for new requests to be added."""
        self._node = node
        self._lease = lease
        self._post = post
        self._max_backlog = max_backlog
        self._on_append = on_append
        self._writers: dict[str, LogWriter] = {}
        self._tasks: OwnedTasks | None = None

    def begin(self, tasks: OwnedTasks) -> None:
        """Writers run in ``tasks``."""
        self._tasks = tasks

    @property
    def is_idle(self) -> bool:
        """Whether all that was given is written."""
        return all(writer.is_idle for writer in self._writers.values())

    @property
    def logs(self) -> Sequence[str]:
        """Logs that have a writer."""
        return list(self._writers)

    def add(self, log: str, records: Sequence[LogRecord]) -> None:
        """Write these to ``log``, in order."""
        self._writer(log).add(records)

    def mark(self, log: str, request_id: str, position_ms: int) -> None:
        """Let the log keep what follows a position of the request."""
        self._writer(log).mark(request_id, position_ms)

    def unmark(self, log: str, request_id: str) -> None:
        """The request has ended: the log need not keep anything for it."""
        self._writer(log).unmark(request_id)

    def restore(self, log: str, held: Iterable[Sequence[LogRecord]]) -> None:
        """Write these before all else: the log's tail is lost."""
        self._writer(log).restore(held)

    def is_congested(self, log: str) -> bool:
        """Whether the log takes appends more slowly than they come."""
        writer = self._writers.get(log)
        return writer is not None and writer.backlog > self._max_backlog

    def retire(self, log: str) -> None:
        """No open request has this log: let its writer end, unless it still has something to write."""
        writer = self._writers.get(log)
        if writer is not None and writer.is_idle:
            del self._writers[log]
            writer.close()

    def _writer(self, log: str) -> LogWriter:
        writer = self._writers.get(log)
        if writer is None:
            assert self._tasks is not None, "begin comes first"
            writer = self._writers[log] = LogWriter(
                self._node, log, self._lease, self._post, on_append=self._on_append
            )
            self._tasks.start(writer.run(), f"log {log}")
        return writer
