"""Explores every scope, the deep ones too, and prints their sizes: ``python -m tests.unit.protocol``."""

import time

from tests.unit.protocol.explore import explore
from tests.unit.protocol.scopes import DEEP, SCOPES


def main() -> None:
    """Explore and print one line per scope."""
    for name, scope in {**SCOPES, **DEEP}.items():
        start_s = time.process_time()
        found = explore(scope)
        spent_s = time.process_time() - start_s
        print(f"{name:45} {found.states:>9} {found.steps:>9} {found.depth:>4} {spent_s:7.1f} s")


if __name__ == "__main__":
    main()
