"""How a step is shared."""

import pytest

from tests.support.engines import TEXTS, make_job
from worker.engine.budget import StepBudget
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
        ([40, 2], [14, 2]),  # what the short one leaves goes to the long one
        ([40, 1], [15, 1]),  # a decode comes before every prompt
        ([40, 40, 40], [8, 8, None]),
        ([3, 5, 4], [3, 5, 4]),
    ],
)
def test_shares(pending: list[int], granted: list[int | None]) -> None:
    """Decodes first, then at most 8 of 16 tokens for each prompt, then what is left over to the oldest."""
    sequences = [sequence(40, 40 - count) for count in pending]
    shares = plan_shares(sequences, StepBudget(16), max_share=8)
    by_sequence = {id(share.sequence): share.num_tokens for share in shares}
    assert [by_sequence.get(id(item)) for item in sequences] == granted


def test_row_draws_only_when_nothing_stays_pending() -> None:
    """A chunk inside the prompt draws nothing; the one that ends it draws at the next position."""
    (share,) = plan_shares([sequence(20)], StepBudget(16), max_share=8)
    assert (len(share.row.token_ids), share.row.draw) == (16, None)
    (share,) = plan_shares([sequence(20, 16)], StepBudget(16), max_share=8)
    assert (share.row.start, len(share.row.token_ids)) == (16, 4)
    assert share.row.draw is not None
    assert share.row.draw.position == 20
