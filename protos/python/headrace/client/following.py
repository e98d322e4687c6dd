"""What a stream knows and decides, whether threads or asyncio read it: facts, deadline, continuation."""

import time
from collections.abc import Callable, Mapping, Sequence

from headrace.client.connection import call_timeout_s
from headrace.client.cursor import Cursor
from headrace.client.errors import (
    DeadlineExceeded,
    HeadraceError,
    InternalFailure,
    Unavailable,
)
from headrace.client.moving import Moving
from headrace.client.reattach import CUT_OFF, Reattach
from headrace.client.trace import TraceContext
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb

# No request lives longer: whoever waits for the queue to come back need not wait beyond it.
_LONGEST_LIFE_S = 15 * 60.0


class Following:
    """One followed request, without its connection."""

    def __init__(
        self,
        cursor: Cursor,
        reattach: Reattach,
        trace: TraceContext,
        timeout_s: float | None,
        request: pb.GenerateRequest | None,
        num_targets: int,
    ) -> None:
        """The time runs from now, over all calls that the stream may need."""
        self.trace = trace
        self.on_break: Callable[[HeadraceError], object] | None = None
        """Called with what broke the stream, each time before it is continued, or made another gateway continue it."""
        self._request = request
        self._cursor = cursor
        self._reattach = reattach
        self._moving = Moving(1 if reattach.is_off else num_targets)
        wait_s, self._began_s = call_timeout_s(timeout_s), time.monotonic()
        self._deadline = None if wait_s is None else self._began_s + wait_s

    @property
    def request_id(self) -> str | None:
        """The request's id; None before it was accepted."""
        return self._cursor.request_id

    @property
    def next_seq(self) -> int:
        """Attach from here to go on where this stream is."""
        return self._cursor.next_seq

    @property
    def accepted(self) -> gen.Accepted | None:
        """Model, revision and seed in use; None before it was accepted, or when attached later."""
        return self._cursor.accepted

    @property
    def prompt(self) -> gen.PromptProcessed | None:
        """The prompt with its log probabilities, where they were asked for; None before a worker took it up."""
        return self._cursor.prompt

    @property
    def usage(self) -> gen.Usage:
        """Tokens so far."""
        return self._cursor.usage

    @property
    def finishes(self) -> Mapping[int, gen.ChoiceFinished]:
        """The choices that have ended, by index."""
        return self._cursor.finishes

    @property
    def timings(self) -> gen.Timings | None:
        """Where the time went; known at the end."""
        return self._cursor.timings

    def _left_s(self) -> float | None:
        """Time left for the next call."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _take(self, event: pb.GenerateStreamResponse) -> pb.GenerateStreamResponse | None:
        """The event to deliver, if it is new. Tokens and finishes count as progress, signs of life do not."""
        new = self._cursor.take(event)
        if new is not None and new.WhichOneof("event") in ("delta", "finish"):
            self._reattach.progressed()
            self._moving.progressed()
        return new

    def _others(self, event: pb.GenerateStreamResponse, used: int) -> Sequence[int]:
        """The targets that may follow the request in the place of ``used``, where that is cut off from it."""
        return self._moving.others(event, used, time.monotonic())

    def _note_moved(self) -> None:
        """Another gateway takes this stream up."""
        self._cursor.reattached()
        if self.on_break is not None:
            self.on_break(
                Unavailable(
                    "the gateway has lost the queue, and is left for another one",
                    code="UNAVAILABLE",
                    reason=CUT_OFF,
                    request_id=self.request_id,
                )
            )

    def _attach_there(self) -> pb.AttachRequest:
        """The call that may take this stream up elsewhere, while it goes on here."""
        assert self._cursor.request_id is not None
        return pb.AttachRequest(request_id=self._cursor.request_id, from_seq=self._cursor.next_seq)

    def _pause_s(self, error: HeadraceError) -> float | None:
        """The pause before going on after ``error``; None when the error is final."""
        if self._cursor.request_id is None and not self._is_repeatable(error):
            return None
        left_s = self._left_s()
        if left_s is None and error.reason == CUT_OFF:
            left_s = max(0.0, self._began_s + _LONGEST_LIFE_S - time.monotonic())
        pause_s = self._reattach.next_pause_s(error, left_s)
        if pause_s is not None and self.on_break is not None:
            self.on_break(error)
        return pause_s

    def _given_up(self, error: HeadraceError) -> HeadraceError:
        """What is told of a stream that cannot go on: not what broke it, where only the time was missing."""
        if not self._reattach.lacked_time:
            return error
        return DeadlineExceeded(
            f"the time is over, and the stream was broken by then: {error}",
            code="DEADLINE_EXCEEDED",
            request_id=self.request_id,
        )

    def _is_repeatable(self, error: HeadraceError) -> bool:
        """Whether the connection failed, and not a server, and a second request is the same one by its key."""
        return (
            self._request is not None and bool(self._request.idempotency_key) and not error.reason
        )

    def _attach_request(self) -> pb.AttachRequest:
        """The call that continues this stream."""
        self._cursor.reattached()
        return self._attach_there()

    def _check_end(self) -> None:
        """A stream that ends without saying so has lost its end."""
        if not self._cursor.ended:
            raise InternalFailure(
                "the stream ended before the answer did",
                code="DATA_LOSS",
                reason="STREAM_TRUNCATED",
                request_id=self._cursor.request_id,
            )


def event_of(message: pb.GenerateStreamResponse | pb.AttachResponse) -> pb.GenerateStreamResponse:
    """The event in a message of either stream."""
    return message.event if isinstance(message, pb.AttachResponse) else message
