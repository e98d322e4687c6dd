"""``python -m tests.bench.long_prompt_plan``: the same as ``long_prompt`` for the plan of steps alone, in simulated time (B36).

The engine over the simulated runner, whose steps take as long as those of the default model in int8 on one core, on a clock that
only they move: nothing but what a step holds decides the figures, and they are the same on every machine. A line for each share
(``--max-share-tokens`` of a worker) and rate of chats.
"""

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from common.domain import SamplingParams, StopConditions
from tests.bench.long_prompt import CHAT_PROMPT_TOKENS, LONG_OUTPUT_TOKENS
from tests.bench.measure import Answer, Figures, figures_of
from tests.support.engines import TEXTS
from tests.support.fake_clock import FakeClock
from worker.engine.engine import Engine
from worker.engine.job import Job, Ticket
from worker.engine.limits import EngineLimits
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings

CONTEXT_TOKENS, CHAT_TOKENS, EVERY_S = 8192, 32, 5.0


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


def run(share: int, rate: float, seconds: float, *, is_calm: bool) -> tuple[Figures, float]:
    """The chats' figures, and the longest time that a long prompt took."""
    clock = FakeClock()
    speed = SimulatedSettings(
        kv_blocks=8 * CONTEXT_TOKENS // 16, step_ms=8, prefill_tokens_per_s=2800
    )
    runner = SimulatedRunner(speed, sleep=clock.advance)
    limits = EngineLimits(64, 512, share, CONTEXT_TOKENS, frozenset())
    engine = Engine(runner, limits, TEXTS.text_of, clock, runner.costs)
    requests = [*_chats(rate, seconds), *(() if is_calm else _long_ones(seconds))]
    load = Load(engine, clock, sorted(requests))
    load.run()
    took_s = [one.arrivals[-1][0] - one.sent_s for one in load.answers("long")]
    return figures_of(load.answers("chat"), 0, CHAT_TOKENS), max(took_s, default=0.0)


def _chats(rate: float, seconds: float) -> Iterator[tuple[float, str, int, int]]:
    rng = random.Random(7)
    for number in range(int(seconds * rate)):
        yield number / rate, f"chat {number}", rng.randint(*CHAT_PROMPT_TOKENS), CHAT_TOKENS


def _long_ones(seconds: float) -> Iterator[tuple[float, str, int, int]]:
    length = CONTEXT_TOKENS - LONG_OUTPUT_TOKENS
    for number in range(int(seconds / EVERY_S)):
        yield EVERY_S * number + 0.1, f"long {number}", length, LONG_OUTPUT_TOKENS


def main() -> None:
    """Print a line for each share and rate."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shares", default="128,64,32", help="tokens, the default first")
    parser.add_argument("--rates", default="1,4", help="chats a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    names = ("ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms")
    print(f"share  chats/s  {'  '.join(f'{name[:-3]:>20}' for name in names)}  long, s")
    for share in map(int, options.shares.split(",")):
        for rate in map(float, options.rates.split(",")):
            calm, _ = run(share, rate, options.seconds, is_calm=True)
            beside, took_s = run(share, rate, options.seconds, is_calm=False)
            pairs = [(calm.as_dict()[name], beside.as_dict()[name]) for name in names]
            told = "  ".join(f"{a:5.0f} {b:6.0f}  x{b / a:5.1f}" for a, b in pairs)
            print(f"{share:5}  {rate:7.1f}  {told}  {took_s:7.1f}", flush=True)


if __name__ == "__main__":
    main()
