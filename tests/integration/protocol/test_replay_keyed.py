"""Runs of the model of idempotency keys, replayed against the real scripts: both must say the same after every step."""

import random
from dataclasses import replace

import pytest

from common.domain import RequestId, Usage
from common.records import Progress, Timings
from common.request_status import RequestStatus
from common.streams import admission, following, idempotency, inbox, ownership
from common.streams.idempotency import Claim, KeyName
from common.streams.node import Node
from common.wire.records import TerminalRecord, encode_terminal
from tests.integration.protocol.replayed import BOUNDS, PARTITION, submission_of
from tests.unit.protocol.keyed import Caller, Phase, Store
from tests.unit.protocol.test_keyed_model import State, first_state, moves

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

NUM_RUNS = 60


class Replayed:
    """One key, and the requests that were admitted under it."""

    def __init__(self, node: Node, key: str) -> None:
        self._node = node
        self._name = KeyName("t", key)
        self._ids: dict[int, RequestId] = {}
        self._entries: dict[int, inbox.InboxEntry] = {}

    def _id(self, number: int) -> RequestId:
        made = RequestId(PARTITION, RequestId.make("x", 1).unique)
        return self._ids.setdefault(number, made)

    async def do(self, before: State, name: str, after: State) -> None:
        """Carry out the step called `name` and hold its answer against the model's."""
        words = name.split()
        if not words[0].isdigit():
            await self._end(words[0], int(words[1]))
            return
        was, now = before.callers[int(words[0])], after.callers[int(words[0])]
        is_new = len(after.store.records) > len(before.store.records)
        match words[1]:
            case "look":
                found = await idempotency.look(self._node, self._name, bound_s=5)
                assert found == self._claim(before.store)
            case "claim":
                await self._claims(was, after.store)
            case "record":
                await self._read(was, before.store)
            case "admit" if now.phase is not Phase.LATE and "(refused)" not in name:
                await self._admit(words[0], was, is_new=is_new)
            case "late":
                await self._admit(words[0], was, is_new=is_new)
            case "confirm":
                assert was.claim is not None
                await idempotency.confirm(
                    self._node, self._name, self._id(was.claim.id), was.digest, bound_s=5
                )
            case "release":
                assert was.claimant is not None
                await idempotency.release(
                    self._node, self._name, self._id(was.claimant), bound_s=5
                )
            case _:
                pass  # nothing that changes Redis

    def _claim(self, store: Store) -> Claim | None:
        if store.claim is None:
            return None
        return Claim(self._id(store.claim.id), store.claim.digest, store.claim.is_admitted)

    async def _claims(self, was: Caller, after: Store) -> None:
        answer = await idempotency.claim(
            self._node,
            self._name,
            self._id(was.next_id),
            was.digest,
            replaces=None if was.replaces is None else self._id(was.replaces),
            bound_s=5,
        )
        assert answer == self._claim(after)

    async def _read(self, was: Caller, store: Store) -> None:
        assert was.claim is not None
        record = await following.read_record(self._node, self._id(was.claim.id), bound_s=5)
        expected = store.record(was.claim.id)
        assert (record is None) == (expected is None)
        if record is not None and expected is not None:
            assert record.status is expected.status
            assert bool(record.cancel) == expected.is_cancelling

    async def _admit(self, caller: str, was: Caller, *, is_new: bool) -> None:
        assert was.claim is not None
        wanted = replace(submission_of(self._id(was.claim.id), "g"), follower=f"g:{caller}")
        answer = await admission.admit(self._node, wanted, BOUNDS, bound_s=5)
        assert isinstance(answer, admission.Admitted)
        read = await inbox.read_new(self._node, PARTITION, "s")
        assert len(read) == is_new, "one entry for each execution"
        if is_new:
            assert answer.is_followed
            self._entries[was.claim.id] = read[0]

    async def _end(self, step: str, number: int) -> None:
        request_id = self._id(number)
        if step == "cancel":
            await following.cancel(self._node, request_id, "client", bound_s=5)
            return
        status = RequestStatus.FINISHED if step == "finish" else RequestStatus.CANCELLED
        entry = self._entries[number]
        (owned,) = await ownership.own(
            self._node, "s", [(request_id, entry.priority, entry.entry_id)]
        )
        assert isinstance(owned, ownership.Owned)
        terminal = encode_terminal(TerminalRecord(status, Progress(), Usage(), Timings(), seed=0))
        answer = await ownership.finish(self._node, request_id, owned.epoch, status, terminal)
        assert isinstance(answer, ownership.Done)

    async def check(self, store: Store) -> None:
        """The key and its claimants are the model's."""
        fields = await self._node.call(lambda client: client.hgetall(self._name.place))
        if store.claim is None:
            assert not fields
            return
        expected = {b"id": str(self._id(store.claim.id)), b"digest": store.claim.digest}
        if store.claim.is_admitted:
            expected[b"admitted"] = "1"
        for claimant in store.claim.claimants:
            expected[b"c:" + str(self._id(claimant)).encode()] = "1"
        assert {name: value.decode() for name, value in fields.items()} == expected


async def test_the_scripts_do_what_the_model_does(node: Node) -> None:
    """Along random runs every answer, every claim with its claimants, and every record is the model's."""
    chooser = random.Random(2)
    num_steps = num_freed = 0
    for number in range(NUM_RUNS):
        replayed, state = Replayed(node, f"key-{number}"), first_state("aab")
        while possible := list(moves(state)):
            name, after = chooser.choice(possible)
            await replayed.do(state, name, after)
            await replayed.check(after.store)
            num_freed += state.store.claim is not None and after.store.claim is None
            state, num_steps = after, num_steps + 1
    print(f"{num_steps} steps, {num_freed} keys freed")
    assert num_steps > 10 * NUM_RUNS
    assert num_freed > 0
