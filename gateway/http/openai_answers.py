"""Answers and events in the words of OpenAI's API: whole, or as chunks of a stream."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from common.domain import RequestId
from gateway.http.logprobs import CompletionLogprobs, chat_logprobs
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb

_REASONS = {
    gen.FINISH_REASON_STOP: "stop",
    gen.FINISH_REASON_LENGTH: "length",
    gen.FINISH_REASON_CONTENT_FILTER: "content_filter",
}
DONE = b"data: [DONE]\n\n"
KEEPALIVE = b": keepalive\n\n"


class AnswerForm:
    """Chat or plain completion: one request's answer. ``is_chat`` chooses the form."""

    def __init__(
        self,
        *,
        is_chat: bool,
        num_choices: int = 1,
        first_index: int = 0,
        include_usage: bool = False,
        shows_usage: bool = False,
        prompt_text: str = "",
    ) -> None:
        """``include_usage``: a stream ends with a chunk that counts; ``prompt_text``: what an echo begins with.

        Choices are numbered from ``first_index``; ``shows_usage``: the chunk that counts is another's.
        """
        self._first_index = first_index
        self._shows_usage = shows_usage or include_usage
        self._is_chat = is_chat
        self._num_choices = max(1, num_choices)
        self._include_usage = include_usage
        self._prompt: Sequence[gen.Logprobs] = ()
        self._logprobs: defaultdict[int, CompletionLogprobs] = defaultdict(
            lambda: CompletionLogprobs(prompt_text)
        )
        self.envelope: dict[str, Any] = {}

    def whole(self, answer: pb.GenerateResponse) -> dict[str, Any]:
        """The whole answer."""
        self._prompt = answer.prompt_logprobs
        kind = "chat.completion" if self._is_chat else "text_completion"
        return {
            **_envelope(answer.request_id, answer.model, answer.model_revision, kind),
            "choices": [self._choice(choice) for choice in answer.choices],
            "usage": usage_entry(answer.usage),
            "seed": answer.seed,
        }

    def chunks(self, event: pb.GenerateStreamResponse) -> bytes:
        """An event as lines of a stream; of some there is nothing to tell."""
        match event.WhichOneof("event"):
            case "accepted":
                return self._opening(event.accepted)
            case "prompt":
                self._prompt = event.prompt.logprobs
                return b""
            case "delta":
                return self._chunk(event, [self._delta(event.delta)])
            case "finish":
                return self._finish(event)
            case "keepalive":
                return KEEPALIVE
            case _:
                return b""

    def _opening(self, accepted: gen.Accepted) -> bytes:
        kind = "chat.completion.chunk" if self._is_chat else "text_completion"
        self.envelope = _envelope(
            accepted.request_id, accepted.model, accepted.model_revision, kind
        )
        if not self._is_chat:
            return KEEPALIVE
        role = {"role": "assistant", "content": ""}
        choices = [
            {"index": index, "delta": role, "logprobs": None, "finish_reason": None}
            for index in range(self._num_choices)
        ]
        return self._chunk(None, choices)

    def _delta(self, delta: gen.Delta) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": self._first_index + delta.index}
        if self._is_chat:
            choice["delta"] = {"content": delta.text}
            choice["logprobs"] = chat_logprobs(delta.logprobs)
        else:
            choice["text"] = delta.text
            choice["logprobs"] = self._next_logprobs(delta.index, delta.text, delta.logprobs)
        choice["finish_reason"] = None
        if delta.token_ids:
            choice["token_ids"] = list(delta.token_ids)
        return choice

    def _finish(self, event: pb.GenerateStreamResponse) -> bytes:
        finish = event.finish
        choice: dict[str, Any] = {"index": self._first_index + finish.index}
        choice["delta" if self._is_chat else "text"] = {} if self._is_chat else ""
        choice["logprobs"] = self._next_logprobs(finish.index, "", ())
        choice |= _ending(finish.finish_reason, finish.matched_stop)
        lines = self._chunk(event, [choice])
        if finish.last and self._include_usage:
            lines += usage_line(self.envelope, usage_entry(event.usage))
        return lines

    def _chunk(
        self, event: pb.GenerateStreamResponse | None, choices: list[dict[str, Any]]
    ) -> bytes:
        content = {**self.envelope, "choices": choices}
        if self._shows_usage:
            content["usage"] = None
        return _line(content)

    def _choice(self, choice: gen.Choice) -> dict[str, Any]:
        made: dict[str, Any] = {"index": self._first_index + choice.index}
        if self._is_chat:
            made["message"] = {"role": "assistant", "content": choice.text, "refusal": None}
            made["logprobs"] = chat_logprobs(choice.logprobs)
        else:
            made["text"] = choice.text
            made["logprobs"] = self._next_logprobs(choice.index, choice.text, choice.logprobs)
        if choice.token_ids:
            made["token_ids"] = list(choice.token_ids)
        return made | _ending(choice.finish_reason, choice.matched_stop)

    def _next_logprobs(
        self, index: int, text: str, entries: Sequence[gen.Logprobs]
    ) -> dict[str, Any] | None:
        """Of a completion; the first of a choice are the prompt's where these were asked for."""
        if self._is_chat:
            return None
        return self._logprobs[index].form(text, self._prompt, entries)


def model_entry(model: pb.Model) -> dict[str, Any]:
    """A model as ``/v1/models`` lists it, with what OpenAI's list does not say."""
    return {
        "id": model.name,
        "object": "model",
        "created": 0,
        "owned_by": "headrace",
        "max_model_len": model.context_tokens,
        "revision": model.revision,
        "quantization": model.quantization,
        "workers": model.workers,
    }


def _envelope(request_id: str, model: str, revision: str, kind: str) -> dict[str, Any]:
    parsed = RequestId.parse(request_id)
    # An id begins with the milliseconds of its making: the same for whoever gets the answer again.
    created = 0 if parsed is None else int(parsed.unique[:12], 16) // 1000
    return {
        "id": request_id,
        "object": kind,
        "created": created,
        "model": model,
        "system_fingerprint": revision,
    }


def usage_line(envelope: Mapping[str, Any], usage: Mapping[str, Any]) -> bytes:
    """The chunk that counts."""
    return _line({**envelope, "choices": [], "usage": usage})


def usage_entry(usage: gen.Usage) -> dict[str, Any]:
    """Usage in OpenAI's words."""
    counted: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_prompt_tokens},
    }
    if usage.from_response_cache:
        counted["from_response_cache"] = True
    return counted


def _ending(reason: "gen.FinishReason.ValueType", matched: gen.MatchedStop) -> dict[str, Any]:
    """``stop_reason`` is vLLM's word for what matched: a stop string, or a stop token id."""
    kind = matched.WhichOneof("kind")
    return {
        "finish_reason": _REASONS.get(reason, "error"),
        "stop_reason": None if kind in (None, "eos_token_id") else getattr(matched, str(kind)),
    }


def _line(content: dict[str, Any]) -> bytes:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode() + b"\n\n"
