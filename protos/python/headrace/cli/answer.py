"""An answer on the terminal: its text as it comes, and its facts afterwards."""

import json
import time
from collections.abc import Sequence

from headrace.cli.terminal import Terminal
from headrace.client import TokenStream
from headrace.v1 import generation_pb2 as gen


class Answer:
    """Follows a stream to its end, or until it is interrupted."""

    def __init__(self, terminal: Terminal, stream: TokenStream, *, stats: bool) -> None:
        """``stats`` prints ids as soon as they are known, and the figures at the end."""
        self._terminal = terminal
        self._stream = stream
        self._stats = stats
        self._started = time.monotonic()
        self._first_token_s: float | None = None
        self.text = ""
        self._logprobs: list[gen.Logprobs] = []

    def show(self) -> None:
        """Writes the text piece by piece, and the figures also when the request fails on the way."""
        try:
            with self._stream:
                self._follow()
        finally:
            # Also when interrupted, whatever comes next starts on its own line.
            if self.text and not self.text.endswith("\n"):
                self._terminal.line()
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
            match event.WhichOneof("event"):
                case "accepted" if self._stats:
                    self._terminal.note(f"request id:          {event.accepted.request_id}")
                    self._terminal.note(f"trace id:            {self._stream.trace.trace_id}")
                case "delta" if event.delta.index == 0:
                    self._logprobs += event.delta.logprobs
                    self._write(event.delta.text)

    def _write(self, text: str) -> None:
        if self._first_token_s is None:
            self._first_token_s = time.monotonic() - self._started
        self.text += text
        if text:
            self._terminal.write(text)

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
        note(f"queue time:          {_figure(self._queue_s())}")
        note(
            f"time to first token: {_figure(self._server_first_token_s() or self._first_token_s)}"
        )
        note(f"total time:          {_figure(_total_s(stream.timings))}")
        note(f"finish reason:       {_reason(stream.finishes.get(0)) or 'none'}")

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


def _figure(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds:.3f} s"
