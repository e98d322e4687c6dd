"""Keeps a failing row from taking its batch mates along.

A row that the runner can tell apart fails by itself (``RowFailed``). When a step fails as a whole, its halves are run
again, and theirs, until the rows that fail alone are found: about ``2 log2(n)`` more steps for one culprit among n. Running a row
again is safe, because it writes the same values to the same positions.
"""

from collections.abc import Sequence

from common.logs import get_log
from worker.engine.runner import ModelRunner, Row, RowFailed, RowResult

ENGINE_ERROR = "ENGINE_ERROR"

_log = get_log(__name__)


def run_contained(runner: ModelRunner, rows: Sequence[Row]) -> list[RowResult]:
    """One result for each row; rows whose step raises even alone come back as ``RowFailed``."""
    try:
        results = runner.run(rows)
    except Exception as error:  # noqa: BLE001 - whatever a model raises must not reach the other rows
        if len(rows) == 1:
            _log.warning("row_failed", exc_info=error)
            return [RowFailed(ENGINE_ERROR, f"the engine failed on it: {type(error).__name__}")]
        _log.warning("step_failed", rows=len(rows), error=type(error).__name__)
        middle = len(rows) // 2
        return run_contained(runner, rows[:middle]) + run_contained(runner, rows[middle:])
    assert len(results) == len(rows), (len(results), len(rows))
    return results
