"""``python -m tests.bench.long_prompt_plan``: the same as ``long_prompt`` for the plan of steps alone, in simulated time (B36).

The engine over the simulated runner, whose steps take as long as those of the default model in int8 on one core, on a clock that
only they move: nothing but what a step holds decides the figures, and they are the same on every machine. A token of a prompt
costs twice as much ``DOUBLING_TOKENS`` further on. A line for each length of the long prompts and rate of chats.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from common.domain import SamplingParams, StopConditions
from tests.bench.long_prompt import CHAT_PROMPT_TOKENS, LONG_OUTPUT_TOKENS
from tests.bench.measure import Answer, Figures, figures_of
from tests.support.engines import TEXTS
from tests.support.fake_clock import FakeClock
from worker.engine.costs import StepCosts
from worker.engine.engine import Engine
from worker.engine.job import Job, Ticket
from worker.engine.limits import EngineLimits
from worker.engine.runner import Row, RowResult
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings

CONTEXT_TOKENS, DOUBLING_TOKENS, CHAT_TOKENS, EVERY_S = 8192, 4096, 32, 5.0


class AttentiveRunner(SimulatedRunner):
    """Takes longer for tokens that look back at more."""

    def __init__(self, settings: SimulatedSettings, clock: FakeClock) -> None:
        super().__init__(settings, sleep=clock.advance)
        self._clock = clock

    @property
    def costs(self) -> StepCosts:
        """What it takes."""
        return replace(super().costs, context_tokens=DOUBLING_TOKENS)

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        """Compute the rows, and add what looking back takes."""
        looks = sum(row.start * len(row.token_ids) for row in rows if len(row.token_ids) > 1)
        self._clock.advance(self.costs.token_s * looks / DOUBLING_TOKENS)
        return super().run(rows)


@dataclass
class Load:
    """Requests that come at set moments, and what came of them."""

    engine: Engine
    clock: FakeClock
    due: list[tuple[float, str, int, int]]
    sent_s: dict[str, float] = field(default_factory=dict)
    arrivals: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    def run(self) -> None:
        """To the end of all of them."""
        began_s = self.clock()
        while self.due or self.engine.has_work:
            while self.due and began_s + self.due[0][0] <= self.clock():
                self._send(began_s, *self.due.pop(0))
            if not self.engine.has_work:
                self.clock.advance(max(0.0, began_s + self.due[0][0] - self.clock()))
                continue
            for output in self.engine.step().outputs:
                if output.token_ids:
                    found = self.arrivals.setdefault(output.ticket.request_id, [])
                    found.append((self.clock(), len(output.token_ids)))

    def answers(self, kind: str) -> list[Answer]:
        """Of the requests of this kind."""
        return [
            Answer(sent_s, self.arrivals[name])
            for name, sent_s in self.sent_s.items()
            if name.startswith(kind)
        ]

    def _send(self, began_s: float, at_s: float, name: str, prompt: int, tokens: int) -> None:
        self.sent_s[name] = began_s + at_s
        stop = StopConditions(max_tokens=tokens, ignore_eos=True)
        ids = tuple(random.Random(name).choices(range(32, 120), k=prompt))
        self.engine.submit(Job(Ticket(name, 1, 1), ids, SamplingParams(seed=1), stop))


def run(
    share: int, rate: float, seconds: float, long_tokens: int | None
) -> tuple[Figures, list[float]]:
    """The chats' figures, beside long prompts or without, and the time that each of those took."""
    clock = FakeClock()
    speed = SimulatedSettings(
        kv_blocks=8 * CONTEXT_TOKENS // 16, step_ms=8, prefill_tokens_per_s=2800
    )
    runner = AttentiveRunner(speed, clock)
    limits = EngineLimits(64, 512, share, CONTEXT_TOKENS, frozenset())
    engine = Engine(runner, limits, TEXTS.text_of, clock, runner.costs)
    long_ones = _long_ones(seconds, long_tokens) if long_tokens else ()
    load = Load(engine, clock, sorted([*_chats(rate, seconds), *long_ones]))
    load.run()
    took_s = [one.arrivals[-1][0] - one.sent_s for one in load.answers("long")]
    return figures_of(load.answers("chat"), 0, CHAT_TOKENS), took_s


def _chats(rate: float, seconds: float) -> Iterator[tuple[float, str, int, int]]:
    rng = random.Random(7)
    for number in range(int(seconds * rate)):
        yield number / rate, f"chat {number}", rng.randint(*CHAT_PROMPT_TOKENS), CHAT_TOKENS


def _long_ones(seconds: float, num_tokens: int) -> Iterator[tuple[float, str, int, int]]:
    for number in range(int(seconds / EVERY_S)):
        yield EVERY_S * number + 0.1, f"long {number}", num_tokens, LONG_OUTPUT_TOKENS


def main() -> None:
    """Print a line for each length and rate."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", default="2048,4096", help="tokens of a long prompt")
    parser.add_argument("--rates", default="1,4", help="chats a second")
    parser.add_argument("--share", type=int, default=128, help="--max-share-tokens")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    names = ("ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms")
    print(f"long  chats/s  {'  '.join(f'{name[:-3]:>20}' for name in names)}  long, s")
    for length in map(int, options.lengths.split(",")):
        for rate in map(float, options.rates.split(",")):
            calm, _ = run(options.share, rate, options.seconds, None)
            beside, took_s = run(options.share, rate, options.seconds, length)
            pairs = [(calm.as_dict()[name], beside.as_dict()[name]) for name in names]
            told = "  ".join(f"{a:5.0f} {b:6.0f}  x{b / a:5.1f}" for a, b in pairs)
            print(f"{length:4}  {rate:7.1f}  {told}  {max(took_s):7.1f}", flush=True)


if __name__ == "__main__":
    main()
