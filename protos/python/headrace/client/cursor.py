"""Where a stream is: which tokens were delivered, and what may still be delivered after a break.

Pure: events go in, events or None come out. Both clients read their streams through it, so the rule that
no token is repeated and none is missing stands here and nowhere else.

    seq:      0   1   2   3   4   5   6   7
    delta    [0, count 3) [3, c 2)            delivered: next_seq = 5
    replay           [.. 3)   [3 .. 5)  [5 ..    what ends at or before 5 is dropped
    flush                         ^ 5, count 0   text that the end of a choice released: told apart by its choice and
                                                 its characters
"""

from headrace.client.errors import InternalFailure
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb


class Cursor:
    """The facts of one followed request, updated event by event."""

    def __init__(self, request_id: str | None = None, from_seq: int = 0) -> None:
        """``request_id`` is known at once when attaching, else from ``accepted`` on."""
        self.request_id = request_id
        self.next_seq = from_seq
        self.accepted: gen.Accepted | None = None
        self.prompt: gen.PromptProcessed | None = None
        self.finishes: dict[int, gen.ChoiceFinished] = {}
        self.timings: gen.Timings | None = None
        self.usage = gen.Usage()
        self.ended = False
        # Text that came without tokens, by choice: seq alone cannot tell a replay of it.
        self._flushed: dict[int, str] = {}
        self._replayed: dict[int, str] = {}

    @property
    def answered(self) -> bool:
        """True when every choice has ended well, so that nothing of use can follow."""
        bad = (gen.FINISH_REASON_CANCELLED, gen.FINISH_REASON_DEADLINE, gen.FINISH_REASON_ERROR)
        return self.ended and not any(f.finish_reason in bad for f in self.finishes.values())

    def reattached(self) -> None:
        """A new call replays from next_seq on: text without tokens may come a second time."""
        self._replayed = dict(self._flushed)

    def take(self, event: pb.GenerateStreamResponse) -> pb.GenerateStreamResponse | None:
        """The event to deliver; None for one that was delivered before."""
        if event.HasField("usage"):
            self.usage = event.usage
        match event.WhichOneof("event"):
            case "delta":
                return self._take_delta(event)
            case "finish":
                return event if self._is_new_finish(event.finish) else None
            case "accepted":
                first, self.accepted = self.accepted is None, event.accepted
                self.request_id = event.accepted.request_id
                return event if first else None
            case "prompt":
                first, self.prompt = self.prompt is None, event.prompt
                return event if first else None
            case _:
                return event

    def _take_delta(self, event: pb.GenerateStreamResponse) -> pb.GenerateStreamResponse | None:
        end = event.seq + event.count
        # Nothing follows a choice's finish but a replay of what came before it.
        if end < self.next_seq or event.delta.index in self.finishes:
            return None
        if event.count and end == self.next_seq:
            return None
        if event.seq != self.next_seq:
            # Passing it on would repeat or skip tokens, and nobody could tell.
            raise InternalFailure(
                f"the stream continues with seq {event.seq} where {self.next_seq} is due",
                code="DATA_LOSS",
                reason="SEQ_MISMATCH",
                request_id=self.request_id,
            )
        if event.count:
            self.next_seq = end
            # Not of the other choices: a replay brings their tokens before the text of this one's end.
            self._flushed.pop(event.delta.index, None)
            self._replayed.pop(event.delta.index, None)
            return event
        return self._take_flush(event)

    def _take_flush(self, event: pb.GenerateStreamResponse) -> pb.GenerateStreamResponse | None:
        """Delivers of a text without tokens only what was not delivered before the break."""
        index, text = event.delta.index, event.delta.text
        known = self._replayed.get(index, "")
        same = min(len(known), len(text)) if text.startswith(known[: len(text)]) else 0
        self._replayed[index] = known[same:]
        self._flushed[index] = self._flushed.get(index, "") + text[same:]
        if same == len(text):
            return None
        if same:
            event.delta.text = text[same:]
        return event

    def _is_new_finish(self, finish: gen.ChoiceFinished) -> bool:
        self.ended = self.ended or finish.last
        if finish.HasField("timings"):
            self.timings = finish.timings
        new = finish.index not in self.finishes
        self.finishes[finish.index] = finish
        return new
