"""What follows when a child ends unasked: start it again, leave it, or give the stack up.

Pure: exits and lifetimes in, a decision out.
"""

from dataclasses import dataclass

# A child that fails to serve this often in a row was set up wrongly: more starts will not help.
_MAX_FAILED_STARTS = 3
# Exit status of refused settings (argparse's too): the same settings are refused again.
_USAGE_ERROR = 2
# 0.5 s lets a port come free; ten seconds keeps a crash loop from using the whole machine.
_FIRST_DELAY_S = 0.5
_MAX_DELAY_S = 10.0
# A child that served this long was healthy; its next crash is a new story.
_HEALTHY_AFTER_S = 30.0


@dataclass(frozen=True)
class Restart:
    """Start it again after a pause."""

    delay_s: float


@dataclass(frozen=True)
class Finished:
    """It ended on purpose (a drained worker): leave it."""


@dataclass(frozen=True)
class GiveUp:
    """It never got to serve, and will not: stop everything and say why."""


Decision = Restart | Finished | GiveUp


class RestartPolicy:
    """The history of one child's exits, as far as decisions need it."""

    def __init__(self, *, may_finish: bool) -> None:
        self._may_finish = may_finish
        self._ever_served = False
        self._exits_in_a_row = 0

    def decide(self, *, exit_status: int, served_s: float | None) -> Decision:
        """`served_s` is how long it served before this exit; None if it never got that far."""
        if served_s is not None:
            self._ever_served = True
            if exit_status == 0 and self._may_finish:
                return Finished()
            if served_s >= _HEALTHY_AFTER_S:
                self._exits_in_a_row = 0
        self._exits_in_a_row += 1
        if not self._ever_served and (
            exit_status == _USAGE_ERROR or self._exits_in_a_row >= _MAX_FAILED_STARTS
        ):
            return GiveUp()
        return Restart(min(_FIRST_DELAY_S * 2 ** (self._exits_in_a_row - 1), _MAX_DELAY_S))
