"""A decoder as the kernels see it: structures that point into packed weights and the KV pool."""

import ctypes
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Self

import numpy as np
import numpy.typing as npt

from worker.engine.runner import Row
from worker.kernels.arrays import Array, round_up, zeros
from worker.kernels.library import KernelsMissing, load
from worker.kernels.structs import KvFormat, Layer, Model, Step
from worker.model.lean.pool_blocks import PoolBlocks
from worker.model.lean.spec import LeanSpec
from worker.model.lean.weights import LayerWeights, LeanWeights

_DIM_STEP = 32
_BYTES = {KvFormat.BFLOAT16: 2, KvFormat.INT8: 1}

Logits = npt.NDArray[np.float32]


def block_bytes(spec: LeanSpec, block_size: int, kv: KvFormat) -> int:
    """Memory of one KV block in all layers."""
    dim_bytes = round_up(spec.head_dim, _DIM_STEP) * _BYTES[kv]
    if kv is KvFormat.INT8:
        dim_bytes += np.dtype(np.float32).itemsize
    return 2 * spec.num_layers * block_size * spec.kv_heads * dim_bytes


def scratch_bytes(spec: LeanSpec, tokens: int, logits: int) -> int:
    """About what a step of this size needs beside the weights and the pool."""
    qkv = (spec.heads + 2 * spec.kv_heads) * spec.head_dim
    numbers = 2 * spec.hidden + qkv + spec.heads * spec.head_dim + spec.head_dim
    return 4 * tokens * numbers + 2 * tokens * spec.intermediate + 8 * logits * spec.vocab


class LeanDecoder:
    """Runs steps on the kernels of one instruction set; owns the weights, the KV pool and its threads."""

    def __init__(
        self,
        spec: LeanSpec,
        weights: LeanWeights,
        *,
        isa: str,
        threads: int,
        num_blocks: int,
        block_size: int,
        kv: KvFormat = KvFormat.BFLOAT16,
    ) -> None:
        """Takes the pool's memory and starts the threads.

        Raises:
            KernelsMissing: the processor cannot run ``isa``.
        """
        self.spec, self.isa, self.kv = spec, isa, kv
        self.num_blocks, self.block_size = num_blocks, block_size
        self._library = load()
        self._engine = self._library.hk_engine_new(isa.encode(), threads)
        if not self._engine:
            raise KernelsMissing(f"no kernels for {isa} with {threads} threads")
        self.weights = weights
        self._pool = [_LayerPool.of(spec, kv, num_blocks * block_size) for _ in spec.windows]
        parts = (part for layer in self._pool for part in layer.parts)
        self.blocks = PoolBlocks(parts, num_blocks)
        self._layers = (Layer * spec.num_layers)(
            *(
                _layer(layer, pool, window)
                for layer, pool, window in zip(
                    weights.layers, self._pool, spec.windows, strict=True
                )
            )
        )
        self._model = _model(spec, weights, self._layers, block_size, kv)

    @property
    def engine(self) -> int:
        """The kernels' engine, for what else its threads can do between steps."""
        assert self._engine is not None
        return int(self._engine)

    @property
    def num_threads(self) -> int:
        """Threads that compute, the caller's included."""
        return int(self._library.hk_engine_threads(self._engine))

    def logits(self, rows: Sequence[Row], wanted: Sequence[int]) -> Logits:
        """Compute ``rows``; logits [wanted, vocabulary] after the last token of each of the ``wanted`` rows."""
        last = np.cumsum([len(row.token_ids) for row in rows]) - 1
        return self.logits_after(rows, [int(last[row]) for row in wanted])

    def logits_after(
        self, rows: Sequence[Row], places: Sequence[int], out: Logits | None = None
    ) -> Logits:
        """Compute ``rows``; logits [places, vocabulary] behind the tokens at these ``places`` of the flat batch, in
        ``out`` or in new memory. There are no more places than tokens."""
        arrays = _StepArrays.of(rows, places)
        assert len(places) <= len(arrays.token_ids), "the kernels have no room for so many"
        shape = (len(places), self.spec.vocab)
        logits: Logits = np.empty(shape, np.float32) if out is None else out
        assert logits.shape == shape, (logits.shape, shape)
        step = arrays.struct(logits)
        if self._library.hk_run(self._engine, ctypes.byref(self._model), ctypes.byref(step)):
            raise MemoryError("no memory for a step of the kernels")
        return logits

    def part_times_ns(self) -> dict[str, int]:
        """Time spent in each part of the steps since the last call."""
        names = self._library.hk_part_names().decode().split()
        times = np.zeros(len(names), np.int64)
        self._library.hk_part_times(self._engine, times.ctypes.data)
        return dict(zip(names, times.tolist(), strict=True))

    def __del__(self) -> None:
        """Ends the threads before the memory that they read goes."""
        engine, self._engine = getattr(self, "_engine", None), None
        if engine:
            self._library.hk_engine_free(engine)


@dataclass(frozen=True, slots=True)
class _LayerPool:
    """One layer's keys and values, with scales where their format has them."""

    keys: Array
    values: Array
    scales: Array | None

    @property
    def parts(self) -> list[Array]:
        """All that it consists of."""
        scales = [] if self.scales is None else [self.scales]
        return [self.keys, self.values, *scales]

    @classmethod
    def of(cls, spec: LeanSpec, kv: KvFormat, tokens: int) -> Self:
        """Room for ``tokens``."""
        size = tokens * spec.kv_heads * round_up(spec.head_dim, _DIM_STEP)
        dtype = np.uint8 if kv is KvFormat.INT8 else np.uint16
        scales = zeros((2 * tokens * spec.kv_heads,), np.float32) if kv is KvFormat.INT8 else None
        return cls(zeros((size,), dtype), zeros((size,), dtype), scales)


def _address(array: Array | None) -> int | None:
    return None if array is None else array.ctypes.data


def _layer(weights: LayerWeights, pool: _LayerPool, window: int) -> Layer:
    return Layer(
        _address(weights.attention_norm),
        _address(weights.mlp_norm),
        _address(weights.query_norm),
        _address(weights.key_norm),
        weights.qkv.struct,
        weights.out.struct,
        weights.gate_up.struct,
        weights.down.struct,
        _address(pool.keys),
        _address(pool.values),
        _address(pool.scales),
        window,
        0,
    )


def _model(
    spec: LeanSpec,
    weights: LeanWeights,
    layers: "ctypes.Array[Layer]",
    block_size: int,
    kv: KvFormat,
) -> Model:
    return Model(
        layers,
        weights.embedding.struct,
        weights.head.struct,
        weights.final_norm.ctypes.data,
        weights.inverse_frequencies.ctypes.data,
        spec.rope_factor,
        spec.norm_epsilon,
        spec.head_dim**-0.5,
        spec.num_layers,
        spec.hidden,
        spec.vocab,
        spec.heads,
        spec.kv_heads,
        spec.head_dim,
        spec.intermediate,
        block_size,
        kv,
    )


@dataclass(frozen=True, slots=True)
class _StepArrays:
    """A step's rows as flat arrays.

    rows         │ A: 3 tokens │ B: 1 │ C: 1 │
    token_ids    │ a a a       │ b    │ c    │
    row_first    │ 0           │ 3    │ 4    │ 5
    tables       │ A's blocks  │ B's  │ C's  │
    """

    token_ids: "array[int]"
    positions: "array[int]"
    rows: "array[int]"
    row_first: "array[int]"
    table_first: "array[int]"
    tables: "array[int]"
    logit_tokens: "array[int]"

    @classmethod
    def of(cls, rows: Sequence[Row], places: Sequence[int]) -> "_StepArrays":
        # Not numpy's: for some dozen numbers its calls take longer, and behind a step nothing of them is in the caches.
        token_ids, positions, index = array("i"), array("i"), array("i")
        row_first, table_first, tables = array("i", [0]), array("i"), array("i")
        for number, row in enumerate(rows):
            count = len(row.token_ids)
            assert count, "a row without tokens"
            token_ids.extend(row.token_ids)
            positions.extend(range(row.start, row.start + count))
            index.extend(repeat(number, count))
            row_first.append(len(token_ids))
            table_first.append(len(tables))
            tables.extend(row.block_ids)
        return cls(token_ids, positions, index, row_first, table_first, tables, array("i", places))

    def struct(self, logits: Logits) -> Step:
        arrays = (
            self.token_ids,
            self.positions,
            self.rows,
            self.row_first,
            self.table_first,
            self.tables,
            self.logit_tokens,
        )
        return Step(
            *(one.buffer_info()[0] for one in arrays),
            logits.ctypes.data,
            len(self.token_ids),
            len(self.table_first),
            len(self.logit_tokens),
        )
