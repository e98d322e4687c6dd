"""Filters, draws and scores by the compiled kernels: each row by itself, all its steps in one go, so that it stays in a cache."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from common.domain import SamplingParams
from worker.engine.runner import Draw, TokenScores
from worker.kernels.arrays import Array, zeros
from worker.kernels.library import KernelsMissing, instruction_sets, load
from worker.sampling.uniform import uniforms_of

_DRAW = np.dtype(
    [
        ("random", np.float64),
        ("top_p", np.float64),
        ("typical_p", np.float64),
        ("temperature", np.float32),
        ("min_p", np.float32),
        ("top_k", np.int32),
        ("token", np.int32),
    ],
    align=True,
)
"""``hk_draw`` of ``headrace_kernels.h``."""
_SCORE = np.dtype([("mass", np.float64), ("peak", np.float32), ("num_top", np.int32)], align=True)
"""``hk_score``."""
_COLDEST = float(np.finfo(np.float32).tiny)
_HOTTEST = float(np.finfo(np.float32).max)
_MOST_TOP_K = np.iinfo(np.int32).max


class HasEngine(Protocol):
    """Somebody who owns what ``hk_engine_new`` gave."""

    @property
    def engine(self) -> int | None:
        """The engine; None once it is freed."""
        ...


class KernelTeam:
    """An engine of the kernels, and its threads, for one who has no other."""

    def __init__(self, threads: int, isa: str | None = None) -> None:
        """Starts the threads, by default for the processor's best instruction set.

        Raises:
            KernelsMissing: they were not built, or memory is short.
        """
        self._library = load()
        isa = isa or instruction_sets()[0]
        self.engine: int | None = self._library.hk_engine_new(isa.encode(), threads)
        if self.engine is None:
            raise KernelsMissing(f"no kernels with {threads} threads")

    def __del__(self) -> None:
        """Ends the threads."""
        engine, self.engine = getattr(self, "engine", None), None
        if engine is not None:
            self._library.hk_engine_free(engine)


class KernelDraw:
    """Draws on the threads of an engine of the kernels, which must be idle meanwhile."""

    only_reads = True
    """The logits are as before."""

    def __init__(self, owner: HasEngine) -> None:
        """Keeps ``owner`` alive."""
        self._library = load()
        self._owner = owner
        self._scratch: Array = zeros((0,), np.float32)

    def broken_rows(self, logits: torch.Tensor) -> list[int]:
        """Rows with NaN or an infinity."""
        logits = _readable(logits)
        rows, vocab = logits.shape
        broken = np.zeros(rows, np.int32)
        found = self._library.hk_find_broken(
            self._owner.engine, logits.data_ptr(), rows, vocab, broken.ctypes.data
        )
        return np.flatnonzero(broken).tolist() if found else []

    def __call__(self, logits: torch.Tensor, draws: Sequence[Draw]) -> list[int]:
        """A token for each row of adjusted ``logits``, none of them NaN or +infinity; -1 where all are -inf."""
        logits = _readable(logits)
        wanted = _wanted(draws)
        self._library.hk_sample(
            self._owner.engine,
            logits.data_ptr(),
            len(draws),
            logits.shape[-1],
            wanted.ctypes.data,
            self._scratch_for(logits.shape[-1]),
        )
        tokens: list[int] = wanted["token"].tolist()
        return tokens

    def scores(
        self, logits: torch.Tensor, token_ids: Sequence[int], num_top: Sequence[int]
    ) -> list[TokenScores]:
        """As ``worker.sampling.scores.scores``."""
        if not token_ids:
            return []
        logits = _readable(logits.float())
        rows, vocab = logits.shape
        found = np.array([(0.0, 0.0, min(count, vocab)) for count in num_top], _SCORE)
        top = np.zeros((rows, max(1, *found["num_top"].tolist())), np.int32)
        self._library.hk_score_rows(
            self._owner.engine,
            logits.data_ptr(),
            rows,
            vocab,
            found.ctypes.data,
            top.ctypes.data,
            top.shape[1],
            self._scratch_for(vocab),
        )
        values, norms = logits.numpy(), found["peak"] + np.log(found["mass"])
        lines = np.arange(rows)
        logprobs = (values[lines, token_ids] - norms).tolist()
        best = (values[lines[:, None], top] - norms[:, None]).tolist()
        return [
            TokenScores(
                logprobs[row],
                tuple(zip(top[row, :count].tolist(), best[row][:count], strict=True)),
            )
            for row, count in enumerate(found["num_top"].tolist())
        ]

    def _scratch_for(self, vocab: int) -> int:
        """Address of memory for the work of all threads on rows of this length."""
        size = self._library.hk_sample_scratch(vocab)
        size *= self._library.hk_engine_threads(self._owner.engine)
        if len(self._scratch) < size:
            self._scratch = zeros((size,), np.float32)
        return self._scratch.ctypes.data


def _readable(logits: torch.Tensor) -> torch.Tensor:
    assert logits.device.type == "cpu"
    assert logits.dtype == torch.float32
    return logits.contiguous()


def _wanted(draws: Sequence[Draw]) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
    # In one go: behind a step nothing is in the caches, and each operation of its own costs several times what it looks.
    wanted = np.array([_as_tuple(draw.params) for draw in draws], _DRAW)
    # Temperature 0 needs no number, and a batch of such rows is the everyday case.
    if any(draw.params.temperature for draw in draws):
        wanted["random"] = uniforms_of(draws)
    return wanted


def _as_tuple(params: SamplingParams) -> tuple[float, ...]:
    """In the order of ``_DRAW``."""
    temperature = params.temperature and min(max(params.temperature, _COLDEST), _HOTTEST)
    top_k = min(params.top_k, _MOST_TOP_K)
    return 0.0, params.top_p, params.typical_p, temperature, params.min_p, top_k, 0
