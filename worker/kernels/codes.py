"""Weights as names of 16 values (nf4, fp4), in the order of their kernel, `src/codes.h`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from worker.kernels.arrays import Array, Packed, round_up, take_rows, zeros
from worker.kernels.library import load
from worker.kernels.structs import WeightFormat

GROUP = 64
"""Inputs that share a scale."""

LEVELS = {
    WeightFormat.NF4: (-124, -86, -65, -49, -35, -23, -11, 0, 10, 20, 31, 42, 55, 70, 90, 124),
    WeightFormat.FP4: (0, 1, 80, 120, 40, 60, 20, 30, 0, -1, -80, -120, -40, -60, -20, -30),
}
"""What each code is worth, in steps: the tables of ``codes.h``."""

STEPS = {WeightFormat.NF4: 124.11, WeightFormat.FP4: 120.0}
"""Steps of a group's largest magnitude. Rounded to them, bitsandbytes' values are off by 0.4 % of it at most. Of all numbers
of steps that fit in a byte these add least to the error that the formats have anyway: 0.3 % and 0.1 % of its square."""


@dataclass(frozen=True, slots=True)
class Codes:
    """Weights [n, k] as codes, and the largest magnitude of each group: float16 [n, k / 64 rounded up]."""

    format: WeightFormat
    codes: npt.NDArray[np.uint8]
    scales: Array

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Rows of several tensors of one format, one tensor after another."""
        codes = np.concatenate([part.codes for part in parts])
        return cls(parts[0].format, codes, np.concatenate([part.scales for part in parts]))

    def rows(self, index: npt.NDArray[np.intp]) -> "Codes":
        """Some rows, in another order; -1 stands for a row of zeros."""
        return Codes(self.format, self.codes[index], take_rows(self.scales, index))

    def values(self) -> npt.NDArray[np.float32]:
        """What the kernels multiply by."""
        n, k = self.codes.shape
        levels = (np.array(LEVELS[self.format]) / STEPS[self.format]).astype(np.float32)[
            self.codes
        ]
        scales = self.scales.astype(np.float32).repeat(GROUP, axis=1)[:n, :k]
        return levels * scales


def pack_codes(codes: Codes) -> Packed:
    """Two codes a byte, and a scale for each output and 64 inputs."""
    n, k = codes.codes.shape
    names, scales = np.ascontiguousarray(codes.codes), np.ascontiguousarray(codes.scales)
    out = zeros((round_up(n) * round_up(k) // GROUP * (GROUP // 2 + 2),), np.uint8)
    load().hk_pack_codes4(names.ctypes.data, scales.ctypes.data, n, k, out.ctypes.data)
    return Packed(codes.format, out, round_up(n), round_up(k))
