"""What computing costs on this machine, measured once; and how many tokens of prompts a step bears for it.

A prompt's token costs more the further back it has to look. ``context_tokens`` says how far that is until it costs
twice as much, so that a step's share of a long prompt takes about as long at its end as at its beginning.
"""

from dataclasses import dataclass, field

from common.domain import Clock, SamplingParams
from worker.engine.block_store import PagedRunner
from worker.engine.runner import Draw, ModelRunner, Row
from worker.engine.step_times import StepTimes, measure_step_times

MIN_CHUNK_TOKENS = 16
"""A share never falls below this: smaller matrix products waste what they load."""

MAX_WAIT_S = 0.05
"""For so long may streams wait for prompts in one step: a gap that nobody sees, in which many tokens share the weights."""

LONG_S = 0.5
"""A prompt that takes longer is a long one: it would make more streams wait, and more often, than anybody overlooks."""

_PROBE_TOKENS = 64
_PROBE_START = 2048
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class StepCosts:
    """None of it decides which tokens come out.

    ``token_s``: time of a prompt's token that looks back at little. ``block_copy_s``: time to save a block's content to
    host memory and to put it back. ``decodes``: time of steps without prompts.
    """

    token_s: float = 0.0
    context_tokens: float = float("inf")
    block_copy_s: float = float("inf")
    decodes: StepTimes = field(default_factory=lambda: StepTimes.flat(0.0))

    def recompute_s(self, num_tokens: int) -> float:
        """Time to compute so many tokens from the beginning of a text."""
        return num_tokens * self.token_s * (1 + num_tokens / 2 / self.context_tokens)

    def is_long(self, start: int, end: int) -> bool:
        """Whether the tokens from ``start`` to ``end`` of a text make a long prompt."""
        return self.recompute_s(end) - self.recompute_s(start) > LONG_S

    def saves_time(self, num_blocks: int, num_tokens: int) -> bool:
        """Whether saving so many blocks and putting them back beats computing the tokens that they hold again."""
        return num_blocks * self.block_copy_s < self.recompute_s(num_tokens)

    def prompt_tokens(self, least: int, most: int, start: int = 0) -> int:
        """Tokens of prompts from position ``start`` on, up to ``most``, in a step that streams wait for; ``least`` though
        they take longer."""
        if self._token_s_at(start) * most <= MAX_WAIT_S:
            return most
        return min(most, max(least, int(MAX_WAIT_S / self._token_s_at(start))))

    def chunk_tokens(self, max_tokens: int, start: int) -> int:
        """As many tokens from position ``start`` on as cost what ``max_tokens`` cost at the beginning."""
        scaled = int(max_tokens / (1 + start / self.context_tokens))
        return max(min(max_tokens, MIN_CHUNK_TOKENS), scaled)

    def tokens_beside(self, num_decodes: int, start: int) -> int:
        """As many tokens from position ``start`` on as take what the decodes beside them take, and never none.

        Where there are no decodes, one: whoever comes meanwhile has to wait as long.
        """
        return max(1, int(self.decodes.of(max(1, num_decodes)) / self._token_s_at(start)))

    def _token_s_at(self, start: int) -> float:
        return self.token_s * (1 + start / self.context_tokens)


def measure_costs(
    runner: PagedRunner,
    max_batch_tokens: int,
    max_seqs: int,
    context_tokens: int,
    clock: Clock,
    decodes: StepTimes | None = None,
) -> StepCosts:
    """Time prompts of one chunk, near the beginning and far from it, decodes, and a block's copies; nobody holds a block yet.

    No position lies beyond the model's context: where positions are learned there is none. ``decodes`` are not timed again
    where they have been.
    """
    room = min(runner.num_blocks * runner.block_size, context_tokens)
    num_tokens = min(_PROBE_TOKENS, max_batch_tokens, room)
    start = min(_PROBE_START, room - num_tokens)
    near_s = _time_of(runner, num_tokens, 0, clock)
    far_s = _time_of(runner, num_tokens, start, clock)
    doubling_tokens = float("inf")
    if start > 0 and far_s > near_s > 0:
        doubling_tokens = start * near_s / (far_s - near_s)
    decodes = decodes or measure_step_times(
        runner,
        max_decodes=max_seqs,
        max_tokens=max_batch_tokens,
        context_tokens=context_tokens,
        clock=clock,
        guesses=(0,),
    )
    return StepCosts(near_s / num_tokens, doubling_tokens, _copy_s(runner, clock), decodes)


def _copy_s(runner: PagedRunner, clock: Clock) -> float:
    durations = []
    for _ in range(_REPEATS):
        began_s = clock()
        runner.blocks.write(0, runner.blocks.read(0))
        durations.append(clock() - began_s)
    return min(durations)


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
