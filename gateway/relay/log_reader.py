"""Tails one reply log and hands its records to the mailboxes of the requests they are about."""

from common.errors import Unavailable
from common.logs import Log
from common.records import LogRecord
from common.streams import reply_log
from common.streams.node import Node
from common.streams.reply_log import LogEntry, id_key
from common.wire.records import UndecodableError, decode_log_batch
from gateway.relay.mailbox import Mailbox

# Long enough for a command on a healthy node; the next empty read looks again.
_LOOK_BOUND_S = 1.0


class LogReader:
    """One log, one reading task, any number of mailboxes."""

    def __init__(self, node: Node, log_name: str, position: str, log: Log) -> None:
        """Reads what comes behind ``position``."""
        self._node = node
        self._log = log
        self.log_name = log_name
        self.position = position
        self._mailboxes: dict[str, list[Mailbox]] = {}

    def add(self, request_id: str, mailbox: Mailbox) -> None:
        """Hand the request's records to ``mailbox`` from the current position on."""
        self._mailboxes.setdefault(request_id, []).append(mailbox)

    def remove(self, request_id: str, mailbox: Mailbox) -> None:
        """No more records to ``mailbox``."""
        others = self._mailboxes[request_id]
        others.remove(mailbox)
        if not others:
            del self._mailboxes[request_id]

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            await self.run_once()

    async def run_once(self) -> None:
        """One blocking read; an empty one is a reason to look whether the log still is the one we know."""
        entries = await reply_log.read_on(self._node, self.log_name, self.position)
        for entry in entries:
            self._deliver(entry)
        if not entries:
            await self._rewind_if_behind()

    async def catch_up(self, request_id: str, mailbox: Mailbox, after: str) -> None:
        """Give ``mailbox`` what lies between ``after`` and the reader's position, then let it go on.

        Raises:
            Unavailable: the log could not be read in time; the mailbox is broken and asks for another try.
        """
        mailbox.hold()
        try:
            async for entry in reply_log.read_range(
                self._node, self.log_name, after, self.position
            ):
                for record in self._decode(entry):
                    if record.request_id == request_id:
                        mailbox.read(record)
        except BaseException:
            mailbox.is_broken = True
            raise
        finally:
            mailbox.release()

    def _deliver(self, entry: LogEntry) -> None:
        # No await in here: a follower wakes once for all that one read brought.
        for record in self._decode(entry):
            for mailbox in self._mailboxes.get(record.request_id, ()):
                mailbox.push(record)
        self.position = entry.id

    def _decode(self, entry: LogEntry) -> list[LogRecord]:
        try:
            return decode_log_batch(entry.payload)
        except UndecodableError as error:
            # What it held will be missed by the requests concerned, and they look at their records.
            self._log.error("log entry skipped", entry=entry.id, error=str(error))
            return []

    async def _rewind_if_behind(self) -> None:
        """After a loss of data the log starts again with ids that may lie behind our position."""
        try:
            last = await reply_log.last_id(self._node, self.log_name, bound_s=_LOOK_BOUND_S)
        except Unavailable:
            return
        if id_key(last) < id_key(self.position) and self.position != "0-0":
            if last != "0-0":
                self._log.warning("reply log lost entries", position=self.position, last=last)
            self.position = "0-0"
