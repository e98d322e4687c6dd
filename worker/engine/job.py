"""What the engine is asked to do: one dispatch of one request."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from common.domain import OutputConstraint, OutputOptions, SamplingParams, StopConditions
from common.records import Failure
from worker.engine.constraint import Grammar


@dataclass(frozen=True, slots=True)
class Ticket:
    """Names a dispatch; it stands on everything the worker says about it, so that old work is told from new."""

    request_id: str
    epoch: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Job:
    """A request, and what is generated of it already.

    ``generated`` holds the logged tokens by choice: generation continues behind them. ``deadline_s`` is a moment
    of the engine's clock. ``grammar`` is the compiled ``constraint``. A job with a ``failure`` only has its end told.
    ``prefix_root`` is where the text's prefix keys begin; None keeps it out of the prefix cache.
    """

    ticket: Ticket
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    stop: StopConditions
    deadline_s: float | None = None
    generated: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    finished_choices: frozenset[int] = frozenset()
    output: OutputOptions = field(default_factory=OutputOptions)
    prefix_root: bytes | None = None
    constraint: OutputConstraint | None = None
    grammar: Grammar | None = None
    failure: Failure | None = None

    @property
    def scores_prompt(self) -> bool:
        """Whether log probabilities of the prompt are wanted and not logged: they are, as soon as a token is."""
        return self.output.prompt_logprobs and not self.generated and not self.finished_choices

    @property
    def choices(self) -> tuple[int, ...]:
        """The choices still to be generated."""
        return tuple(i for i in range(self.sampling.n) if i not in self.finished_choices)
