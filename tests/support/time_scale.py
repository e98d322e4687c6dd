"""One knob for slow machines: every wait of a test is multiplied by `HEADRACE_TEST_TIME_SCALE`."""

import os


def scaled(seconds: float) -> float:
    """A test's waiting bound, stretched for the machine it runs on."""
    return seconds * float(os.environ.get("HEADRACE_TEST_TIME_SCALE", "1"))
