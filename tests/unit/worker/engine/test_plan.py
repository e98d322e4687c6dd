"""How a step is shared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.engines import TEXTS, make_job
from worker.engine.budget import StepBudget
from worker.engine.costs import MAX_WAIT_S, StepCosts
from worker.engine.ending import EndRule
from worker.engine.plan import Share, plan_shares
from worker.engine.sequence import Sequence
from worker.engine.step_times import StepTimes
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


# 1 ms for a token and 8 ms for up to 10 decodes; a prompt of more than 500 tokens is a long one.
SLOW = StepCosts(token_s=0.001, context_tokens=1000, decodes=StepTimes(((1, ((0.0, 0.008),)),)))


def taken_s(costs: StepCosts, share: Share) -> float:
    start = share.sequence.num_computed
    return share.num_tokens * costs.token_s * (1 + start / costs.context_tokens)


@given(
    num_computed=st.integers(0, 8000),
    num_decodes=st.integers(0, 40),
    decode_s=st.floats(0, 0.05),
    each_s=st.floats(0, 0.005),
    token_s=st.floats(1e-4, 1e-2),
    context_tokens=st.floats(100, 1e6),
    num_short=st.integers(0, 3),
    expects_others=st.booleans(),
)
def test_a_long_prompt_beside_others_takes_no_longer_than_the_decodes_do(
    num_computed: int,
    num_decodes: int,
    decode_s: float,
    each_s: float,
    token_s: float,
    context_tokens: float,
    num_short: int,
    expects_others: bool,
) -> None:
    """Or than one, where there are none; however far it has got. One token at least, so that it comes to its end; and
    where nobody is there or expected, as many as without this rule."""
    line = ((1, ((0.0, decode_s + each_s),)), (16, ((0.0, decode_s + 16 * each_s),)))
    costs = StepCosts(token_s, context_tokens, decodes=StepTimes(line))
    long_one = sequence(14_000, num_computed)
    long_one.num_found = 0
    others = [sequence(9, 8) for _ in range(num_decodes)] + [sequence(5) for _ in range(num_short)]
    shares = plan_shares(
        [long_one, *others], StepBudget(512), costs, max_share=128, expects_others=expects_others
    )
    (share,) = (share for share in shares if share.sequence is long_one)
    if others or expects_others:
        bound_s = decode_s + max(1, num_decodes) * each_s
        assert share.num_tokens == 1 or taken_s(costs, share) <= bound_s * (1 + 1e-9)
        # The rule takes no more than it must.
        cap = costs.chunk_tokens(128, num_computed)
        assert share.num_tokens == cap or taken_s(costs, share) * 2 >= bound_s * (1 - 1e-9)
    else:
        assert share.num_tokens <= 16 or taken_s(costs, share) <= MAX_WAIT_S * (1 + 1e-9)
        assert share.num_tokens == 512 or taken_s(costs, share) * 2 >= MAX_WAIT_S
    assert len(shares) == 1 + len(others)  # nobody is left out for it


@pytest.mark.parametrize(
    ("pending", "expects_others", "granted"),
    [
        ([600, 1], False, [8, 1]),
        ([600, 1, 20], False, [8, 1, 20]),
        ([600, 20], False, [8, 20]),  # the short one's first token waits for no more than that
        ([400, 1], False, [20, 1]),  # not a long one
        ([600], False, [50]),
        ([600], True, [8]),
        ([600, 600], False, [30, 20]),  # long ones do not mind one another
        ([600, 600], True, [8, 8]),
        ([600, 600, 1], False, [8, 8, 1]),
    ],
)
def test_a_long_prompt_makes_way_for_others(
    pending: list[int], expects_others: bool, granted: list[int]
) -> None:
    """Streams, short prompts, and such as are expected; alone it has the time that prompts have."""
    sequences = [sequence(count) if count > 1 else sequence(9, 8) for count in pending]
    shares = plan_shares(
        sequences, StepBudget(512), SLOW, max_share=20, expects_others=expects_others
    )
    by_sequence = {share.sequence: share.num_tokens for share in shares}
    assert [by_sequence[item] for item in sequences] == granted


def test_a_prompt_stays_long_to_its_end() -> None:
    """The last tokens of a long prompt would delay others as much as the first, but a text that was found is not its."""
    stream = sequence(9, 8)
    rest, found = sequence(600, 500), sequence(600, 500)
    found.num_found = 500
    for one, granted in ((rest, 5), (found, 16)):
        shares = plan_shares([one, stream], StepBudget(512), SLOW, max_share=20)
        assert {share.sequence: share.num_tokens for share in shares} == {one: granted, stream: 1}


def test_row_draws_only_when_nothing_stays_pending() -> None:
    """A chunk inside the prompt draws nothing; the one that ends it draws at the next position."""
    (share,) = plan_shares([sequence(20)], StepBudget(16), StepCosts(), max_share=8)
    assert (len(share.row.token_ids), share.row.draw) == (16, None)
    (share,) = plan_shares([sequence(20, 16)], StepBudget(16), StepCosts(), max_share=8)
    assert (share.row.start, len(share.row.token_ids)) == (16, 4)
    assert share.row.draw is not None
    assert share.row.draw.position == 20
