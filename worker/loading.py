"""What computes, by setting: a model, or the simulation. A model's libraries are imported only here, and only when asked for."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from common.clock import monotonic_s
from common.model_card import ModelCard
from common.server import CannotServe
from worker.engine.block_store import PagedRunner
from worker.engine.costs import StepCosts, measure_costs
from worker.engine.speculation import Speculation
from worker.faults import FaultyRunner
from worker.guessing import simulated_speculation, speculation_for
from worker.settings import EngineKind, WorkerSettings
from worker.simulated.card import simulated_card
from worker.simulated.runner import SimulatedRunner

Progress = Callable[[str], None]

_LOADER = "load-model"


@dataclass(frozen=True, slots=True)
class Loaded:
    """Something that computes, warm, its card, what computing costs, and what guesses tokens for it."""

    runner: PagedRunner
    card: ModelCard
    costs: StepCosts
    speculation: Speculation | None


def load(settings: WorkerSettings, progress: Progress) -> Loaded:
    """Load what the settings name; takes from milliseconds to minutes.

    Raises:
        CannotServe: it cannot be had, for a reason that the operator can mend.
    """
    if settings.engine is EngineKind.SIMULATED:
        simulation = settings.for_simulation
        runner = SimulatedRunner(simulation)
        speculation = simulated_speculation(settings)
        loaded = Loaded(runner, simulated_card(simulation), runner.costs, speculation)
    else:
        loaded = _load_model(settings, progress)
    if settings.fault:
        return replace(loaded, runner=FaultyRunner(loaded.runner, settings.fault))
    return loaded


async def load_unless_stopped(
    settings: WorkerSettings, progress: Progress, stopping: asyncio.Event
) -> Loaded | None:
    """``load`` beside the event loop; None when the process is to stop before it is done.

    The thread is a daemon, because nothing can interrupt a library that loads: it ends with the process.
    """
    loop = asyncio.get_running_loop()
    done: concurrent.futures.Future[Loaded] = concurrent.futures.Future()

    def work() -> None:
        try:
            done.set_result(load(settings, lambda text: _tell(loop, progress, text)))
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
            done.set_exception(error)

    threading.Thread(target=work, name=_LOADER, daemon=True).start()
    result = asyncio.wrap_future(done)
    stop = asyncio.create_task(stopping.wait())
    waiting: list[asyncio.Future[Any]] = [result, stop]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return result.result() if result.done() else None
    finally:
        stop.cancel()


def is_loading() -> bool:
    """Whether a thread still loads."""
    return any(thread.name == _LOADER for thread in threading.enumerate())


def _load_model(settings: WorkerSettings, progress: Progress) -> Loaded:
    try:
        from worker.model.errors import ModelLoadError
        from worker.model.load import load_model
    except ImportError as error:
        raise CannotServe(
            f"the engine 'model' needs {error.name}: install headrace-server[worker] and torch"
        ) from error
    try:
        model = load_model(settings.for_model, progress)
    except ModelLoadError as error:
        raise CannotServe(str(error)) from error
    try:
        speculation = speculation_for(settings, model, progress)
    except ModelLoadError as error:
        raise CannotServe(f"--draft-model: {error}") from error
    costs = measure_costs(
        model.runner,
        settings.max_batch_tokens,
        settings.max_seqs,
        model.card.context_tokens,
        monotonic_s,
        None if speculation is None else speculation.times,
    )
    return Loaded(model.runner, model.card, costs, speculation)


def _tell(loop: asyncio.AbstractEventLoop, progress: Progress, text: str) -> None:
    """Hand a text to the event loop, if it still runs."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(progress, text)
