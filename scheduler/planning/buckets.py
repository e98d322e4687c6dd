"""Rule 5: prompts of similar length are prefilled together, so that nobody waits for a long neighbour.

A preference inside the class, never a gate: a batch starts at the head of the order, its further picks prefer
the head's bucket, every k-th pick ignores buckets, and a head overtaken K times is not passed again.
"""

from bisect import bisect_left

from scheduler.planning.settings import PlanningSettings


def bucket_of(tokens: int, settings: PlanningSettings) -> int:
    """Index of the bucket of a request with so many tokens still to compute."""
    return bisect_left(settings.bucket_bounds, tokens)


def bucket_name(bucket: int, bounds: tuple[int, ...]) -> str:
    """The bucket's bounds, for people."""
    if bucket == len(bounds):
        return f">{bounds[-1]}" if bounds else "all"
    return f"<={bounds[bucket]}"


def prefers_bucket(num_picked: int, head_overtaken: int, settings: PlanningSettings) -> bool:
    """Whether the next pick of a batch may pass the head for the sake of its bucket."""
    if head_overtaken >= settings.max_overtaken:
        return False
    return num_picked % settings.unbucketed_every != 0
