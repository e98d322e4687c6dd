"""``headrace-worker``: one model, one engine, one session with a scheduler.

load ──▶ engine in its own thread ◀──▶ sessions, one after the other ──▶ drained, or stopped
"""

import asyncio
import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

# gRPC's core writes to stderr by itself, past redaction, what peers tell it: lines of their making would look like ours.
# It reads this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from common.clock import monotonic_s
from common.content_filter import CAPABILITY as OUTPUT_FILTER
from common.content_filter import ContentFilter
from common.content_plugins import identity_of, load_filters
from common.grammars import CAPABILITY
from common.model_card import ModelCard
from common.server import CannotServe, Runtime, run_service
from common.settings import settings_or_exit
from worker.device_meters import watch_device
from worker.engine.engine import Engine
from worker.engine.limits import EngineLimits
from worker.kv.disk_tier import DiskTier
from worker.loading import Loaded, is_loading, load_unless_stopped
from worker.meters import WorkerMeters
from worker.quantize_command import COMMAND, quantize
from worker.session.dialer import Dialer
from worker.session.engine_thread import EngineThread
from worker.session.grammar_gate import Compiler
from worker.session.identity import WorkerIdentity
from worker.session.live_requests import LiveRequests
from worker.session.session import Ended, Session, SessionParts
from worker.session.watchdog import StepWatchdog, exit_crashed
from worker.settings import EngineKind, WorkerSettings
from worker.text.texts import Texts

# For the step under way when everything else has stopped.
ENGINE_STOP_TIMEOUT_S = 5.0
# For the blocks that are to be written; what is not is computed again.
DISK_CLOSE_TIMEOUT_S = 2.0
MIB = 1 << 20
PROGRESS_LOOK_S = 0.5
# Of the time after which a hanging step ends the process: late enough for a long one, early enough to be seen.
STALL_SHARE = 1 / 3


def main() -> None:
    """Run until drained or stopped; or do what is asked for instead."""
    if sys.argv[1:2] == [COMMAND]:
        # GPTQ's library would have a compiler make what packs: longer than packing takes without.
        os.environ.setdefault("GPTQMODEL_DISABLE_PACK_EXT", "1")
        sys.exit(quantize(sys.argv[2:]))
    settings = settings_or_exit(
        WorkerSettings,
        sys.argv[1:],
        os.environ,
        prog="headrace-worker",
        about=f"Runs a model for the schedulers it dials. {COMMAND} IN OUT writes a quantized checkpoint instead.",
    )
    if settings.check_quality is not None:
        sys.exit(_check_quality(settings, settings.check_quality))
    if settings.compile:
        # torch reads no other setting: without it what is compiled gathers in the system's folder for temporary files.
        os.environ.setdefault(
            "TORCHINDUCTOR_CACHE_DIR", str(settings.for_model.cache_folder / "compiled")
        )
    code = run_service("worker", settings, lambda runtime: serve(settings, runtime))
    if is_loading():
        # Nothing interrupts a library that loads, and one whose thread outlives Python aborts the process.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _check_quality(settings: WorkerSettings, file: str) -> int:
    # A model's libraries, only when asked for.
    from worker.quality.check import EVERY_FORMAT, check_quality, format_problem

    formats = EVERY_FORMAT if settings.quality_formats == ("all",) else settings.quality_formats
    problems = [problem for problem in map(format_problem, formats) if problem]
    if problems:
        sys.stderr.write(f"headrace-worker: --quality-formats: {problems[0]}\n")
        return 2
    return check_quality(settings.for_model, file, formats)


async def serve(settings: WorkerSettings, runtime: Runtime) -> None:
    """Load, then hold sessions until a scheduler drains the worker or the process is told to stop."""

    def progress(text: str) -> None:
        runtime.log.info("loading", step=text)
        runtime.readiness.set("model", holds=False, detail=text)

    progress("starting")
    filters = load_filters(settings.output_filters, "--output-filters")
    loaded = await load_unless_stopped(settings, progress, runtime.stopping)
    if loaded is None:
        return
    runtime.readiness.set("model", holds=True)
    watch_device(
        runtime.metrics,
        may_be_accelerator=settings.engine is EngineKind.MODEL and settings.device != "cpu",
    )
    tier = _disk_tier(settings, loaded)
    thread = EngineThread(_engine(settings, loaded, tier, filters), monotonic_s, exit_crashed)
    watchdog = StepWatchdog(lambda: thread.status, settings.step_timeout_s, monotonic_s)
    dialer = _dialer(settings, runtime, loaded, _filtered(loaded.card, filters), thread)
    thread.start()
    watchdog.start()
    try:
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(_leave_when_stopping(settings, runtime, dialer)),
                tasks.create_task(_state_progress(settings, runtime, thread)),
            ]
            await dialer.run()
            for task in beside:
                task.cancel()
    finally:
        watchdog.stop()
        thread.stop(ENGINE_STOP_TIMEOUT_S)
        if tier is not None:
            tier.close(DISK_CLOSE_TIMEOUT_S)


async def _leave_when_stopping(settings: WorkerSettings, runtime: Runtime, dialer: Dialer) -> None:
    await runtime.stopping.wait()
    dialer.leave(settings.leave_grace_s, "the worker is stopped")


async def _state_progress(
    settings: WorkerSettings, runtime: Runtime, thread: EngineThread
) -> None:
    """Ready while steps end: a worker that computes at one step for long is of no use, though the watchdog waits longer."""
    bound_s = settings.step_timeout_s * STALL_SHARE
    while True:
        age_s = thread.status.step_age_s(monotonic_s())
        detail = "" if age_s <= bound_s else f"no step for {age_s:.0f} s"
        runtime.readiness.set("progress", holds=not detail, detail=detail)
        await asyncio.sleep(PROGRESS_LOOK_S)


def _disk_tier(settings: WorkerSettings, loaded: Loaded) -> DiskTier | None:
    if settings.disk_cache_dir is None:
        return None
    try:
        return DiskTier(
            Path(settings.disk_cache_dir),
            loaded.card.fingerprint,
            max_bytes=settings.disk_cache_mb * MIB,
            block_bytes=len(loaded.runner.blocks.read(0)),
        )
    except OSError as error:
        raise CannotServe(f"--disk-cache-dir: {error}") from error


def _filtered(card: ModelCard, filters: Sequence[ContentFilter]) -> ModelCard:
    """The card of a worker that judges what it generates: a request goes on only where it is judged alike."""
    if not filters:
        return card
    return replace(
        card,
        capabilities=(*card.capabilities, OUTPUT_FILTER),
        fingerprint=f"{card.fingerprint}+{identity_of(filters)}",
    )


def _engine(
    settings: WorkerSettings,
    loaded: Loaded,
    tier: DiskTier | None,
    filters: Sequence[ContentFilter],
) -> Engine:
    limits = EngineLimits(
        max_seqs=settings.max_seqs,
        max_batch_tokens=settings.max_batch_tokens,
        max_share_tokens=settings.share_tokens,
        context_tokens=loaded.card.context_tokens,
        eos_token_ids=frozenset(loaded.card.eos_token_ids),
        prefix_cache=settings.prefix_cache,
        cache_ttl_s=settings.cache_ttl_s,
        swap_blocks=settings.swap_memory_mb * MIB // len(loaded.runner.blocks.read(0)),
        park_s=settings.park_s,
        window_tokens=loaded.card.sliding_window,
        quality_sample=settings.quality_sample,
    )
    texts = Texts(loaded.card.tokenizer_json, filters)
    return Engine(
        loaded.runner,
        limits,
        texts.text_of,
        monotonic_s,
        loaded.costs,
        tier,
        loaded.speculation,
    )


def _dialer(
    settings: WorkerSettings,
    runtime: Runtime,
    loaded: Loaded,
    card: ModelCard,
    thread: EngineThread,
) -> Dialer:
    readiness = runtime.readiness
    worker_id = settings.worker_id or runtime.instance
    meters = WorkerMeters(
        runtime.metrics,
        model=card.model,
        num_blocks=loaded.runner.num_blocks,
        read_status=lambda: thread.status,
        speculation=loaded.speculation,
    )
    identity = WorkerIdentity(
        worker_id=worker_id,
        incarnation=secrets.token_hex(8),
        card=card,
        num_blocks=loaded.runner.num_blocks,
        block_size=loaded.runner.block_size,
        max_seqs=settings.max_seqs,
        max_batch_tokens=settings.max_batch_tokens,
    )
    live = LiveRequests(
        runtime.tracing, model=card.model, worker_id=worker_id, on_prompt=meters.count_prompt
    )

    is_announced = False

    def on_welcome(scheduler_id: str) -> None:
        nonlocal is_announced
        readiness.set("session", holds=True, detail=f"with {scheduler_id}")
        if not is_announced:
            runtime.announce({})
        is_announced = True

    def on_end(ended: Ended) -> None:
        readiness.set("session", holds=False, detail=ended.reason)
        if not ended.has_left:
            meters.count_reconnect()

    parts = SessionParts(
        identity,
        thread,
        live,
        monotonic_s,
        meters.observe,
        on_welcome,
        _compiler(card),
        settings.client_tls(),
    )
    return Dialer(settings.schedulers, lambda address: Session(parts, address), on_end=on_end)


def _compiler(card: ModelCard) -> Compiler | None:
    """What compiles grammars; nothing where the library is missing, which the card says too."""
    if CAPABILITY not in card.capabilities:
        return None
    from worker.grammar.compiler import GrammarCompiler

    return GrammarCompiler(card)


if __name__ == "__main__":
    main()
