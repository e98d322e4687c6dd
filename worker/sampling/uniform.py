"""Random numbers without a state: Philox 4x32-10 over (seed, choice, position).

The number for a token depends on nothing else, so a request that resumes at token k, on another worker and among
other batch mates, continues the same stream.

    key       seed, 64 bits
    counter   position (64 bits) │ choice (32 bits) │ 0
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from worker.engine.runner import Draw

Words = npt.NDArray[np.uint64]

_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_ROUNDS = 10


def uniforms(
    seeds: Sequence[int], choices: Sequence[int], positions: Sequence[int]
) -> npt.NDArray[np.float64]:
    """One number in [0, 1) with 53 random bits for each (seed, choice, position)."""
    low, high = _philox(_words(seeds), _words(positions), _words(choices))
    bits = (low >> np.uint64(5)) << np.uint64(26) | (high >> np.uint64(6))
    return bits.astype(np.float64) * 2.0**-53


def uniforms_of(draws: Sequence[Draw]) -> npt.NDArray[np.float64]:
    """The number of each of ``draws``."""
    return uniforms(
        [draw.params.seed for draw in draws],
        [draw.choice for draw in draws],
        [draw.position for draw in draws],
    )


def _words(values: Sequence[int]) -> Words:
    return np.array([value & (1 << 64) - 1 for value in values], dtype=np.uint64)


def _philox(key: Words, position: Words, choice: Words) -> tuple[Words, Words]:
    """The first two words of a block; every word holds 32 bits in a uint64, so that products fit."""
    k0, k1 = key & _LOW, key >> _SHIFT
    c0, c1, c2 = position & _LOW, position >> _SHIFT, choice & _LOW
    c3 = np.zeros_like(c0)
    for _ in range(_ROUNDS):
        left, right = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (right >> _SHIFT) ^ c1 ^ k0,
            right & _LOW,
            (left >> _SHIFT) ^ c3 ^ k1,
            left & _LOW,
        )
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1
