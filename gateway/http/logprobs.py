"""Log probabilities in OpenAI's two forms: a list of tokens for chat, parallel lists for completions."""

from collections.abc import Sequence
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
    """Knows where in the text of a choice the next token begins."""

    def __init__(self) -> None:
        """At the start of the text."""
        self._offset = 0

    def form(self, entries: Sequence[gen.Logprobs], first: str = "") -> dict[str, Any] | None:
        """The next tokens; None where none were asked for.

        A prompt's first token follows upon nothing, so nobody says how likely it is, nor which it was: ``first`` does.
        """
        tokens, offsets, values, top = [], [], [], []
        for one in entries:
            has_number = one.HasField("chosen")
            token = _text(one.chosen) if has_number else first
            tokens.append(token)
            offsets.append(self._offset)
            values.append(one.chosen.logprob if has_number else None)
            top.append({_text(other): other.logprob for other in one.top} if has_number else None)
            self._offset += len(token)
        if not tokens:
            return None
        return {
            "tokens": tokens,
            "token_logprobs": values,
            "top_logprobs": top,
            "text_offset": offsets,
        }


def _chat_token(token: gen.TokenLogprob) -> dict[str, Any]:
    return {"token": _text(token), "logprob": token.logprob, "bytes": list(token.token)}


def first_token_of(text: str, prompt: Sequence[gen.Logprobs]) -> str:
    """The text before the prompt's second token, where ``text`` begins with the prompt."""
    others = b"".join(one.chosen.token for one in prompt[1:])
    place = text.encode().find(others)
    return text.encode()[: max(0, place)].decode(errors="replace")


def _text(token: gen.TokenLogprob) -> str:
    """A token may be half a character; its bytes say so exactly where the form has them."""
    return token.token.decode(errors="replace")
