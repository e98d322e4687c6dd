"""Log probabilities in OpenAI's two forms: a list of tokens for chat, parallel lists for completions."""

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

from headrace.v1 import generation_pb2 as gen


def chat_logprobs(entries: Sequence[gen.Logprobs]) -> dict[str, Any] | None:
    """None where none were asked for."""
    if not entries:
        return None
    content = [
        {**_chat_token(one.chosen), "top_logprobs": [_chat_token(token) for token in one.top]}
        for one in entries
    ]
    return {"content": content, "refusal": None}


class CompletionLogprobs:
    """One choice's log probabilities: knows where in its text the next token begins."""

    def __init__(self, prompt_text: str = "") -> None:
        """At the start of the text. ``prompt_text`` is the prompt where it came as a text."""
        self._prompt_text = prompt_text
        self._offset = 0
        # A token may be half a character: the character counts with the token that ends it.
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_begun = False

    def form(
        self, text: str, prompt: Sequence[gen.Logprobs], entries: Sequence[gen.Logprobs]
    ) -> dict[str, Any] | None:
        """The next tokens, whose text is ``text``; behind the prompt's at the beginning. None where there are none."""
        all_entries = list(entries)
        first = b""
        if not self._is_begun and prompt:
            all_entries = [*prompt, *entries]
            first = _first_token(text, self._prompt_text, prompt[1:], entries)
        self._is_begun = True
        if not all_entries:
            return None
        return self._lists(all_entries, first)

    def _lists(self, entries: Iterable[gen.Logprobs], first: bytes) -> dict[str, Any]:
        tokens, offsets, values, top = [], [], [], []
        for one in entries:
            # The prompt's first token has no number, and nothing but the text says what it was.
            has_number = one.HasField("chosen")
            piece = one.chosen.token if has_number else first
            tokens.append(piece.decode(errors="replace"))
            offsets.append(self._offset)
            values.append(one.chosen.logprob if has_number else None)
            top.append({_text(other): other.logprob for other in one.top} if has_number else None)
            self._offset += len(self._characters.decode(piece))
        return {
            "tokens": tokens,
            "token_logprobs": values,
            "top_logprobs": top,
            "text_offset": offsets,
        }


def _first_token(
    text: str,
    prompt_text: str,
    rest: Sequence[gen.Logprobs],
    output: Sequence[gen.Logprobs],
) -> bytes:
    """What a text that begins with the prompt has before the ``rest`` of the prompt's tokens; nothing for a special one."""
    said, prompt = text.encode(), prompt_text.encode()
    behind = b"".join(one.chosen.token for one in rest)
    if prompt and said.startswith(prompt) and prompt.endswith(behind):
        return prompt[: len(prompt) - len(behind)]
    both = behind + b"".join(one.chosen.token for one in output)
    if said.endswith(both):
        return said[: len(said) - len(both)]
    return said[: max(0, said.find(behind))]


def _chat_token(token: gen.TokenLogprob) -> dict[str, Any]:
    return {"token": _text(token), "logprob": token.logprob, "bytes": list(token.token)}


def _text(token: gen.TokenLogprob) -> str:
    """A token may be half a character; its bytes say so exactly where the form has them."""
    return token.token.decode(errors="replace")
