"""What guesses tokens for the engine, by setting, with the measurements that say when it pays."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from common.clock import monotonic_s
from common.domain import SamplingParams
from worker.engine.draft import DraftLimits, DraftProposer
from worker.engine.lookup import LookupProposer
from worker.engine.runner import Draw, Row
from worker.engine.speculation import MAX_TOKENS, Proposer, Speculation
from worker.engine.step_times import NUM_GUESSES, StepTimes, do_nothing, measure_step_times
from worker.settings import SpeculationKind, WorkerSettings

if TYPE_CHECKING:
    from worker.model.load import LoadedModel

Progress = Callable[[str], None]


def simulated_speculation(settings: WorkerSettings) -> Speculation | None:
    """For the simulated engine, whose steps take the same time whatever is in them."""
    if settings.speculation is SpeculationKind.OFF:
        return None
    return Speculation(LookupProposer(), StepTimes.flat(), max_tokens=settings.max_batch_tokens)


def speculation_for(
    settings: WorkerSettings, model: "LoadedModel", progress: Progress
) -> Speculation | None:
    """For a model whose blocks nobody holds yet.

    Raises:
        ModelLoadError: the draft model cannot be had.
    """
    if settings.speculation is SpeculationKind.OFF:
        return None
    proposer: Proposer = LookupProposer()
    if settings.speculation is SpeculationKind.DRAFT:
        proposer = _draft(settings, model, progress)
    progress("measuring what guesses cost")
    times = _step_times(settings, model, NUM_GUESSES)
    return Speculation(proposer, times, max_tokens=settings.max_batch_tokens)


def _draft(settings: WorkerSettings, model: "LoadedModel", progress: Progress) -> DraftProposer:
    from worker.model.draft import load_draft  # a model's libraries, only when asked for

    draft = load_draft(settings.for_draft, model, progress)
    # Behind a step of the model itself, whose threads stay awake for a while on the same cores.
    row = Row([0], 0, [0], Draw(SamplingParams(seed=0, temperature=0.0), 0, 1))
    times = _step_times(settings, draft, (0,), lambda: model.runner.run([row]))
    limits = DraftLimits(draft.card.context_tokens, model.card.vocab_size, settings.share_tokens)
    return DraftProposer(draft.runner, limits, times)


def _step_times(
    settings: WorkerSettings,
    model: "LoadedModel",
    guesses: Sequence[int],
    before: Callable[[], object] = do_nothing,
) -> StepTimes:
    return measure_step_times(
        model.runner,
        max_decodes=settings.max_seqs,
        max_tokens=min(MAX_TOKENS, settings.max_batch_tokens),
        context_tokens=model.card.context_tokens,
        clock=monotonic_s,
        guesses=guesses,
        before=before,
    )
