"""A run of the protocol's model, carried out step by step by the real scripts on a real Redis."""

from common import keys
from common.domain import OrderingHeader, Partition, Priority, RequestId, Usage
from common.log_fold import LogFold
from common.records import Timings
from common.streams import admission, following, inbox, ownership, reply_log
from common.streams.node import Node
from common.streams.ownership import (
    Answer,
    CancelRequested,
    Done,
    Ended,
    Lost,
    NotNew,
    Owned,
    Started,
    Taken,
)
from common.wire.records import (
    TerminalRecord,
    decode_log_batch,
    decode_progress,
    decode_terminal,
    encode_log_batch,
    encode_progress,
    encode_terminal,
)
from common.wire.request import encode_header
from tests.unit.protocol import redis_model as redis
from tests.unit.protocol.explore import LateCheckpoint, State
from tests.unit.protocol.reading import Rec, Summary, as_log_record, as_progress
from tests.unit.protocol.redis_model import READER, Checkpoint, Terminal
from tests.unit.protocol.scope import Scope
from tests.unit.protocol.sessions import Append, Phase, Work, status_of

PARTITION = Partition("org/model", 0)
BOUNDS = admission.QueueBounds(max_requests=1_000_000, max_tokens=1_000_000_000)
_READER = "reader"


class Replayed:
    """Requests in a log of their own, and every append so far: position ``p`` of the model is ``_ids[p - 1]``."""

    def __init__(self, node: Node, log: str, ids: list[RequestId], entries: list[str]) -> None:
        """``ids`` are admitted; ``entries`` are their inbox entries."""
        self._node = node
        self._log = log
        self._began_ms = min(reply_log.id_ms(entry) for entry in entries)
        self._requests = ids
        self._inbox = entries
        self._ids: list[str] = []

    @classmethod
    async def admit(cls, node: Node, log: str, scope: Scope) -> "Replayed":
        """Admit the scope's requests and read them from the inbox."""
        ids = [RequestId(PARTITION, RequestId.make("x", 1).unique) for _ in range(scope.requests)]
        for request_id in ids:
            answer = await admission.admit(node, submission_of(request_id, log), BOUNDS, bound_s=5)
            assert isinstance(answer, admission.Admitted)
        read = await inbox.read_new(node, PARTITION, "first")
        assert [entry.request_id for entry in read] == [str(request_id) for request_id in ids]
        return cls(node, log, ids, [entry.entry_id for entry in read])

    async def do(self, before: State, name: str, after: State) -> None:
        """Carry out the step called ``name`` and hold its answer against the model's."""
        word = name.split()
        match word[1] if word[0].isdigit() else word[0]:
            case "answer":
                sent = before.sessions[int(word[0])].pending
                assert sent is not None
                await self._append(sent)
            case "stray":
                stray = before.strays[int(word[1])]
                if isinstance(stray, LateCheckpoint):
                    await self._store(*stray)
                else:
                    await self._append(stray)
            case "cancel":
                await following.cancel(
                    self._node, self._requests[int(word[1])], "client", bound_s=5
                )
            case "reader":
                await self._read_late(word[1], after)
            case "own" | "start" | "decide" | "checkpoint" | "finish" | "ack" if (
                "(delayed)" not in name
            ):
                await self._work(before, after, int(word[0]), word[1], int(word[2]))
            case _:
                pass  # nothing that Redis sees

    async def _work(
        self, before: State, after: State, session: int, step: str, request: int
    ) -> None:
        was, now = (state.sessions[session].works[request] for state in (before, after))
        match step:
            case "own":
                if redis.start(before.store, request) is None:
                    assert await self._start(session, request) == NotNew()
                await self._own(after, session, request)
            case "start":
                assert isinstance(await self._start(session, request), Started)
            case "decide":
                await self._decide(after, was, now, request)
            case "checkpoint":
                position = Checkpoint(was.position, was.known._replace(fence_epoch=was.epoch))
                answer = await self._store(request, was.epoch, position)
                assert isinstance(answer, Done) == (
                    after.store.records[request].epoch == was.epoch
                    and after.store.records[request].terminal is None
                )
            case "finish":
                answer = await self._finish(request, was)
                done = after.store.records[request].terminal
                if done is None:
                    assert isinstance(answer, Lost)
                else:
                    assert isinstance(answer, Done if done.epoch == was.epoch else Ended)
            case "ack":
                await reply_log.append(self._node, self._log, b"", {self._mark(request): None})
                await inbox.ack(self._node, PARTITION, [(Priority.NORMAL, self._inbox[request])])

    async def _append(self, sent: Append) -> None:
        payload = encode_log_batch(as_log_record(rec) for rec in sent.entry)
        marks = {
            self._mark(name): None if position is None else self._milliseconds(position)
            for name, position in sent.marks
        }
        self._ids.append(await reply_log.append(self._node, self._log, payload, marks))

    async def _own(self, after: State, session: int, request: int) -> None:
        entry = (self._requests[request], Priority.NORMAL, self._inbox[request])
        (answer,) = await ownership.own(self._node, f"s{session}", [entry])
        record = after.store.records[request]
        if record.terminal is not None:
            assert answer == Ended(status_of(record.terminal), self._log)
            return
        assert isinstance(answer, Owned)
        assert answer.epoch == record.epoch
        assert bool(answer.cancel) == record.is_cancelled
        assert self._summary(answer.checkpoint) == record.checkpoint.summary

    async def _start(self, session: int, request: int) -> Answer:
        step = ownership.start_step(f"s{session}", self._requests[request], "w", "")
        (answer,) = await ownership.run_steps(self._node, [step])
        return answer

    async def _decide(self, after: State, was: Work, now: Work, request: int) -> None:
        if was.epoch > 1 and now.phase is not Phase.GONE:
            known = await self._read(was, request)
            assert known == (now.known.tokens, now.known.finish)
        if now.phase is Phase.LOGGED:
            return
        (answer,) = await ownership.take(self._node, [(self._requests[request], was.epoch)], "w")
        if now.phase is Phase.GONE:
            assert isinstance(answer, Lost | Ended)
        elif after.store.records[request].is_cancelled:
            assert isinstance(answer, CancelRequested)
        else:
            assert isinstance(answer, Taken)

    async def _read(self, was: Work, request: int) -> tuple[tuple[int, ...], object]:
        """Read from the checkpoint up to the first own fence, as a takeover does."""
        progress = as_progress(was.start.summary)
        log_fold = LogFold.behind(progress)
        fence = as_log_record(Rec(request, was.epoch))
        entries = reply_log.read_range(
            self._node, self._log, self._id(was.start.position), self._ids[-1]
        )
        async for entry in entries:
            records = decode_log_batch(entry.payload)
            for record in records:
                if record.request_id == fence.request_id:
                    fact = log_fold.apply(record)
                    if fact is not None:
                        progress.add(fact)
            if fence in records:
                break
        tokens = tuple(progress.choices[0].token_ids) if progress.choices else ()
        return tokens, progress.last_finish.reason if progress.last_finish else None

    async def _store(self, request: int, epoch: int, checkpoint: Checkpoint) -> Answer:
        progress = as_progress(checkpoint.summary)
        progress.log_id = self._id(checkpoint.position)
        return await ownership.store_checkpoint(
            self._node,
            self._requests[request],
            epoch,
            encode_progress(progress),
            progress.next_seq,
        )

    async def _finish(self, request: int, work: Work) -> Answer:
        assert work.known.finish is not None
        terminal = Terminal(work.epoch, work.known.tokens, work.known.finish)
        status = status_of(terminal)
        record = TerminalRecord(status, as_progress(work.known), Usage(), Timings(), seed=0)
        return await ownership.finish(
            self._node, self._requests[request], work.epoch, status, encode_terminal(record)
        )

    async def _read_late(self, step: str, after: State) -> None:
        if step == "marks":
            await reply_log.append(self._node, self._log, b"", {_READER: self._began_ms})
            return
        assert after.reader is not None
        record = await following.follow(self._node, self._requests[0], "late:1", bound_s=5)
        assert record is not None
        assert self._summary(record.checkpoint) == after.reader.summary

    async def check(self, state: State) -> None:
        """Hold records, log and marks against the model's. The real log may keep more than the model's."""
        for request, model in enumerate(state.store.records):
            record = await following.read_record(self._node, self._requests[request], bound_s=5)
            assert record is not None
            assert (record.epoch, bool(record.cancel)) == (model.epoch, model.is_cancelled)
            assert record.status.is_final == (model.terminal is not None)
            if model.terminal is None:
                assert self._summary(record.checkpoint) == model.checkpoint.summary
                continue
            end = decode_terminal(record.terminal)
            assert (end.status, record.status) == (status_of(model.terminal),) * 2
            assert tuple(end.progress.choices[0].token_ids if end.progress.choices else ()) == (
                model.terminal.tokens
            )
        kept = [entry async for entry in reply_log.read_range(self._node, self._log, "0-0", "+")]
        assert [decode_log_batch(e.payload) for e in kept[-len(state.store.log.entries) :]] == [
            [as_log_record(rec) for rec in entry] for entry in state.store.log.entries
        ][-len(kept) :]
        assert len(kept) >= len(state.store.log.entries)
        await self._check_marks(state)

    async def _check_marks(self, state: State) -> None:
        marks = await self._node.call(
            lambda client: client.zrange(keys.log_marks(self._log), 0, -1, withscores=True)
        )
        assert {name.decode(): int(score) for name, score in marks} == {
            self._mark(name): self._milliseconds(position) for name, position in state.store.marks
        }

    async def num_trimmed(self) -> int:
        """How many appends the real log has dropped."""
        return len(self._ids) - await self._node.call(
            lambda client: client.xlen(keys.reply_log(self._log))
        )

    def _id(self, position: int) -> str:
        return self._ids[position - 1] if position else "0-0"

    def _milliseconds(self, position: int) -> int:
        # The model's logs begin at 0, real ones at the moment of their first admission.
        return reply_log.id_ms(self._id(position)) if position else self._began_ms

    def _mark(self, name: int) -> str:
        return _READER if name == READER else str(self._requests[name])

    def _summary(self, checkpoint: bytes) -> Summary:
        progress = decode_progress(checkpoint)
        tokens = tuple(progress.choices[0].token_ids) if progress.choices else ()
        finish = progress.last_finish
        return Summary(tokens, finish.reason if finish else None, progress.epoch)


def submission_of(request_id: RequestId, log: str) -> admission.Submission:
    return admission.Submission(
        request_id=request_id,
        priority=Priority.NORMAL,
        tenant="t",
        prompt_tokens=1,
        budget_ms=60_000,
        log=log,
        start="0-0",
        follower="g:1",
        header=encode_header(OrderingHeader("t", Priority.NORMAL, 1, 2)),
        body=b"body",
        resume_grace_ms=0,
    )
