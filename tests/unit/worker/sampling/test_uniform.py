"""The counter-based generator: known answers, and numbers that depend on their key alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from worker.sampling.uniform import _philox, _words, uniforms

SEED = st.integers(0, 2**64 - 1)
SMALL = st.integers(0, 2**32 - 1)


def test_known_answers():
    """The first words equal the published vectors of Philox 4x32-10, as far as the fourth counter word is 0."""
    low, high = _philox(_words([0]), _words([0]), _words([0]))
    assert (int(low[0]), int(high[0])) == (0x6627E8D5, 0xE169C58D)


@given(st.lists(st.tuples(SEED, SMALL, SMALL), min_size=1, max_size=20))
def test_numbers_do_not_depend_on_the_batch(keys):
    """A number drawn in a batch equals the one drawn alone, and lies in [0, 1)."""
    together = uniforms(*zip(*keys, strict=True))
    alone = [uniforms([seed], [choice], [position])[0] for seed, choice, position in keys]
    assert together.tolist() == alone
    assert ((together >= 0) & (together < 1)).all()


def test_seed_choice_and_position_all_matter():
    """Changing any part of the key changes the number; large seeds use all 64 bits."""
    keys = [
        (1, 0, 0),
        (2, 0, 0),
        (1, 1, 0),
        (1, 0, 1),
        (1 + 2**32, 0, 0),
        (1, 0, 2**32),
        (-1, 0, 0),
    ]
    assert len(set(uniforms(*zip(*keys, strict=True)).tolist())) == len(keys)


def test_numbers_are_uniform():
    """Over positions of one seed, every twentieth of [0, 1) gets its share."""
    numbers = uniforms([7] * 40_000, [0] * 40_000, range(40_000))
    counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
    assert abs(counts - 2000).max() < 5 * 2000**0.5
