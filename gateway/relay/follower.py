"""One client that follows one request: waits for news, and looks at the record when there is none."""

import asyncio

from common.clock import monotonic_s
from common.domain import RequestId
from common.errors import DeadlineExceeded, HeadraceError, Unavailable
from common.streams.following import Record, read_record, read_status
from common.streams.node import Node
from gateway.relay.events import Event
from gateway.relay.history import checkpoint_of, result_of
from gateway.relay.log_reader import LogReader
from gateway.relay.mailbox import Mailbox

# Without news for so long, the record says whether the request ended without its log telling (lost data).
LOOK_AFTER_S = 2.5
# A gap is looked into at once, but a checkpoint that lacks the tokens too comes again in a moment.
_REPAIR_INTERVAL_S = 0.5
_LOOK_BOUND_S = 1.0
# A missing record may be restored by a scheduler that holds it in memory; then it really is gone.
_MISSING_FOR_S = 2.0
_MISSING_LOOK_S = 0.9
# The scheduler ends what has expired. Where none is alive, the gateway tells its client by itself.
_EXPIRY_MARGIN_S = 5.0


class Follower:
    """Yields a request's events to one client."""

    def __init__(
        self, node: Node, request_id: RequestId, mailbox: Mailbox, reader: LogReader
    ) -> None:
        """``reader`` hands the request's records to ``mailbox``."""
        self.request_id = request_id
        self.mailbox = mailbox
        self.is_joined = False
        """Whether the request counts this follower, so that it has to leave."""
        self.expires_s = float("inf")
        """When the request's time is over, by this process's monotonic clock."""
        self.is_trial = False
        """Whether its client may still follow the request through another gateway: it attached, and was given nothing yet."""
        self.is_cut_off = False
        """Whether the gateway has lost the queue."""
        self._has_notice = False
        self._node = node
        self._reader = reader
        self._changed = asyncio.Event()
        mailbox.wake = self._changed.set
        self._quiet_since_s = monotonic_s()
        self._looked_s = float("-inf")
        self._missing_since_s: float | None = None
        self._verdict: HeadraceError | None = None

    def end(self, verdict: HeadraceError) -> None:
        """Tell the client ``verdict`` instead of further news."""
        self._verdict = verdict
        self._changed.set()

    def note_cut_off(self, is_cut_off: bool) -> None:
        """The gateway has lost the queue, which the client is to be told now; or it is back."""
        self.is_cut_off = self._has_notice = is_cut_off
        if is_cut_off:
            self._changed.set()

    def take_notice(self) -> bool:
        """Whether there is something to tell besides events; once."""
        taken, self._has_notice = self._has_notice, False
        return taken

    def poke(self, now_s: float, idle_s: float) -> None:
        """Wake the follower if it had no news for ``idle_s``."""
        if now_s - self._quiet_since_s >= idle_s:
            self._changed.set()

    async def start_from(self, record: Record) -> None:
        """Serve what the record of a request holds, and go on from there.

        Raises:
            InternalFailure: what is stored cannot be read.
        """
        result = result_of(record)
        if result is not None:
            self.mailbox.rebase(result.progress)
            return
        progress, position = checkpoint_of(record)
        self.mailbox.rebase(progress)
        await self._reader.catch_up(str(self.request_id), self.mailbox, position)

    async def news(self) -> list[Event]:
        """The next events, merged; none when there was no news for a while.

        Raises:
            HeadraceError: there will be no more, and why.
        """
        while not (events := self.mailbox.take()):
            if self._verdict is not None:
                raise self._verdict
            now_s = monotonic_s()
            if self.mailbox.is_broken and now_s - self._looked_s >= _REPAIR_INTERVAL_S:
                await self._look(now_s)
                continue
            self._changed.clear()
            await self._changed.wait()
            if not self.mailbox.has_news and self._verdict is None:
                await self._look_if_quiet()
                events = self.mailbox.take()
                break
        if events:
            self.is_trial = False
            self._quiet_since_s = monotonic_s()
        return events

    async def _look_if_quiet(self) -> None:
        now_s = monotonic_s()
        pause_s = LOOK_AFTER_S if self._missing_since_s is None else _MISSING_LOOK_S
        is_due = now_s - max(self._looked_s, self._quiet_since_s) >= pause_s
        if is_due and not self.is_cut_off:
            await self._look(now_s)
        if now_s > self.expires_s + _EXPIRY_MARGIN_S and not self.mailbox.has_news:
            raise deadline_exceeded(self.mailbox)

    async def _look(self, now_s: float) -> None:
        self._looked_s = now_s
        try:
            status = await read_status(self._node, self.request_id, bound_s=_LOOK_BOUND_S)
            if status is None:
                self._note_missing(now_s)
                return
            self._missing_since_s = None
            if not status.is_final and not self.mailbox.is_broken:
                return
            record = await read_record(self._node, self.request_id, bound_s=_LOOK_BOUND_S)
        except Unavailable:
            return  # what was accepted is still there; it goes on when Redis does
        if record is not None:
            await self.start_from(record)

    def _note_missing(self, now_s: float) -> None:
        if self._missing_since_s is None:
            self._missing_since_s = now_s
        elif now_s - self._missing_since_s >= _MISSING_FOR_S:
            self.end(
                Unavailable(
                    "the queue has lost the request", reason="REQUEST_LOST", retry_after_s=1.0
                )
            )


def deadline_exceeded(mailbox: Mailbox) -> DeadlineExceeded:
    """The status of a request whose time is over, with the stage it reached."""
    return DeadlineExceeded(
        f"the deadline passed in the stage {stage_of(mailbox)}",
        reason="DEADLINE_EXCEEDED",
        metadata={"stage": stage_of(mailbox)},
    )


def stage_of(mailbox: Mailbox) -> str:
    """How far a request got."""
    if mailbox.prompt is None:
        return "queue"
    return "decode" if mailbox.next_seq else "prefill"
