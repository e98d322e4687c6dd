"""Where the tokens of one step lie: in the flat batch, in the paged cache, and what each may see.

    rows     │ A: 3 tokens │ B: 1 │ C: 1 │ padding to MIN_ROWS
    batch    │ a a a       │ b    │ c    │ .
    slots    │ A's blocks  │ B's  │ C's  │ sink

Rows of one token share a padded gather (``OneToken``); longer rows are attended one by one, piece by piece (``Chunk``).
Layers with the same window share a plan, built when the first of them asks.

Products over another number of keys may sum in another order: the same context padded to 192 and to 256 keys has other
last bits on some CPUs, and so has a context that begins at another place among the keys. So which keys a token is computed
with, and how many, follows from its position alone (``key_span``): neither from who is in its batch, nor from how much of its
row is computed at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from worker.engine.runner import Row
from worker.kv.cache import PagedCache

MIN_ROWS = 4
"""torch's matrix products take another path for one or two rows, with other last bits; so no step has fewer."""

_SHORTEST, _LONGEST_STEP = 64, 512
"""Padded context lengths: powers of two from the first to the second, then multiples of the second."""

QUERY_STEP = 32
"""Padded pieces are multiples of this: torch's attention takes queries by 32 or more, a shorter rest another way."""

_WINDOW_STEP = 64
"""Layers that look back only so far take keys from a multiple of this on; what lies before the window is hidden."""

_CPU = torch.device("cpu")

_MOST_QUERIES = 128
"""In one piece: with 192 and more, torch's attention takes queries in larger blocks."""


@dataclass(frozen=True, slots=True)
class OneToken:
    """Rows that compute one token each, padded to a common context length."""

    token_index: torch.Tensor  # [rows]: where in the flat batch
    slots: torch.Tensor  # [rows, length]
    mask: torch.Tensor  # [rows, 1, 1, length], added to the scores

    def on(self, device: torch.device) -> "OneToken":
        """The same for a layer on ``device``."""
        return OneToken(
            *(
                part.to(device, non_blocking=True)
                for part in (self.token_index, self.slots, self.mask)
            )
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """Several tokens of one row, whose contexts are padded to the same length."""

    first: int
    last: int
    slots: torch.Tensor  # [length]
    mask: torch.Tensor  # [1, 1, padded tokens, length], added to the scores

    def on(self, device: torch.device) -> "Chunk":
        """The same for a layer on ``device``."""
        slots, mask = (part.to(device, non_blocking=True) for part in (self.slots, self.mask))
        return Chunk(self.first, self.last, slots, mask)


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What a layer attends to in this step."""

    one_token: Sequence[OneToken]
    chunks: Sequence[Chunk]


@dataclass(slots=True)
class StepLayout:
    """One step's tokens and positions on ``device``, where embeddings are; slots and attention plans where layers are."""

    rows: Sequence[Row]
    cache: PagedCache
    dtype: torch.dtype
    device: torch.device
    token_ids: torch.Tensor = field(init=False)
    positions: torch.Tensor = field(init=False)
    _offsets: list[int] = field(init=False)
    _flat_slots: np.ndarray[tuple[int], np.dtype[np.int64]] = field(init=False)
    _slots_on: dict[torch.device, torch.Tensor] = field(init=False, default_factory=dict)
    _plans: dict[tuple[int | None, torch.device], AttentionPlan] = field(
        init=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        counts = [len(row.token_ids) for row in self.rows]
        assert all(counts), "a row without tokens"
        self._offsets = [0, *np.cumsum(counts).tolist()]
        num_tokens = self._offsets[-1]
        padded = max(num_tokens, MIN_ROWS)
        tokens = np.zeros(padded, np.int64)
        positions = np.zeros(padded, np.int64)
        slots = np.full(padded, self.cache.sink_slot, np.int64)
        for row, first in zip(self.rows, self._offsets, strict=False):
            span = slice(first, first + len(row.token_ids))
            tokens[span] = row.token_ids
            positions[span] = np.arange(row.start, row.start + len(row.token_ids))
            slots[span] = self._slots(row, row.start, row.start + len(row.token_ids))
        self.token_ids = _tensor(tokens, self.device)
        self.positions = _tensor(positions, self.device)
        self._flat_slots = slots

    def last_tokens(self) -> list[int]:
        """Where the last token of each row lies in the flat batch."""
        return [end - 1 for end in self._offsets[1:]]

    def index_of(self, places: Sequence[int]) -> torch.Tensor:
        """Places in the flat batch as an index, padded to MIN_ROWS by repeats."""
        index = [*places, *[places[-1]] * (MIN_ROWS - len(places))]
        return _tensor(np.asarray(index, np.int64))

    def slots(self, device: torch.device) -> torch.Tensor:
        """Where in the cache the tokens of the batch go, for a layer on ``device``."""
        if device not in self._slots_on:
            self._slots_on[device] = _tensor(self._flat_slots, device)
        return self._slots_on[device]

    def plan(self, window: int | None, device: torch.device) -> AttentionPlan:
        """The plan of layers on ``device`` that see ``window`` tokens back, themselves included."""
        if (window, device) not in self._plans:
            single = [i for i, row in enumerate(self.rows) if len(row.token_ids) == 1]
            longer = [i for i, row in enumerate(self.rows) if len(row.token_ids) > 1]
            self._plans[window, device] = AttentionPlan(
                [
                    self._one_token(group, window).on(device)
                    for group in self._by_length(single, window)
                ],
                [piece.on(device) for i in longer for piece in self._pieces(i, window)],
            )
        return self._plans[window, device]

    def _by_length(self, rows: Sequence[int], window: int | None) -> list[list[int]]:
        """Rows whose contexts are padded to the same length."""
        groups: dict[int, list[int]] = {}
        for i in rows:
            _, length = key_span(self.rows[i].start, window)
            groups.setdefault(length, []).append(i)
        return [groups[key] for key in sorted(groups)]

    def _one_token(self, rows: Sequence[int], window: int | None) -> OneToken:
        _, length = key_span(self.rows[rows[0]].start, window)
        slots = np.full((len(rows), length), self.cache.zero_slot, np.int64)
        hidden = np.ones((len(rows), 1, 1, length), bool)
        for line, i in enumerate(rows):
            position = self.rows[i].start
            start, _ = key_span(position, window)
            seen = slice(_first_seen(position, window) - start, position + 1 - start)
            slots[line, seen] = self._slots(self.rows[i], start + seen.start, position + 1)
            hidden[line, ..., seen] = False
        index = np.asarray([self._offsets[i] for i in rows], np.int64)
        return OneToken(_tensor(index), _tensor(slots), self._mask(hidden))

    def _pieces(self, index: int, window: int | None) -> Iterator[Chunk]:
        row, offset = self.rows[index], self._offsets[index]
        begin, end = row.start, row.start + len(row.token_ids)
        while begin < end:
            start, length = key_span(begin, window)
            stop = min(end, begin + _MOST_QUERIES, start + length)
            if window is not None:
                stop = min(stop, start + _WINDOW_STEP + window - 1)
            yield self._chunk(row, offset + begin - row.start, begin, stop, window)
            begin = stop

    def _chunk(self, row: Row, first: int, begin: int, end: int, window: int | None) -> Chunk:
        """The tokens at positions ``begin`` .. ``end`` - 1 of a row, the first of them at ``first`` in the batch.

        All have the same span of keys.
        """
        last = first + end - begin
        start, length = key_span(begin, window)
        seen_first = _first_seen(begin, window)
        slots = np.full(length, self.cache.zero_slot, np.int64)
        slots[seen_first - start : end - start] = self._slots(row, seen_first, end)
        # Padding queries go on behind the piece's end; what they yield is thrown away.
        query = np.arange(begin, begin + _round_up(end - begin, QUERY_STEP))[:, None]
        seen = np.arange(start, start + length)[None, :]
        hidden = seen > query
        if window is not None:
            hidden |= seen <= query - window
        return Chunk(first, last, _tensor(slots), self._mask(hidden[None, None]))

    def _slots(self, row: Row, start: int, end: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Slots of the row's positions start .. end - 1; blocks before ``start`` are not looked at."""
        size = self.cache.block_size
        first = start // size
        blocks = np.asarray(row.block_ids[first : (end - 1) // size + 1], np.int64)
        slots = (blocks[:, None] * size + np.arange(size)).reshape(-1)
        return slots[start - first * size : end - first * size]

    def _mask(self, hidden: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> torch.Tensor:
        mask = torch.zeros(hidden.shape, dtype=self.dtype)
        mask.masked_fill_(torch.from_numpy(hidden), float("-inf"))
        return mask


def padded_length(length: int) -> int:
    """The number of keys with which a context of ``length`` tokens is computed."""
    if length <= _LONGEST_STEP:
        return max(_SHORTEST, 1 << (length - 1).bit_length())
    return _round_up(length, _LONGEST_STEP)


def key_span(position: int, window: int | None) -> tuple[int, int]:
    """From which position on, and with how many, keys a token at ``position`` is computed."""
    if window is None:
        return 0, padded_length(position + 1)
    start = _first_seen(position, window) // _WINDOW_STEP * _WINDOW_STEP
    most = _round_up(window - 1 + _WINDOW_STEP, _WINDOW_STEP)
    return start, min(padded_length(position + 1 - start), most)


def _tensor(
    array: np.ndarray[tuple[int, ...], np.dtype[np.int64]], device: torch.device = _CPU
) -> torch.Tensor:
    return torch.from_numpy(array).to(device, non_blocking=True)


def _first_seen(position: int, window: int | None) -> int:
    return 0 if window is None else max(0, position - window + 1)


def _round_up(length: int, step: int) -> int:
    return -(-length // step) * step
