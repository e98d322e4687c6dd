"""Keeps a failing row from taking its batch mates along, and tells a failing row from a failing engine.

    a row that the runner can tell apart     fails by itself (`RowFailed`)
    a step that raises                       its halves are run again, and theirs, until the rows that fail alone are found:
                                             about `2 log2(n)` more steps for one culprit among n
    a step without memory for it             the same, and a row of many tokens in parts; of rows that have no memory even
                                             alone the largest fails, the others wait for the next step
    a step of which no row is left           a canary that has nothing to do with any request is run; if that raises too,
                                             the engine is broken, and no request is to blame

Running a row again is safe, because it writes the same values to the same positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from common.domain import SamplingParams
from common.logs import get_log
from worker.engine.runner import Checked, Draw, ModelRunner, Row, RowFailed, RowResult, Scored

ENGINE_ERROR = "ENGINE_ERROR"
OUT_OF_MEMORY = "OUT_OF_MEMORY"

_log = get_log(__name__)


class EngineFailed(Exception):
    """The runner fails at work that is no request's: the process is to be replaced, and its requests run elsewhere."""


@dataclass(frozen=True, slots=True)
class NotRun:
    """There was no memory for the row in this step; nothing of it is computed."""


@dataclass(frozen=True, slots=True)
class _Raised:
    """A row that raises alone."""

    error: Exception


Contained = RowResult | NotRun


def run_contained(runner: ModelRunner, rows: Sequence[Row]) -> list[Contained]:
    """One result for each row; rows whose step raises even alone come back as ``RowFailed``.

    Raises:
        EngineFailed: no row could be run, and neither could a canary.
    """
    found = _run(runner, rows)
    starved = [i for i, one in enumerate(found) if _is_starved(one)]
    largest = max(starved, key=lambda i: rows[i].start + len(rows[i].token_ids), default=None)
    results = [_result(one, is_largest=i == largest) for i, one in enumerate(found)]
    if all(isinstance(one, _Raised) for one in found):
        victim = next(i for i, result in enumerate(results) if isinstance(result, RowFailed))
        _check_engine(runner, rows[victim])
    return results


def _run(runner: ModelRunner, rows: Sequence[Row]) -> list[RowResult | _Raised]:
    try:
        results = runner.run(rows)
    except Exception as error:  # noqa: BLE001 - whatever a model raises must not reach the other rows
        if len(rows) > 1:
            _log.warning("step_failed", rows=len(rows), error=type(error).__name__)
            middle = len(rows) // 2
            return _run(runner, rows[:middle]) + _run(runner, rows[middle:])
        if rows[0].guesses:
            return _run(runner, [replace(rows[0], guesses=(), later_draws=())])
        if isinstance(error, MemoryError) and len(rows[0].token_ids) > 1:
            return [_run_in_parts(runner, rows[0])]
        _log.warning("row_failed", exc_info=error)
        return [_Raised(error)]
    assert len(results) == len(rows), (len(results), len(rows))
    return list(results)


def _run_in_parts(runner: ModelRunner, row: Row) -> RowResult | _Raised:
    """The first half of a row's tokens, then the second, each in parts again if it has to be."""
    middle = len(row.token_ids) // 2
    (first,) = _run(
        runner,
        [replace(row, token_ids=row.token_ids[:middle], draw=None, targets=row.targets[:middle])],
    )
    if isinstance(first, RowFailed | _Raised):
        return first
    rest = replace(
        row,
        token_ids=row.token_ids[middle:],
        start=row.start + middle,
        targets=row.targets[middle:],
    )
    (second,) = _run(runner, [rest])
    assert not isinstance(second, Checked), "a row in parts has no guesses"
    if not isinstance(first, Scored) or isinstance(second, RowFailed | _Raised):
        return second
    if isinstance(second, Scored):
        return Scored(first.scores + second.scores, second.drawn)
    return Scored(first.scores, second)


def _is_starved(one: RowResult | _Raised) -> bool:
    return isinstance(one, _Raised) and isinstance(one.error, MemoryError)


def _result(one: RowResult | _Raised, *, is_largest: bool) -> Contained:
    if not isinstance(one, _Raised):
        return one
    if not _is_starved(one):
        name = type(one.error).__name__
        return RowFailed(ENGINE_ERROR, f"the engine failed on it: {name}")
    if is_largest:
        return RowFailed(OUT_OF_MEMORY, "there was no memory to compute it")
    return NotRun()


def _check_engine(runner: ModelRunner, victim: Row) -> None:
    """Run a canary in the last block of a row that has failed, which nobody else holds and nobody reads any more."""
    draw = Draw(SamplingParams(seed=0, temperature=0.0), 0, 1)
    try:
        runner.run([Row([0], 0, [victim.block_ids[-1]], draw)])
    except Exception as error:
        _log.critical("engine_failed", exc_info=error)
        raise EngineFailed(f"{type(error).__name__}: {error}") from error
