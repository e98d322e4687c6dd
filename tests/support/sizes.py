"""How large a case is: bounded in the suite, as tests/e2e names it in full with `HEADRACE_TEST_SIZE=full` (`make full-size`)."""

import os

IS_FULL = os.environ.get("HEADRACE_TEST_SIZE", "") == "full"


def sized(bounded: int, full: int) -> int:
    """One of the two numbers."""
    return full if IS_FULL else bounded
