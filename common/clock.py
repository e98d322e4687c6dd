"""Time: the monotonic clock, for every interval.

Wall-clock time serves only to show people when something happened.
"""

import time

from common.domain import Clock

monotonic_s: Clock = time.monotonic
"""Seconds of this process's monotonic clock, the default where a ``Clock`` is asked for."""
