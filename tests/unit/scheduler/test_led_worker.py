"""What a worker can still take, when its credits are older than its assignments."""

from dataclasses import replace

from common.domain import OrderingHeader, Priority, RequestId
from common.records import Progress
from common.wire.session import Credit, Hello
from scheduler.led_request import LedRequest
from scheduler.led_worker import LedWorker
from scheduler.planning.output_lengths import OutputLengths
from scheduler.planning.settings import PlanningSettings
from scheduler.worker_registry.session import WorkerSession

# Nothing is learned yet: what a request may generate is held back, up to 128 tokens.
LENGTHS = OutputLengths(PlanningSettings())
BEAT_S = 1.0
NOW_S = 2.0


def worker() -> LedWorker:
    """Eight slots, a hundred blocks of sixteen tokens, all free."""
    hello = Hello("w", "i", 1, "m", "r", b"", "fp", 100, 16, 8, 512)
    led = LedWorker(WorkerSession(hello, "here:1"), BEAT_S)
    led.heard(NOW_S, step_age_ms=0)
    led.credited(Credit(8, 100, 0), 0.0)
    return led


def request(prompt_tokens: int = 40) -> LedRequest:
    return LedRequest(
        id=RequestId.make("m", 1),
        entry_id="1-0",
        header=OrderingHeader("t", Priority.NORMAL, prompt_tokens, 9),
        epoch=1,
        log="g1",
        start="0-0",
        arrival_s=0.0,
        deadline_s=70.0,
        progress=Progress(),
    )


async def test_no_place_is_free_before_the_first_credit():
    """A worker that has said nothing yet is given nothing, and its memory is not shown as full."""
    hello = Hello("w", "i", 1, "m", "r", b"", "fp", 100, 16, 8, 512)
    new = LedWorker(WorkerSession(hello, "here:1"), BEAT_S)
    assert new.view(LENGTHS, NOW_S).free_seqs == 0
    assert new.credit.free_blocks == hello.kv_blocks


async def test_an_unseen_assignment_is_subtracted():
    """Slots, blocks and prefill of what the worker has not counted yet are not given away twice: 49 tokens in the end."""
    led, one = worker(), request(40)
    led.add(one, 1.0)
    view = led.view(LENGTHS, NOW_S)
    assert (view.free_seqs, view.free_blocks, view.pending_prefill_tokens) == (7, 96, 40)
    assert view.num_running == 1


async def test_its_first_output_shows_that_it_was_seen():
    """From then on the worker's own numbers count it, and it is not subtracted again."""
    led, one = worker(), request(40)
    led.add(one, 1.0)
    led.saw(one.key)
    led.credited(Credit(7, 97, 0), 1.1)
    view = led.view(LENGTHS, NOW_S)
    assert (view.free_seqs, view.free_blocks, view.pending_prefill_tokens) == (7, 96, 0)


async def test_a_credit_under_way_does_not_count_as_seen():
    """The first credit after an assignment may be older than it; the second one, a while later, is not."""
    led, one = worker(), request(40)
    led.add(one, 1.0)
    led.credited(Credit(8, 100, 0), 1.001)
    assert led.view(LENGTHS, NOW_S).free_blocks == 96
    led.credited(Credit(7, 97, 40), 1.2)
    assert led.view(LENGTHS, NOW_S).free_blocks == 96
    assert led.view(LENGTHS, NOW_S).pending_prefill_tokens == 40


async def test_what_ended_is_free_again():
    """A request that left takes its reservation along."""
    led, one = worker(), request(40)
    led.add(one, 1.0)
    led.remove(one.key)
    assert (led.view(LENGTHS, NOW_S).free_seqs, led.view(LENGTHS, NOW_S).free_blocks) == (8, 100)


async def test_what_runs_keeps_the_room_that_it_will_grow_into():
    """Blocks that running requests will probably fill are not given to others; what is learned says how many."""
    led, one = worker(), request(40)
    one.header = replace(one.header, max_tokens=1000)
    led.add(one, 1.0)
    led.saw(one.key)
    led.credited(Credit(7, 97, 0), 1.1)
    assert led.view(LENGTHS, NOW_S).free_blocks == 97 - 8  # 168 tokens
    one.next_seq = 120
    led.credited(Credit(7, 90, 0), 1.2)
    assert led.view(LENGTHS, NOW_S).free_blocks == 90 - 2  # 30 more: a quarter of what it has


async def test_a_view_is_made_again_when_something_has_changed():
    """Planning looks at every worker each time; one that nothing happened to costs nothing."""
    led, one = worker(), request(40)
    first = led.view(LENGTHS, NOW_S)
    assert led.view(LENGTHS, NOW_S) is first
    led.is_draining = True
    assert led.view(LENGTHS, NOW_S).draining
    led.add(one, 1.0)
    assert led.view(LENGTHS, NOW_S).running == (one,)
    assert led.view(LENGTHS, NOW_S).lowest_running is Priority.NORMAL
    one.is_taking = True
    led.changed()
    assert led.view(LENGTHS, NOW_S).running == ()


async def test_what_is_cached_is_not_computed():
    """Of an unseen prompt only the rest counts as prefill."""
    led = worker()
    led.add(request(40), 1.0, cached_tokens=32)
    assert led.view(LENGTHS, NOW_S).pending_prefill_tokens == 8


async def test_each_choice_takes_a_slot_until_it_ends():
    """Three choices, of which one has ended; the prompt is there once, the answers and last blocks per choice."""
    led, one = worker(), request(32)
    one.header = replace(one.header, max_tokens=96)
    one.num_choices = 3
    led.add(one, 1.0)
    assert (led.view(LENGTHS, NOW_S).free_seqs, led.view(LENGTHS, NOW_S).num_running) == (5, 3)
    assert led.view(LENGTHS, NOW_S).free_blocks == 100 - 8 - 2
    one.finished_choices = {1}
    led.changed()
    assert (led.view(LENGTHS, NOW_S).free_seqs, led.view(LENGTHS, NOW_S).num_running) == (6, 2)


async def test_a_silent_worker_gets_nothing_more_until_it_is_heard():
    """It may be paused or cut off; what it runs stays there for as long as its session stands."""
    led = worker()
    led.add(request(), NOW_S)
    assert led.view(LENGTHS, NOW_S + 1.5 * BEAT_S).free_seqs == 7
    silent = led.view(LENGTHS, NOW_S + 1.6 * BEAT_S)
    assert (silent.free_seqs, silent.num_running, silent.draining) == (0, 1, False)
    led.heard(NOW_S + 2.0, step_age_ms=0)
    assert led.view(LENGTHS, NOW_S + 2.1).free_seqs == 7


async def test_a_worker_whose_step_does_not_end_gets_nothing_more():
    """Its life signs go on, and tell how long the step has been going on; its next output is the step's end."""
    led = worker()
    led.heard(NOW_S, step_age_ms=2000)
    assert led.view(LENGTHS, NOW_S).free_seqs == 8
    led.heard(NOW_S, step_age_ms=2001)
    assert led.view(LENGTHS, NOW_S).free_seqs == 0
    led.heard(NOW_S, step_age_ms=0)
    assert led.view(LENGTHS, NOW_S).free_seqs == 8


async def test_credits_during_a_long_step_do_not_count_what_came_after_its_beginning():
    """However many come: the step that was under way at the assignment has not seen it."""
    led, one = worker(), request(40)
    led.add(one, 1.0)
    for now_s in (1.5, 2.5, 3.5):
        led.heard(now_s, step_age_ms=round((now_s - 0.9) * 1000))
        led.credited(Credit(8, 100, 0), now_s)
    assert led.view(LENGTHS, 3.5).pending_prefill_tokens == 40
    for now_s in (4.0, 4.5):
        led.heard(now_s, step_age_ms=100)
        led.credited(Credit(7, 97, 0), now_s)
    assert led.view(LENGTHS, 4.5).pending_prefill_tokens == 0


async def test_what_rolls_takes_what_a_window_takes():
    """Of a model that looks back 24 tokens a request of 400 fits ten blocks of 16: four are held back for it, until counted."""
    hello = Hello("w", "i", 1, "m", "r", b"", "fp", 10, 16, 8, 512, window_tokens=24)
    led, one = LedWorker(WorkerSession(hello, "here:1"), BEAT_S), request(400)
    led.heard(NOW_S, step_age_ms=0)
    led.credited(Credit(8, 10, 0), 0.0)
    view = led.view(LENGTHS, NOW_S)
    assert [view.blocks_of(tokens, 1) for tokens in (160, 161, 400)] == [10, 4, 4]
    assert view.blocks_of(400, 2) == 26
    led.add(one, 1.0)
    assert led.view(LENGTHS, NOW_S).free_blocks == 6
    led.saw(one.key)
    led.credited(Credit(7, 6, 0), 2.0)
    assert led.view(LENGTHS, NOW_S).free_blocks == 6
