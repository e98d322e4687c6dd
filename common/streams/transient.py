"""Which failures of Redis pass by themselves, so that `Node.call` repeats the call; everything else is a bug of ours.

A restart, a fail-over, a full disk or memory, a slot on the move: each is an answer that says "not now", and
every call of ours is safe to repeat.
"""

import re

import redis.exceptions

SUSPECTS = (redis.exceptions.RedisError, OSError, TimeoutError, RuntimeError)
"""Everything that may be transient; ``is_transient`` decides."""

# How uvloop says that the peer's reset has come before our write; the client library passes it on as it is.
_CLOSED_TRANSPORT = "the handler is closed"

_TYPES = (
    redis.exceptions.ConnectionError,  # also: no master known, loading, too many connections
    redis.exceptions.TimeoutError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.TryAgainError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.NoScriptError,  # taught and forgotten again: a fail-over in between
    OSError,
    TimeoutError,
)

_WORDS = re.compile(
    # The node is not, or no longer, one that can take this command.
    r"(UNBLOCKED|MISCONF|NOREPLICAS|MASTERDOWN|BUSY) "
    # Before Redis 7 a script reports a refused command inside an error of its own.
    r"|(ERR )?Error running script .* -(OOM|READONLY|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN) "
)


def is_transient(error: BaseException) -> bool:
    """Whether ``error`` passes by itself."""
    if isinstance(error, _TYPES):
        return True
    if isinstance(error, RuntimeError):
        return _CLOSED_TRANSPORT in str(error)
    if not isinstance(error, redis.exceptions.ResponseError):
        return False
    # Without what a pipeline puts in front: which command it was, and by the client's version a bracket and a quote.
    words = str(error).rpartition(" of pipeline caused error: ")[2].lstrip("(\"'")
    return _WORDS.match(words) is not None
