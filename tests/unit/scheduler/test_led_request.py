"""One request in its leader's memory: numbering, confirmation, and what each end tells."""

import pytest

from common.domain import FinishReason, OrderingHeader, Priority, RequestId
from common.records import FinishRecord, Progress, PromptRecord, TokensRecord
from common.request_status import RequestStatus
from common.wire.session import SequenceFinish, SequenceOutput
from scheduler.failures import failure_of_end
from scheduler.led_request import LedRequest


def request(progress: Progress | None = None) -> LedRequest:
    """A request that arrived at 10 and runs its first attempt."""
    led = LedRequest(
        id=RequestId.make("m", 1),
        entry_id="1-0",
        header=OrderingHeader("t", Priority.NORMAL, 4, 9),
        epoch=3,
        log="g1",
        start="5-0",
        arrival_s=10.0,
        deadline_s=70.0,
        progress=progress or Progress(),
        fingerprint="fp",
    )
    led.move(RequestStatus.RUNNING)
    led.attempt = 1
    return led


def output(led: LedRequest, *tokens: int, index: int = 0, finish=None, prompt=None):
    """What a worker says of ``led``; each token's text is one letter."""
    text = "x" * len(tokens)
    return SequenceOutput(led.key, 3, 1, index, tokens, text, (1,) * len(tokens), finish, prompt)


def stop() -> SequenceFinish:
    return SequenceFinish(FinishReason.STOP, None, "", None)


def test_seq_counts_over_outputs_and_choices():
    """Every token of a request has its own number, in the order in which it was handed to the log."""
    led = request()
    led.num_choices = 2
    first = led.records_of(output(led, 1, 2, prompt=PromptRecord(0, "w")), 11.0)
    second = led.records_of(output(led, 3, index=1), 12.0)
    assert [type(record.fact) for record in first] == [PromptRecord, TokensRecord]
    assert [record.epoch for record in first] == [3, 3]
    assert second[0].fact == TokensRecord(2, 1, (3,), "x", (1,))
    assert led.next_seq == 3


def test_the_prompt_is_logged_once():
    """A second attempt that takes up the prompt again counts no second prompt."""
    led = request()
    led.records_of(output(led, 1, prompt=PromptRecord(0, "w")), 11.0)
    again = led.records_of(output(led, 2, prompt=PromptRecord(0, "w2")), 12.0)
    assert [type(record.fact) for record in again] == [TokensRecord]


def test_only_the_last_choice_ends_the_request():
    """With two choices the first finish is not the last; tokens of an ended choice are dropped."""
    led = request()
    led.num_choices = 2
    (finish,) = led.records_of(output(led, finish=stop()), 11.0)
    assert isinstance(finish.fact, FinishRecord)
    assert (finish.fact.last, finish.fact.timings, led.ending) == (False, None, None)
    assert led.records_of(output(led, 5), 11.0) == []
    (last,) = led.records_of(output(led, index=1, finish=stop()), 12.0)
    assert isinstance(last.fact, FinishRecord)
    assert last.fact.last
    assert led.ending == last.fact


def test_progress_holds_confirmed_facts_only():
    """What is in flight is numbered, but resumes and results know nothing of it."""
    led = request()
    records = led.records_of(output(led, 1, 2), 11.0)
    assert (led.next_seq, led.progress.next_seq, led.num_unconfirmed) == (2, 0, 1)
    led.confirm(records[0], "7-0")
    assert (led.progress.next_seq, led.progress.log_id, led.num_unconfirmed) == (2, "7-0", 0)


def test_waiting_again_asks_for_equal_numerics_only_once_started():
    """Before its first token any worker will do; after it, only one with the same fingerprint."""
    led = request()
    led.move(RequestStatus.QUEUED)
    assert (led.waiting().fingerprint, led.waiting().known_tokens) == (None, 4)
    led.move(RequestStatus.RUNNING)
    for record in led.records_of(output(led, 1, 2), 11.0):
        led.confirm(record, "7-0")
    led.move(RequestStatus.QUEUED)
    waiting = led.waiting()
    assert (waiting.fingerprint, waiting.known_tokens, waiting.remaining_tokens) == ("fp", 6, 7)


@pytest.mark.parametrize(
    ("epoch", "attempt", "accepted"), [(3, 1, True), (3, 0, False), (2, 1, False), (3, 2, False)]
)
def test_only_the_running_attempt_is_heard(epoch: int, attempt: int, accepted: bool):
    """Messages of an older epoch or attempt are void, and nobody can speak of a future one."""
    assert request().accepts(epoch, attempt) is accepted


def test_nothing_is_heard_once_the_end_is_decided():
    """After the last finish, or while it returns to the queue, a worker's output changes nothing."""
    ended, returning = request(), request()
    ended.end_records(FinishReason.CANCELLED, None, 12.0)
    returning.is_returning = True
    assert not ended.accepts(3, 1)
    assert not returning.accepts(3, 1)


def test_an_end_covers_every_open_choice():
    """Cancelling with three choices, one ended: two finishes, the last with the timings."""
    led = request()
    led.num_choices = 3
    led.records_of(output(led, 1, index=1, finish=stop()), 11.0)
    records = led.end_records(FinishReason.CANCELLED, None, 13.0)
    facts = [record.fact for record in records]
    assert [(fact.index, fact.last) for fact in facts if isinstance(fact, FinishRecord)] == [
        (0, False),
        (2, True),
    ]
    assert led.ending is not None
    assert led.ending.timings is not None
    assert led.ending.timings.total_s == 3.0


def test_a_deadline_names_its_stage():
    """DEADLINE_EXCEEDED says whether prefill or decode was under way; a good end says nothing."""
    led = request()
    deadline = SequenceFinish(FinishReason.DEADLINE, None, "", None)
    (record,) = led.records_of(output(led, finish=deadline), 11.0)
    assert isinstance(record.fact, FinishRecord)
    assert record.fact.failure is not None
    assert record.fact.failure.metadata == {"stage": "prefill"}
    assert failure_of_end(FinishReason.STOP, stage="decode") is None


def test_a_takeover_knows_the_intervals_of_the_first_attempt():
    """Wait and time to first token come from one clock, whatever the next leader's and the store's say."""
    first = request()
    first.first_dispatch_s = first.arrival_s + 0.25
    progress = Progress()
    for record in first.records_of(
        output(first, 1, prompt=PromptRecord(0, "w")), first.arrival_s + 0.75
    ):
        progress.add(record.fact)
    second = request(progress)
    second.arrival_s, second.first_dispatch_s = 100.0, 100.9
    second.restore(progress)
    timings = second.timings(107.0)
    assert (timings.queue_s, timings.prefill_s) == (pytest.approx(0.25), pytest.approx(0.5))
    assert timings.time_to_first_token_s == pytest.approx(0.75)


def test_a_wanted_cancel_keeps_its_cause():
    """The worker's answer to our cancel carries the cause that we know."""
    led = request()
    failure = failure_of_end(FinishReason.CANCELLED, stage="", cause="abandoned")
    led.end_wanted = (FinishReason.CANCELLED, failure)
    cancelled = SequenceFinish(FinishReason.CANCELLED, None, "", None)
    (record,) = led.records_of(output(led, finish=cancelled), 11.0)
    assert isinstance(record.fact, FinishRecord)
    assert record.fact.failure == failure


def test_restored_from_the_log_it_goes_on_behind_it():
    """After a takeover numbering continues, ended choices stay ended, and the log is kept from the checkpoint."""
    progress = Progress()
    progress.add(PromptRecord(0, "w"))
    progress.add(TokensRecord(0, 1, (4, 5), "xx", (1, 1)))
    progress.add(FinishRecord(2, 1, FinishReason.STOP, last=False))
    progress.log_id = "9-0"
    led = request(progress)
    assert (led.next_seq, led.num_choices, led.finished_choices) == (2, 2, {1})
    assert led.keep_from == "9-0"
    assert request().keep_from == "5-0"
