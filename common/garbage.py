"""The collector of reference cycles, set for a service: it must not stop everything for what has been there all along.

A full collection looks at every object of the process, a quarter of a million in a service, and everybody waits for
it: a tenth of a second on an idle processor, and half a second on a busy one.
"""

import gc

_YOUNG_OBJECTS = 5_000
"""A collection of the young takes about a millisecond then; by default they are looked at every 700 objects, which is
several times a request."""


def keep_what_exists() -> None:
    """Leave everything that a service has loaded out of all collections to come; to be called once, when it serves."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 10, 10)
