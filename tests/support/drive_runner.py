"""Drives a runner the way an engine does, in a few lines: arrivals, chunks under a budget, decode, in one step loop."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from common.domain import SamplingParams
from worker.engine.runner import Draw, Drawn, ModelRunner, Row, RowFailed


@dataclass
class Stream:
    """A prompt on its way."""

    prompt: Sequence[int]
    max_tokens: int
    params: SamplingParams = field(default_factory=lambda: SamplingParams(seed=0, temperature=0.0))
    eos_token_ids: tuple[int, ...] = ()
    arrives: int = 0
    block_ids: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    computed: int = 0
    failure: RowFailed | None = None

    @property
    def known(self) -> list[int]:
        """Prompt and tokens so far."""
        return [*self.prompt, *self.tokens]

    @property
    def done(self) -> bool:
        """Whether nothing is left to compute."""
        ended = bool(self.tokens) and self.tokens[-1] in self.eos_token_ids
        return ended or len(self.tokens) >= self.max_tokens or self.failure is not None


def _grow(stream: Stream, end: int, free: list[int], block_size: int) -> None:
    while len(stream.block_ids) * block_size < end:
        stream.block_ids.append(free.pop())


def drive(runner: ModelRunner, streams: Sequence[Stream], *, budget: int = 64) -> None:
    """Run all streams to their ends; blocks are handed out in an order that mixes the streams."""
    free = list(range(runner.num_blocks))
    step = 0
    while not all(stream.done for stream in streams):
        rows, chosen, left = [], [], budget
        for stream in streams:
            if stream.done or stream.arrives > step or left == 0:
                continue
            chunk = stream.known[stream.computed : stream.computed + left]
            left -= len(chunk)
            end = stream.computed + len(chunk)
            _grow(stream, end, free, runner.block_size)
            draw = None
            if end == len(stream.known):
                draw = Draw(stream.params, 0, len(stream.tokens))
            rows.append(Row(chunk, stream.computed, list(stream.block_ids), draw))
            chosen.append(stream)
        for stream, row, result in zip(chosen, rows, runner.run(rows), strict=True):
            stream.computed += len(row.token_ids)
            if isinstance(result, Drawn):
                stream.tokens.append(result.token_id)
            elif isinstance(result, RowFailed):
                stream.failure = result
        for stream in chosen:
            if stream.done:
                free.extend(stream.block_ids)
                stream.block_ids.clear()
        step += 1
