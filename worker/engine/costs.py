"""What computing costs on this machine, measured once before anybody is served.

A prompt's token costs more the further back it has to look. ``context_tokens`` says how far that is until it costs
twice as much, so that a step's share of a long prompt takes about as long at its end as at its beginning.
"""

from dataclasses import dataclass

from common.domain import Clock, SamplingParams
from worker.engine.runner import Draw, ModelRunner, Row

MIN_CHUNK_TOKENS = 16
"""A share never falls below this: smaller matrix products waste what they load."""

_PROBE_TOKENS = 64
_PROBE_START = 2048
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class StepCosts:
    """``token_s``: time of a prompt's token that looks back at little. None of it decides which tokens come out."""

    token_s: float = 0.0
    context_tokens: float = float("inf")

    def chunk_tokens(self, max_tokens: int, start: int) -> int:
        """As many tokens from position ``start`` on as cost what ``max_tokens`` cost at the beginning."""
        scaled = int(max_tokens / (1 + start / self.context_tokens))
        return max(min(max_tokens, MIN_CHUNK_TOKENS), scaled)


def measure_costs(runner: ModelRunner, max_batch_tokens: int, clock: Clock) -> StepCosts:
    """Time prompts of one chunk, near the beginning and far from it, in blocks that nobody holds yet."""
    room = runner.num_blocks * runner.block_size
    num_tokens = min(_PROBE_TOKENS, max_batch_tokens, room)
    start = min(_PROBE_START, room - num_tokens)
    near_s = _time_of(runner, num_tokens, 0, clock)
    far_s = _time_of(runner, num_tokens, start, clock)
    if start == 0 or far_s <= near_s or near_s <= 0:
        return StepCosts(max(0.0, near_s) / num_tokens)
    return StepCosts(near_s / num_tokens, start * near_s / (far_s - near_s))


def _time_of(runner: ModelRunner, num_tokens: int, start: int, clock: Clock) -> float:
    """The shortest of a few runs: whatever disturbs a run makes it longer."""
    blocks = range(-(-(start + num_tokens) // runner.block_size))
    row = Row([0] * num_tokens, start, blocks, Draw(SamplingParams(seed=0), 0, 0))
    durations = []
    for _ in range(_REPEATS):
        began_s = clock()
        runner.run([row])
        durations.append(clock() - began_s)
    return min(durations)
