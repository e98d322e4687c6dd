"""How a step is shared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.engines import TEXTS, make_job
from worker.engine.budget import StepBudget
from worker.engine.costs import StepCosts
from worker.engine.ending import EndRule
from worker.engine.plan import plan_shares
from worker.engine.sequence import Sequence
from worker.kv.block_table import BlockTable
from worker.kv.blocks import BlockPool

POOL = BlockPool(1000, 4)


def sequence(num_known: int, num_computed: int = 0) -> Sequence:
    job = make_job(prompt="x" * num_known)
    made = Sequence(
        job, 0, EndRule(job.stop, frozenset(), 100), TEXTS.text_of(job), BlockTable(POOL)
    )
    made.num_computed = num_computed
    return made


@pytest.mark.parametrize(
    ("pending", "granted"),
    [
        ([1, 1, 1], [1, 1, 1]),
        ([40], [16]),  # alone, a prompt gets the whole step
        ([40, 40], [8, 8]),
        (
            [40, 2],
            [14, 2],
        ),  # what the short one leaves goes to the long one, whom nobody waits for
        (
            [40, 1],
            [8, 1],
        ),  # a stream waits for the step's end, so a long prompt gets its share only
        ([40, 6, 1], [8, 6, 1]),
        ([40, 40, 40], [8, 8, None]),
        ([40, 40, 4, 4], [8, None, 4, 4]),  # short ones overtake long ones, but not the oldest
        ([4, 40, 40, 4], [4, 8, None, 4]),
        ([3, 5, 4], [3, 5, 4]),
    ],
)
def test_shares(pending: list[int], granted: list[int | None]) -> None:
    """Decodes, then at most 8 of 16 tokens for the oldest prompt, short prompts, other prompts."""
    sequences = [sequence(40, 40 - count) for count in pending]
    shares = plan_shares(sequences, StepBudget(16), StepCosts(), max_share=8)
    by_sequence = {id(share.sequence): share.num_tokens for share in shares}
    assert [by_sequence.get(id(item)) for item in sequences] == granted


@given(
    pending=st.lists(st.integers(1, 400), min_size=1, max_size=30),
    max_share=st.integers(1, 64),
    context_tokens=st.floats(1, 1000),
)
def test_every_step_keeps_its_promises(
    pending: list[int], max_share: int, context_tokens: float
) -> None:
    """Never above the budget; every stream gets its token; the oldest prompt advances; none takes more than it has."""
    budget, costs = 64, StepCosts(context_tokens=context_tokens)
    sequences = [sequence(400, 400 - count) for count in pending]
    shares = plan_shares(sequences, StepBudget(budget), costs, max_share=max_share)
    granted = {id(share.sequence): share.num_tokens for share in shares}
    assert len(granted) == len(shares)
    assert sum(granted.values()) <= budget
    decoding = [s for s in sequences if s.is_decoding]
    prompts = [s for s in sequences if not s.is_decoding]
    assert all(granted[id(s)] == 1 for s in decoding)
    assert all(0 < granted.get(id(s), 1) <= s.num_pending for s in prompts)
    if prompts:
        assert granted[id(prompts[0])] > 0
    if decoding:
        assert all(granted.get(id(s), 0) <= max_share for s in prompts)
    else:
        assert sum(granted.values()) == min(budget, sum(pending))


@pytest.mark.parametrize(("token_s", "prompts"), [(0.0, 63), (0.001, 50), (0.01, 16), (1e-6, 63)])
def test_streams_wait_a_bounded_time_for_prompts(token_s: float, prompts: int) -> None:
    """Beside a stream prompts get 50 ms of a step, and no less than two shares, however slow they are."""
    pending = [sequence(40) for _ in range(10)]
    costs = StepCosts(token_s=token_s)
    stream, *others = plan_shares([sequence(9, 8), *pending], StepBudget(64), costs, max_share=8)
    assert (stream.num_tokens, sum(share.num_tokens for share in others)) == (1, prompts)


@pytest.mark.parametrize(
    ("pending", "granted"),
    [
        ([60], [60]),  # it ends with the step, and nobody waits
        ([65], [20]),  # somebody may come meanwhile
        ([60, 3], [17, 3]),
        ([60, 60], [10, 10]),
    ],
)
def test_prompts_keep_nobody_waiting_without_streams_either(
    pending: list[int], granted: list[int]
) -> None:
    """A short prompt's first token does not wait for a step full of a long one; a prompt that is alone is done at once."""
    prompts = [sequence(count) for count in pending]
    costs = StepCosts(token_s=0.0025)
    shares = plan_shares(prompts, StepBudget(64), costs, max_share=10)
    assert [share.num_tokens for share in shares] == granted


def test_share_shrinks_where_a_token_costs_more() -> None:
    """A chunk far into a text takes about as long as one at its beginning, but never becomes a crumb."""
    costs = StepCosts(token_s=0.001, context_tokens=1000)
    assert [costs.chunk_tokens(128, start) for start in (0, 1000, 3000, 100_000)] == [
        128,
        64,
        32,
        16,
    ]
    assert costs.chunk_tokens(4, 100_000) == 4
    assert StepCosts().chunk_tokens(128, 100_000) == 128


def test_row_draws_only_when_nothing_stays_pending() -> None:
    """A chunk inside the prompt draws nothing; the one that ends it draws at the next position."""
    (share,) = plan_shares([sequence(20)], StepBudget(16), StepCosts(), max_share=8)
    assert (len(share.row.token_ids), share.row.draw) == (16, None)
    (share,) = plan_shares([sequence(20, 16)], StepBudget(16), StepCosts(), max_share=8)
    assert (share.row.start, len(share.row.token_ids)) == (16, 4)
    assert share.row.draw is not None
    assert share.row.draw.position == 20
