"""What a log has lost and its leader still holds is written again, before anything new.

    before                      … a0 a1 | b0 | a2 a3 | b1
    Redis lost the end          … a0 a1 | b0
    written again, then on      … a0 a1 | b0 | FENCE a0 a1 a2 a3 | FENCE b0 b1 | a4 …

How much is gone is not known, so each open request is written whole: readers skip what they have.
"""

from collections.abc import Iterator

from common.records import Fact, FenceRecord, LogRecord
from common.streams import reply_log
from scheduler.led_partition import LedPartition
from scheduler.led_request import LedRequest


def write_again(led: LedPartition, log: str) -> None:
    """Let ``log`` hold again what was confirmed of the open requests that write to it."""
    requests = [
        request for request in led.requests.values() if request.log == log and request.is_logged
    ]
    if requests:
        led.telemetry.log.warning(
            "reply log lost its end: written again", log_of=log, requests=len(requests)
        )
    for request in requests:
        # Its mark may be gone, too. Where it began is early enough; the next checkpoint moves it on.
        led.logs.mark(log, request.key, reply_log.id_ms(request.start))
    led.logs.restore(
        log,
        [
            [LogRecord(request.key, request.epoch, fact) for fact in _facts(request)]
            for request in requests
        ],
    )


def _facts(request: LedRequest) -> Iterator[Fact]:
    """All that is known to have been logged. While a request's past is read its progress is the reader's."""
    if request.epoch > 1:
        yield FenceRecord()
    if not request.is_recovering:
        yield from request.progress.replay(0)
