"""Several choices of one prompt: admitted together, the prompt computed once, each choice its own from there on (B44)."""

import random
from collections.abc import Iterator, Sequence

import pytest
from structlog.testing import capture_logs

from common.domain import FinishReason, StopConditions
from common.kv_need import blocks_needed, most_tokens, shared_blocks
from common.prefix_keys import root_key
from tests.support.engines import Outcomes, make_engine, make_job, run_all, run_alone
from worker.engine.job import Job
from worker.engine.runner import Row, RowResult
from worker.faults import Fault, FaultAction, FaultyRunner
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings

ROOT = root_key(tenant="t")
N = 4


class CountingRunner(SimulatedRunner):
    """Counts the tokens that it computes."""

    num_tokens = 0

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        self.num_tokens += sum(len(row.token_ids) for row in rows)
        return super().run(rows)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with capture_logs():
        yield


def single(job: Job, index: int) -> list[int]:
    """A choice as it comes out when it is resumed alone, the others being over: it never saw them."""
    others = frozenset(range(job.sampling.n)) - {index}
    alone = make_job(
        prompt_token_ids=job.prompt_token_ids,
        stop=job.stop,
        temperature=job.sampling.temperature,
        seed=job.sampling.seed,
        n=job.sampling.n,
        finished_choices=others,
    )
    return run_all(make_engine(kv_blocks=256), [alone]).of(index=index).token_ids


@pytest.mark.parametrize("prefix_root", [ROOT, None])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 9, 30])
def test_the_prompt_is_computed_once(length: int, prefix_root: bytes | None) -> None:
    """Whatever its length is to the blocks': each other choice computes one token of it, and its own output."""
    runner = CountingRunner(SimulatedSettings(kv_blocks=128, block_size=4))
    job = make_job(
        prompt="x" * length, n=N, temperature=1.0, max_tokens=9, prefix_root=prefix_root
    )
    outcomes = run_all(make_engine(runner=runner), [job])
    assert runner.num_tokens == length + (N - 1) + N * 8
    choices = [outcomes.of(index=index).token_ids for index in range(N)]
    assert choices == [single(job, index) for index in range(N)]
    assert len({tuple(tokens) for tokens in choices}) == N
    assert sum(outcomes.of(index=index).num_prompts_told for index in range(N)) == 1


def test_full_blocks_of_the_prompt_are_held_once() -> None:
    """Three blocks shared by four choices, and what each of them writes for itself."""
    engine = make_engine(kv_blocks=64, block_size=4, max_batch_tokens=64, max_share_tokens=64)
    engine.submit(make_job(prompt="x" * 14, n=N, temperature=1.0, max_tokens=30))
    engine.step()
    assert engine.pool.num_used == 3 + N
    engine.check_integrity()
    run_all(engine)


@pytest.mark.parametrize("seed", range(4))
def test_choices_resume_where_each_of_them_was(seed: int) -> None:
    """Some at their first token, some far, some ended: the rest of each follows as if nothing had happened."""
    randomness = random.Random(seed)
    stop = StopConditions(max_tokens=25, stop=("e",) if seed % 2 else ())
    job = make_job(prompt="the wheel turns", n=N, temperature=1.0, stop=stop, prefix_root=ROOT)
    whole = run_all(make_engine(kv_blocks=128), [job])
    for _ in range(6):
        generated, finished = {}, set()
        for index in range(N):
            tokens = whole.of(index=index).token_ids
            known = randomness.randint(0, len(tokens))
            generated[index] = tuple(tokens[:known])
            if known == len(tokens) and randomness.random() < 0.5:
                finished.add(index)
        again = make_job(
            prompt="the wheel turns", n=N, temperature=1.0, stop=stop, attempt=2,
            generated=generated, finished_choices=frozenset(finished),
        )  # fmt: skip
        rest = run_all(make_engine(kv_blocks=128), [again])
        for index in set(range(N)) - finished:
            got = list(generated[index]) + rest.of(index=index).token_ids
            assert got == whole.of(index=index).token_ids
            assert rest.of(index=index).finish == whole.of(index=index).finish


def test_each_choice_has_its_own_end() -> None:
    """A stop string ends the choices that say it, when they say it; the others go on."""
    stop = StopConditions(max_tokens=60, stop=("a ", "t "))
    job = make_job(n=8, temperature=1.0, stop=stop)
    outcomes = run_all(make_engine(kv_blocks=256), [job])
    lengths = {len(outcomes.of(index=index).token_ids) for index in range(8)}
    assert len(lengths) > 2
    for index in range(8):
        outcome = outcomes.of(index=index)
        if outcome.finish.reason is FinishReason.STOP:
            assert outcome.finish.matched_stop.stop_string in stop.stop
        assert outcome.token_ids == single(job, index)


@pytest.mark.parametrize("steps", range(8))
def test_cancel_stops_all_of_them(steps: int) -> None:
    """Whenever it comes, before the prompt is through too: one finish for each choice, and every block free."""
    engine, outcomes = make_engine(kv_blocks=64), Outcomes()
    engine.submit(make_job("many", "x" * 30, n=N, temperature=1.0, max_tokens=50))
    for _ in range(steps):
        outcomes.add(engine.step())
    engine.cancel("many", 1, FinishReason.CANCELLED)
    run_all(engine, (), outcomes)
    assert {outcomes.of("many", index).finish.reason for index in range(N)} == {
        FinishReason.CANCELLED
    }


def test_admission_is_all_or_nothing() -> None:
    """With room for three of four choices none begins, in slots as in blocks, until there is room for four."""
    for limits in ({"max_seqs": 4}, {"kv_blocks": 24}):
        engine, outcomes = make_engine(**limits), Outcomes()
        engine.submit(make_job("before", "y" * 30, max_tokens=30))
        outcomes.add(engine.step())
        engine.submit(make_job("many", "x" * 20, n=N, temperature=1.0, max_tokens=8))
        while ("before", 0) not in outcomes.choices or outcomes.of("before").finish is None:
            assert engine.num_running == 1
            outcomes.add(engine.step())
            assert not any(name == "many" for name, _ in outcomes.choices)
        run_all(engine, (), outcomes)
        assert {len(outcomes.of("many", index).token_ids) for index in range(N)} == {8}


@pytest.mark.parametrize("action", [FaultAction.NAN, FaultAction.RAISE])
def test_a_failed_choice_ends_the_request(action: FaultAction) -> None:
    """Every choice ends with the reason; neighbours are undisturbed."""
    healthy = make_job("fine", "healthy", max_tokens=20)
    runner = FaultyRunner(
        SimulatedRunner(SimulatedSettings(kv_blocks=64, block_size=4)), [Fault(ord("!"), action)]
    )
    bad = make_job("bad", "xxxxxxxxxx!", n=3, temperature=1.0)
    outcomes = run_all(make_engine(runner=runner), [healthy, bad])
    reasons = {outcomes.of("bad", index).finish.failure.reason for index in range(3)}
    assert reasons == {"NUMERIC" if action is FaultAction.NAN else "ENGINE_ERROR"}
    assert outcomes.of("fine").token_ids == run_alone(healthy).token_ids


@pytest.mark.parametrize("prompt", [1, 3, 4, 5, 17])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_what_is_needed_at_most_is_what_fits(prompt: int, n: int) -> None:
    """The rule that admits and the rule that runs agree to the token, and the engine holds no more."""
    size, blocks = 4, 24
    most = most_tokens(prompt, n, blocks, size)
    assert (
        blocks_needed(prompt, most, n, size) <= blocks < blocks_needed(prompt, most + 1, n, size)
    )
    assert shared_blocks(prompt, size) * size < prompt
    engine = make_engine(kv_blocks=blocks, block_size=size)
    job = make_job("r", "x" * prompt, n=n, temperature=1.0, max_tokens=most)
    outcomes = run_all(engine, [job])
    assert {outcomes.of("r", index).finish.reason for index in range(n)} == {FinishReason.LENGTH}
    too_long = make_job("s", "x" * prompt, n=n, temperature=1.0, max_tokens=most + 1)
    refused = run_all(engine, [too_long])
    assert refused.of("s").finish.failure.reason == "DOES_NOT_FIT"
