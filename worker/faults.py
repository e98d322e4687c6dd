"""Faults on purpose: a token id that, once computed, breaks the step in a chosen way. For tests only.

``--fault token=ID:raise|exit|sleep|nan|break`` acts in every step among whose tokens ID is, and is refused without ``--allow-faults``.
"""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NoReturn, Self

from worker.engine.block_store import BlockStore, PagedRunner
from worker.engine.runner import Row, RowResult

FAULT_EXIT_CODE = 137
"""As after kill -9."""


class FaultAction(StrEnum):
    """What happens."""

    RAISE = "raise"
    EXIT = "exit"
    SLEEP = "sleep"
    NAN = "nan"
    BREAK = "break"
    """From then on everything raises, as on a device that is lost."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens when a token is computed."""

    token_id: int
    action: FaultAction

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``token=ID:ACTION``.

        Raises:
            ValueError: it is not of that form.
        """
        subject, _, action = text.partition(":")
        name, _, token_id = subject.partition("=")
        if name != "token" or not token_id.isdecimal() or action not in set(FaultAction):
            raise ValueError(f"{text!r} is not token=ID:{'|'.join(FaultAction)}")
        return cls(int(token_id), FaultAction(action))


class InjectedError(RuntimeError):
    """The error that the fault ``raise`` stands for."""


def _hang_forever() -> None:
    threading.Event().wait()


class FaultyRunner:
    """A runner that behaves like another, but for its faults."""

    def __init__(
        self,
        runner: PagedRunner,
        faults: Sequence[Fault],
        *,
        exit_process: Callable[[int], NoReturn] = os._exit,
        hang: Callable[[], None] = _hang_forever,
    ) -> None:
        """``hang`` is expected to return never, ``exit_process`` not at all."""
        self._runner = runner
        self._actions = {fault.token_id: fault.action for fault in faults}
        self._exit_process = exit_process
        self._hang = hang
        self._is_broken = False

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self._runner.num_blocks

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._runner.block_size

    @property
    def blocks(self) -> BlockStore:
        """The contents of its blocks."""
        return self._runner.blocks

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        """Let the faults act, then compute."""
        if self._is_broken:
            raise InjectedError("the engine is broken")
        return self._runner.run([self._afflict(row) for row in rows])

    def _afflict(self, row: Row) -> Row:
        for token_id in self._actions.keys() & set(row.token_ids):
            match self._actions[token_id]:
                case FaultAction.RAISE:
                    raise InjectedError(f"fault on token {token_id}")
                case FaultAction.EXIT:
                    self._exit_process(FAULT_EXIT_CODE)
                case FaultAction.SLEEP:
                    self._hang()
                case FaultAction.BREAK:
                    self._is_broken = True
                    raise InjectedError(f"fault on token {token_id}")
                case FaultAction.NAN:
                    row = replace(row, inject_nan=True)
        return row
