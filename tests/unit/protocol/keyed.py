"""Callers of one idempotency key as the model sees them: every step is one Redis command and what follows from it.

    look ─▶ record ─▶ the real verdict ─┬─▶ claim ─▶ record … ─▶ admit ─▶ confirm ─▶ got
                                        ├─▶ attach ─▶ confirm ─▶ got
                                        └─▶ reused ─▶ release

Scripts are pure functions here, as in ``redis_model``; ``tests/integration/protocol`` holds both against each other. A
caller that dies takes no further step. An answer may be lost, and an admission may arrive long after its caller gave up;
who comes again is another caller.
"""

from collections.abc import Iterator
from enum import Enum, IntEnum
from typing import NamedTuple

from common.request_status import RequestStatus
from gateway.verdict import Verdict, verdict_on

FREED = frozenset({RequestStatus.CANCELLED, RequestStatus.EXPIRED})


class KeyMutation(Enum):
    """The protocol with one rule less."""

    RELEASE_FOR_ALL = "a refused claimant frees the key, whoever else claims it"
    RELEASE_UNKNOWN = "a caller whose admission has no answer withdraws its claim"
    OWN_ID = "a caller admits its request under its own id, not the claim's"
    TAKE_KEY = "a claim replaces the one that stands"


class Claim(NamedTuple):
    """What the key stands for; ids are numbers."""

    id: int
    digest: str
    is_admitted: bool
    claimants: frozenset[int] = frozenset()


class Record(NamedTuple):
    """A request that was admitted."""

    id: int
    digest: str
    status: RequestStatus = RequestStatus.QUEUED
    is_cancelling: bool = False


class Store(NamedTuple):
    """The key, and all records under it."""

    claim: Claim | None = None
    records: tuple[Record, ...] = ()

    def record(self, number: int) -> Record | None:
        """The request of that id, if it was admitted."""
        return next((one for one in self.records if one.id == number), None)


class Phase(IntEnum):
    """What a caller does next."""

    LOOK = 0
    CLAIM = 1
    RECORD = 2
    ADMIT = 3
    ATTACH = 4
    CONFIRM = 5
    RELEASE = 6
    LATE = 7
    GOT = 8
    ENDED = 9


class Caller(NamedTuple):
    """One call. ``next_id`` is what it would name its next claim."""

    digest: str
    next_id: int
    phase: Phase = Phase.LOOK
    claim: Claim | None = None
    claimant: int | None = None
    is_new: bool = False
    replaces: int | None = None


def claim(
    store: Store, number: int, digest: str, replaces: int | None, *, takes: bool = False
) -> Store:
    """claim_key.lua; the answer is the claim that stands then."""
    stands = store.claim
    if stands is None or stands.id == replaces or takes:
        return store._replace(claim=Claim(number, digest, False, frozenset({number})))
    if stands.digest == digest and not stands.is_admitted:
        return store._replace(claim=stands._replace(claimants=stands.claimants | {number}))
    return store


def confirm(store: Store, number: int, digest: str) -> Store:
    """confirm_key.lua."""
    if store.claim is not None and store.claim.id != number:
        return store
    return store._replace(claim=Claim(number, digest, True))


def release(store: Store, claimant: int, *, for_all: bool = False) -> Store:
    """release_key.lua."""
    stands = store.claim
    if stands is None or claimant not in stands.claimants:
        return store
    left = stands.claimants - {claimant}
    if stands.is_admitted or (left and not for_all):
        return store._replace(claim=stands._replace(claimants=left))
    return store._replace(claim=None)


def admit(store: Store, number: int, digest: str) -> Store:
    """admit.lua where there is room."""
    if store.record(number) is not None:
        return store
    return store._replace(records=(*store.records, Record(number, digest)))


Step = tuple[str, Store, Caller]


def steps(store: Store, caller: Caller, mutation: KeyMutation | None) -> Iterator[Step]:
    """Every step that the caller may take next, lost answers among them."""
    match caller.phase:
        case Phase.LOOK:
            after = caller._replace(claim=store.claim, is_new=False, replaces=None)
            phase = Phase.CLAIM if store.claim is None else Phase.RECORD
            yield "look", store, after._replace(phase=phase)
        case Phase.CLAIM:
            yield from _claim(store, caller, mutation)
        case Phase.RECORD:
            yield "record", store, _judged(store, caller)
        case Phase.ADMIT:
            yield from _admit(store, caller, mutation)
        case Phase.ATTACH:
            assert caller.claim is not None
            record = store.record(caller.claim.id)
            assert record is not None
            is_given_up = record.status in FREED or (
                not record.status.is_final and record.is_cancelling
            )
            phase = Phase.LOOK if is_given_up else Phase.CONFIRM
            claimant = caller.claimant if is_given_up else None
            yield "attach", store, caller._replace(phase=phase, claimant=claimant)
            yield "attach (answer lost)", store, _ended(caller)
        case Phase.CONFIRM:
            assert caller.claim is not None
            after = confirm(store, caller.claim.id, caller.digest)
            yield "confirm", after, caller._replace(phase=Phase.GOT)
        case Phase.RELEASE:
            assert caller.claimant is not None
            for_all = mutation is KeyMutation.RELEASE_FOR_ALL
            after = release(store, caller.claimant, for_all=for_all)
            yield "release", after, caller._replace(phase=Phase.ENDED)
        case Phase.LATE:
            assert caller.claim is not None
            after = admit(store, caller.claim.id, caller.digest)
            yield "late", after, caller._replace(phase=Phase.ENDED)


def _claim(store: Store, caller: Caller, mutation: KeyMutation | None) -> Iterator[Step]:
    number = caller.next_id
    takes = mutation is KeyMutation.TAKE_KEY
    after = claim(store, number, caller.digest, caller.replaces, takes=takes)
    stands = after.claim
    assert stands is not None
    claimed = caller._replace(claimant=number, next_id=number + 1)
    phase = Phase.ADMIT if stands.id == number and not stands.is_admitted else Phase.RECORD
    yield "claim", after, claimed._replace(claim=stands, is_new=True, phase=phase)
    yield "claim (answer lost)", after, _ended(claimed)


def _judged(store: Store, caller: Caller) -> Caller:
    stands = caller.claim
    assert stands is not None
    record = store.record(stands.id)
    verdict = verdict_on(
        None if record is None else record.status,
        is_admitted=stands.is_admitted,
        is_cancelling=record is not None and record.is_cancelling,
        is_same=stands.digest == caller.digest,
    )
    match verdict:
        case Verdict.REUSED:
            return _ended(caller)
        case Verdict.FREE:
            return caller._replace(phase=Phase.CLAIM, replaces=stands.id)
        case Verdict.ADMIT:
            return caller._replace(
                phase=Phase.ADMIT if caller.is_new else Phase.CLAIM, replaces=None
            )
        case Verdict.ATTACH:
            return caller._replace(phase=Phase.ATTACH)
        case Verdict.WAIT:
            return caller._replace(phase=Phase.LOOK)


def _admit(store: Store, caller: Caller, mutation: KeyMutation | None) -> Iterator[Step]:
    assert caller.claim is not None
    number = caller.claim.id
    if mutation is KeyMutation.OWN_ID:
        assert caller.claimant is not None
        number = caller.claimant
    after = admit(store, number, caller.digest)
    if after == store:
        yield "admit", store, caller._replace(phase=Phase.LOOK)  # followed by whoever was first
    else:
        yield "admit", after, caller._replace(phase=Phase.CONFIRM, claimant=None)
        yield "admit (refused)", store, _ended(caller)
    keeps = mutation is not KeyMutation.RELEASE_UNKNOWN
    left = _ended(caller._replace(claimant=None) if keeps else caller)
    yield "admit (answer lost)", after, left
    if keeps:
        yield "admit (delayed)", store, left._replace(phase=Phase.LATE)


def _ended(caller: Caller) -> Caller:
    """It gives up, and takes back its claim, if it has one."""
    return caller._replace(phase=Phase.ENDED if caller.claimant is None else Phase.RELEASE)


def endings(store: Store) -> Iterator[tuple[str, Store]]:
    """What becomes of admitted requests meanwhile: cancelled, or finished all the same."""
    for place, record in enumerate(store.records):
        if record.status.is_final:
            continue
        changes = [("finish", record._replace(status=RequestStatus.FINISHED))]
        if record.is_cancelling:
            changes.append(("end", record._replace(status=RequestStatus.CANCELLED)))
        else:
            changes.append(("cancel", record._replace(is_cancelling=True)))
        for name, changed in changes:
            records = (*store.records[:place], changed, *store.records[place + 1 :])
            yield f"{name} {record.id}", store._replace(records=records)
