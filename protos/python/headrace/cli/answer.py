"""An answer on the terminal: its text as it comes, and its facts afterwards."""

import json
import time
from collections import defaultdict
from collections.abc import Sequence

from headrace.cli.interrupts import interruptible
from headrace.cli.terminal import Terminal
from headrace.cli.waiting import Waiting
from headrace.client import HeadraceError, TokenStream
from headrace.v1 import generation_pb2 as gen


class Answer:
    """Follows a stream to its end, or until it is interrupted."""

    def __init__(
        self, terminal: Terminal, stream: TokenStream, *, stats: bool, target: str
    ) -> None:
        """``stats`` prints ids as soon as they are known, and the figures at the end; ``target`` is told of where it is looked for."""
        self._terminal = terminal
        self._stream = stream
        self._stats = stats
        self._target = target
        self._waiting = Waiting(terminal)
        stream.on_break = self._note_break
        self._started = time.monotonic()
        self._accepted_s: float | None = None
        self._taken_up_s: float | None = None
        self._first_token_s: float | None = None
        self._ended_s: float | None = None
        self._is_interrupted = False
        self.text = ""
        self._others: defaultdict[int, str] = defaultdict(str)
        self._logprobs: list[gen.Logprobs] = []

    def show(self) -> None:
        """Writes the text piece by piece, and the figures also when the request fails on the way."""
        try:
            with self._stream, self._waiting, interruptible(self._stream.close):
                self._waiting.begin(f"looking for a gateway at {self._target}")
                self._follow()
        except KeyboardInterrupt:
            self._is_interrupted = True
            raise
        finally:
            self._ended_s = self._elapsed_s()
            # Also when interrupted, whatever comes next starts on its own line; also when nobody reads, figures are noted.
            try:
                self._end_lines()
            finally:
                if self._stats:
                    self._note_figures()

    def facts(self) -> str:
        """Everything known about the answer, as one line of JSON."""
        stream = self._stream
        finish = stream.finishes.get(0)
        return json.dumps(
            {
                "request_id": stream.request_id,
                "trace_id": stream.trace.trace_id,
                "model": stream.accepted.model if stream.accepted else None,
                "model_revision": stream.accepted.model_revision if stream.accepted else None,
                "seed": stream.accepted.seed if stream.accepted else None,
                "text": self.text,
                "finish_reason": _reason(finish),
                **self._choices_fact(),
                "prompt_tokens": stream.usage.prompt_tokens,
                "completion_tokens": stream.usage.completion_tokens,
                "cached_prompt_tokens": stream.usage.cached_prompt_tokens,
                "queue_s": self._queue_s(),
                "time_to_first_token_s": self._server_first_token_s(),
                "client_time_to_first_token_s": self._first_token_s,
                "total_s": _total_s(stream.timings),
                "attempts": stream.timings.attempts if stream.timings else None,
                **_logprobs_fact("logprobs", self._logprobs),
                **_logprobs_fact(
                    "prompt_logprobs", stream.prompt.logprobs if stream.prompt else ()
                ),
            },
            ensure_ascii=False,
        )

    def _follow(self) -> None:
        for event in self._stream:
            self._waiting.end()
            match event.WhichOneof("event"):
                case "accepted":
                    self._accepted_s = self._elapsed_s()
                    if self._stats:
                        self._terminal.note(f"request id:          {event.accepted.request_id}")
                        self._terminal.note(f"trace id:            {self._stream.trace.trace_id}")
                case "prompt":
                    self._taken_up_s = self._elapsed_s()
                case "delta" if event.delta.index == 0:
                    self._logprobs += event.delta.logprobs
                    self._write(event.delta.text)
                case "delta":
                    self._others[event.delta.index] += event.delta.text

    def _note_break(self, error: HeadraceError) -> None:
        # On a terminal the text so far may end in mid-line, where the note would be taken for a part of the answer.
        is_within_line = self.text and not self.text.endswith("\n")
        self._waiting.begin(
            f"the connection is lost ({error.code}); looking for a gateway at {self._target} to go on",
            before="\n" if is_within_line and self._terminal.output.isatty() else "",
        )

    def _write(self, text: str) -> None:
        if self._first_token_s is None:
            self._first_token_s = self._elapsed_s()
        self.text += text
        if text:
            self._terminal.write(text)

    def _end_lines(self) -> None:
        """The end of the line, and below it whole what came beside the first choice."""
        if self.text and not self.text.endswith("\n"):
            self._terminal.line()
        for index, text in sorted(self._others.items()):
            self._terminal.line(f"--- choice {index}")
            self._terminal.line(text.removesuffix("\n"))

    def _choices_fact(self) -> dict[str, object]:
        """Every choice, where there are several."""
        if not self._others:
            return {}
        texts = {0: self.text, **self._others}
        reasons = self._stream.finishes
        return {
            "choices": [
                {"index": index, "text": text, "finish_reason": _reason(reasons.get(index))}
                for index, text in sorted(texts.items())
            ]
        }

    def _note_figures(self) -> None:
        stream, note = self._stream, self._terminal.note
        usage = stream.usage
        cached = f" ({usage.cached_prompt_tokens} cached)" if usage.cached_prompt_tokens else ""
        if stream.accepted is None:
            note(f"trace id:            {stream.trace.trace_id}")
        note(
            f"usage:               {usage.prompt_tokens} prompt{cached}"
            f" + {usage.completion_tokens} completion tokens"
        )
        # Before the end only what was seen from here is known.
        note(f"queue time:          {_figure(self._queue_s(), self._seen_queue_s())}")
        note(f"time to first token: {_figure(self._server_first_token_s(), self._first_token_s)}")
        note(f"total time:          {_figure(_total_s(stream.timings), self._ended_s)}")
        ending = "interrupted" if self._is_interrupted else "none"
        note(f"finish reason:       {_reason(stream.finishes.get(0)) or ending}")

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def _seen_queue_s(self) -> float | None:
        """From the acceptance to the taking up, or for how long it has waited so far."""
        if self._accepted_s is None:
            return None
        end_s = self._ended_s if self._taken_up_s is None else self._taken_up_s
        return None if end_s is None else end_s - self._accepted_s

    def _queue_s(self) -> float | None:
        timings = self._stream.timings
        return timings.queue.ToTimedelta().total_seconds() if timings else None

    def _server_first_token_s(self) -> float | None:
        timings = self._stream.timings
        if timings is None or not timings.HasField("time_to_first_token"):
            return None
        return timings.time_to_first_token.ToTimedelta().total_seconds()


def _logprobs_fact(name: str, values: Sequence[gen.Logprobs]) -> dict[str, object]:
    """One entry a position, where they were asked for."""
    if not values:
        return {}
    return {
        name: [
            {
                "chosen": _logprob(value.chosen) if value.HasField("chosen") else None,
                "top": [_logprob(token) for token in value.top],
            }
            for value in values
        ]
    }


def _logprob(token: gen.TokenLogprob) -> dict[str, object]:
    text = token.token.decode(errors="replace")
    return {"token_id": token.token_id, "token": text, "logprob": token.logprob}


def _total_s(timings: gen.Timings | None) -> float | None:
    return timings.total.ToTimedelta().total_seconds() if timings else None


def _reason(finish: gen.ChoiceFinished | None) -> str | None:
    if finish is None:
        return None
    return gen.FinishReason.Name(finish.finish_reason).removeprefix("FINISH_REASON_").lower()


def _figure(told_s: float | None, seen_s: float | None) -> str:
    """What the server told, else what was seen from here."""
    if told_s is not None:
        return f"{told_s:.3f} s"
    return "unknown" if seen_s is None else f"{seen_s:.3f} s (seen from here)"
