"""``headrace bench``: load at rising levels, a table of what came of it, and a comparison with another run."""

import argparse
import asyncio
import time

from headrace.bench.load import Load, Progress, Runner
from headrace.bench.plots import PlotsUnavailable, check_can_plot, write_plot
from headrace.bench.results import (
    COMPARED,
    HEAD,
    Results,
    ResultsError,
    comparison,
    load_name,
    row,
)
from headrace.bench.samples import Level, Objective
from headrace.bench.workload import WorkloadError, from_file, made_up
from headrace.cli.exits import UsageError
from headrace.cli.options import only_model
from headrace.cli.terminal import Terminal
from headrace.client import Client

_TELL_EVERY_S = 0.5


def bench(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Runs the levels, or takes them from a file; then shows, keeps, draws and compares them."""
    try:
        if arguments.plot is not None:
            check_can_plot()
        before = None if arguments.compare is None else Results.read(arguments.compare)
        if arguments.load is None:
            results = _run(client, arguments, terminal)
        else:
            results = Results.read(arguments.load)
    except (ResultsError, PlotsUnavailable, WorkloadError) as error:
        raise UsageError(str(error)) from error
    terminal.table(HEAD, [row(level) for level in results.levels])
    if arguments.json is not None:
        results.write(arguments.json)
    runs = [("", results)]
    if before is not None:
        _compare(before, results, arguments.compare.name, terminal)
        runs = [(arguments.compare.stem, before), ("now", results)]
    if arguments.plot is not None:
        write_plot(runs, arguments.plot)
    return 1 if any(level.errors for level in results.levels) else 0


def _compare(before: Results, after: Results, name: str, terminal: Terminal) -> None:
    rows = comparison(before, after)
    if rows:
        terminal.line()
        terminal.table(["LOAD", *(name for name, _ in COMPARED)], rows)
    else:
        former = ", ".join(map(load_name, before.levels))
        terminal.note(f"nothing to compare: {name} has the levels {former}, and none of these")


def _run(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> Results:
    model = arguments.model or only_model(client).name
    if arguments.workload is None:
        words, tokens = arguments.prompt_words, arguments.max_tokens
        workload = made_up(arguments.seed, prompt_words=words, max_tokens=tokens)
        name = f"about {words} words in, {tokens} tokens out, seed {arguments.seed}"
    else:
        workload = from_file(arguments.workload, arguments.max_tokens)
        name = arguments.workload.name
    objective = Objective(
        None if arguments.ttft_ms is None else arguments.ttft_ms / 1e3,
        None if arguments.tpot_ms is None else arguments.tpot_ms / 1e3,
    )
    if arguments.rate is not None:
        loads = [
            Load(arguments.requests, rate=rate, seed=arguments.seed) for rate in arguments.rate
        ]
    else:
        loads = [Load(arguments.requests, concurrency=count) for count in arguments.concurrency]

    async def levels() -> list[Level]:
        async with client.for_asyncio() as own:
            told = _Told(terminal)
            runner = Runner(own, model, workload, told)
            await runner.run(Load(min(4, arguments.requests), concurrency=4))  # warm
            found = []
            for load in loads:
                value = load.rate or load.concurrency
                told.level = f"{value:g}/s" if load.rate else f"{value:g} at once"
                samples, took_s = await runner.run(load)
                found.append(
                    Level.of(value, samples, took_s, objective, is_open=load.rate is not None)
                )
                terminal.note(f"{load_name(found[-1])}: {found[-1].tokens_per_s:.1f} tokens/s")
            for error, count in runner.errors.most_common():
                terminal.note(f"{count} x {error}")
            return found

    return Results(model, name, asyncio.run(levels()))


class _Told:
    """Shows where a level is, a few times a second."""

    def __init__(self, terminal: Terminal) -> None:
        self.level = "warming up"
        self._terminal = terminal
        self._shown_s = 0.0

    def __call__(self, progress: Progress) -> None:
        now_s = time.monotonic()
        if now_s - self._shown_s < _TELL_EVERY_S and progress.done < progress.wanted:
            return
        self._shown_s = now_s
        filled = progress.done * 20 // progress.wanted
        bar = "#" * filled + "." * (20 - filled)
        under_way = progress.begun - progress.done
        self._terminal.progress(
            f"{self.level:>14} [{bar}] {progress.done}/{progress.wanted}, {under_way} under way, {progress.tokens} tokens"
        )
