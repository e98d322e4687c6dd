"""The loop of a led partition: intake, plan, dispatch, settle. It alone changes the partition's state.

Everything that waits for somebody (inbox, records, logs, workers, clocks) runs beside it and leaves messages.
"""

import asyncio

from scheduler.alarms import Alarm, CancelOverdue, DeadlineDue, LossDecided
from scheduler.arrivals import Arrivals
from scheduler.beats import Beats
from scheduler.checkpoints import Checkpoints
from scheduler.dispatch import Dispatch
from scheduler.drains import Drains
from scheduler.ending import Ending
from scheduler.led_partition import LedPartition
from scheduler.log_writer import Appended, TailLost
from scheduler.lost_tail import write_again
from scheduler.mailbox import Mailbox
from scheduler.messages import (
    Beaten,
    Checkpointing,
    DrainOrdered,
    EntriesRead,
    Finishing,
    Message,
    Owning,
    Recovered,
    Requeuing,
    Taking,
    WritesAnswered,
)
from scheduler.newcomers import Newcomers
from scheduler.output import Output
from scheduler.returns import Returns
from scheduler.settle import Settle
from scheduler.worker_registry.events import SessionEnded, SessionOpened, SessionSaid
from scheduler.workers import Workers

# Without any message or alarm the loop looks around this often; nothing depends on it.
_IDLE_LOOK_S = 5.0


class PartitionLoop:
    """The task that owns a led partition."""

    def __init__(self, led: LedPartition, mailbox: Mailbox[Message], drains: Drains) -> None:
        """Everything that acts on ``led`` is made here."""
        self._led = led
        self._mailbox = mailbox
        self._ending = Ending(led)
        self._checkpoints = Checkpoints(led)
        self._newcomers = Newcomers(led)
        self._arrivals = Arrivals(led, self._ending, self._checkpoints, self._newcomers)
        self._returns = Returns(led, self._ending)
        self._dispatch = Dispatch(led, self._ending, self._returns, self._newcomers)
        self._settle = Settle(led, self._returns, self._checkpoints)
        self._workers = Workers(led, Output(led, self._returns), self._returns, drains)
        self._beats = Beats(led, self._ending)
        self.is_quiet = asyncio.Event()

    async def run(self) -> None:
        """Lead until cancelled."""
        while True:
            await self.run_once()

    async def run_once(self) -> None:
        """Take in what has come, plan, dispatch, settle."""
        for message in await self._mailbox.collect(self._patience_s()):
            self._take_in(message)
        now_s = self._led.clock()
        for alarm in self._led.alarms.due(now_s):
            self._ring(alarm)
        planned = self._dispatch.plan(now_s)
        self._dispatch.carry_out(planned, now_s)
        self._newcomers.own_rest()
        self._settle.settle()
        self._note_quiet()

    def stop(self) -> None:
        """Dispatch nothing more and send the workers away; ``is_quiet`` tells when all is written."""
        self._led.is_stopping = True
        self.is_quiet.clear()
        for worker in self._led.workers.values():
            worker.session.close(redirect="")

    def _patience_s(self) -> float:
        led = self._led
        if led.wants_plan and not led.is_stopping:
            return 0.0
        times = (led.alarms.next_s, self._dispatch.look_again_s)
        next_s = min((at_s for at_s in times if at_s is not None), default=None)
        if next_s is None:
            return _IDLE_LOOK_S
        return min(_IDLE_LOOK_S, max(0.001, next_s - led.clock()))

    def _note_quiet(self) -> None:
        led = self._led
        if led.is_stopping and not led.workers and not self._mailbox and led.is_idle:
            self.is_quiet.set()

    def _take_in(self, message: Message) -> None:
        match message:
            case SessionSaid():
                self._workers.said(message)
            case Appended() | TailLost():
                self._logged(message)
            case WritesAnswered():
                self._answered(message)
            case EntriesRead():
                self._arrivals.entries_read(message)
            case Recovered():
                self._arrivals.recovered(message)
            case Beaten():
                self._beats.beaten(message)
            case SessionOpened():
                self._workers.opened(message)
            case SessionEnded():
                self._workers.ended(message)
            case DrainOrdered():
                self._workers.drain(message)

    def _logged(self, message: Appended | TailLost) -> None:
        if isinstance(message, TailLost):
            write_again(self._led, message.log)
        else:
            self._settle.appended(message)

    def _answered(self, message: WritesAnswered) -> None:
        now_s = self._led.clock()
        for answered in message.answers:
            match answered.purpose:
                case Taking() as taking:
                    self._dispatch.taken(taking, answered.answer, now_s)
                case Checkpointing() as checkpointing:
                    self._checkpoints.stored(checkpointing, answered.answer)
                case Finishing() as finishing:
                    self._settle.finished(finishing, answered.answer)
                case Owning() as owning:
                    self._arrivals.owned(owning, answered.answer)
                case Requeuing() as requeuing:
                    self._beats.found(requeuing.request, answered.answer)

    def _ring(self, alarm: Alarm) -> None:
        match alarm:
            case DeadlineDue():
                self._ending.deadline_due(alarm)
            case CancelOverdue():
                self._ending.cancel_overdue(alarm)
            case LossDecided():
                self._workers.loss_decided(alarm)
