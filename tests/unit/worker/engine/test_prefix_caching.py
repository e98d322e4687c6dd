"""Prefix caching over the simulated runner: the same tokens with and without, and nothing found that may not be."""

import random
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from common.domain import FinishReason
from common.prefix_keys import block_keys, root_key
from tests.support.engines import Outcomes, make_engine, make_job, run_all, run_alone
from tests.support.fake_clock import FakeClock
from worker.engine.engine import Engine
from worker.faults import Fault, FaultAction, FaultyRunner
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings

ROOT = root_key(tenant="a")
TEXT = "The miller opens the gate, and the water comes down the channel to the wheel."


def cached_tokens(engine: Engine, name: str, prompt: str, root: bytes | None = ROOT) -> int:
    """Run one request; how many of its prompt's tokens were found."""
    outcomes = run_all(engine, [make_job(name, prompt, prefix_root=root)])
    assert outcomes.of(name).token_ids == run_alone(make_job(name, prompt)).token_ids
    return outcomes.of(name).cached_tokens


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Rendering the errors on purpose would take most of the time."""
    with capture_logs():
        yield


@pytest.mark.parametrize("num_shared", range(0, 41, 3))
def test_what_two_prompts_share_is_computed_once(num_shared: int) -> None:
    """Full blocks of four tokens, of the prompt's beginning only."""
    engine = make_engine()
    assert cached_tokens(engine, "first", TEXT[:40]) == 0
    other = TEXT[:num_shared] + "#" * 20
    assert cached_tokens(engine, "second", other) == num_shared // 4 * 4


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 40])
def test_a_known_prompt_still_computes_its_last_token(length: int) -> None:
    """The first token is drawn from it, so at least one token stays to compute, in a block of its own."""
    engine = make_engine()
    cached_tokens(engine, "first", TEXT[:length])
    assert cached_tokens(engine, "again", TEXT[:length]) == (length - 1) // 4 * 4


def test_a_conversation_finds_its_own_answers() -> None:
    """Generated tokens are found too when they come back as part of the next prompt."""
    engine = make_engine(kv_blocks=128)
    first = run_all(engine, [make_job("turn1", TEXT[:20], max_tokens=21, prefix_root=ROOT)])
    history = tuple(TEXT[:20].encode()) + tuple(first.of("turn1").token_ids)
    job = make_job("turn2", "", prefix_root=ROOT, prompt_token_ids=(*history, 65, 66))
    second = run_all(engine, [job])
    assert second.of("turn2").cached_tokens == 40
    assert second.of("turn2").token_ids == run_alone(job).token_ids


@pytest.mark.parametrize(
    "root",
    [
        root_key(tenant="b"),
        root_key(tenant="a", salt="s"),
        root_key(tenant="a", revision="r"),
        None,
    ],
)
def test_nobody_finds_what_is_not_theirs(root: bytes | None) -> None:
    """Another tenant, salt or revision finds nothing; neither does a request that goes past the cache."""
    engine = make_engine()
    cached_tokens(engine, "first", TEXT[:40])
    assert cached_tokens(engine, "other", TEXT[:40], root) == 0
    assert cached_tokens(engine, "same", TEXT[:40]) == 36


def test_what_goes_past_the_cache_leaves_nothing_in_it() -> None:
    """Nor does anything when the cache is switched off."""
    engine = make_engine()
    cached_tokens(engine, "first", TEXT[:40], None)
    assert cached_tokens(engine, "second", TEXT[:40]) == 0
    engine = make_engine(prefix_cache=False)
    cached_tokens(engine, "first", TEXT[:40])
    assert cached_tokens(engine, "second", TEXT[:40]) == 0


@pytest.mark.parametrize("action", [FaultAction.NAN, FaultAction.RAISE])
def test_nothing_of_a_failed_row_is_found(action: FaultAction) -> None:
    """Not its earlier chunks, nor what it had found itself: that may be what spoiled it."""
    runner = FaultyRunner(
        SimulatedRunner(SimulatedSettings(kv_blocks=64, block_size=4)), [Fault(ord("!"), action)]
    )
    engine = make_engine(runner=runner)
    cached_tokens(engine, "sound", TEXT[:20])
    bad = make_job("bad", TEXT[:40] + "!", prefix_root=ROOT)
    assert run_all(engine, [bad]).of("bad").finish.reason is FinishReason.ERROR
    assert cached_tokens(engine, "again", TEXT[:40]) == 0


def test_unwanted_blocks_go_after_their_time() -> None:
    """Nobody wanted them for the whole time: they are told as evicted and not found."""
    clock = FakeClock()
    engine = make_engine(clock=clock, cache_ttl_s=60.0)
    cached_tokens(engine, "first", TEXT[:40])
    assert cached_tokens(engine, "other", "?", None) == 0
    clock.advance(61)
    assert cached_tokens(engine, "again", TEXT[:40]) == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_small_cache_under_load_changes_no_token(seed: int) -> None:
    """Prompts that share beginnings, more of them than the pool holds, cancelled and given back at random."""
    randomness = random.Random(seed)
    engine, outcomes, jobs, told = make_engine(kv_blocks=40), Outcomes(), {}, set()
    hits = queries = 0
    for number in range(60):
        prompt = TEXT[: randomness.randint(1, 60)] + "xyz"[: randomness.randint(0, 3)]
        name = f"r{number}"
        jobs[name] = make_job(name, prompt, max_tokens=randomness.randint(1, 20), prefix_root=ROOT)
        engine.submit(jobs[name])
        if randomness.random() < 0.2:
            engine.cancel(f"r{randomness.randint(0, number)}", 1, FinishReason.CANCELLED)
        for _ in range(randomness.randint(0, 4)):
            report = engine.step()
            outcomes.add(report)
            told.difference_update(report.cache.evicted)
            told.update(report.cache.added)
            queries += report.cache.queried_tokens
            hits += report.cache.hit_tokens
            engine.check_integrity()
    run_all(engine, (), outcomes)
    assert 0 < hits < queries
    for (name, _), outcome in outcomes.choices.items():
        alone = run_alone(jobs[name]).token_ids
        assert outcome.token_ids == alone[: len(outcome.token_ids)]
        if outcome.finish.reason is FinishReason.LENGTH:
            assert outcome.token_ids == alone


def test_a_new_listener_is_told_everything() -> None:
    """A session that begins hears what the cache holds, though nothing runs; a reset alone tells nothing."""
    engine = make_engine()
    cached_tokens(engine, "first", TEXT[:40])
    engine.submit(make_job("second", TEXT[:20], prefix_root=ROOT))
    engine.step()
    engine.reset()
    assert not engine.has_work
    engine.cache.tell_everything()
    assert engine.has_work
    report = engine.step()
    assert len(report.cache.added) == len(engine.cache) > 0
    assert not report.outputs
    assert not engine.has_work


class Shelf(dict[bytes, bytes]):
    """A lower tier that keeps everything."""

    def save(self, key: bytes, content: bytes) -> None:
        self[key] = content

    def load(self, key: bytes) -> bytes | None:
        return self.get(key)


def test_what_left_the_cache_comes_back_from_below() -> None:
    """Evicted blocks are found below, up to the first that is not there, and give the same tokens; nobody else's do."""
    shelf = Shelf()
    engine = make_engine(kv_blocks=16, lower=shelf)
    cached_tokens(engine, "first", TEXT[:30])
    for number in range(4):
        cached_tokens(engine, f"other{number}", f"{number}" + TEXT[:40])
    keys = list(block_keys(ROOT, TEXT[:30].encode(), 4))
    assert set(keys) <= set(shelf)
    assert cached_tokens(engine, "again", TEXT[:30]) == 28
    assert cached_tokens(engine, "stranger", TEXT[:30], root_key(tenant="b")) == 0
    for number in range(4):
        cached_tokens(engine, f"another{number}", f"{number}" + TEXT[:40])
    del shelf[keys[2]]
    assert cached_tokens(engine, "with a hole", TEXT[:30]) == 8
