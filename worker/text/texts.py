"""Makes the texts of sequences for one tokenizer, by the kind of decoder it has."""

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from common.content_filter import ContentFilter
from worker.engine.job import Job
from worker.engine.text_stream import TextStream
from worker.text.byte_level import ByteLevelDetokenizer, bytes_of_tokens
from worker.text.detokenizer import Detokenizer
from worker.text.filtered_text import FilteredText
from worker.text.output_text import OutputText
from worker.text.stop_matcher import StopMatcher
from worker.text.windowed import TokenKinds, WindowedDetokenizer

WORD_SPACE = "\u2581"
"""How vocabularies of words write a space."""


class Texts:
    """Everything about a tokenizer that its sequences share."""

    def __init__(self, tokenizer_json: bytes, filters: Sequence[ContentFilter] = ()) -> None:
        """``tokenizer_json`` is the content of a ``tokenizer.json``; ``filters`` judge all text that is told."""
        self._filters = filters
        self._tokenizer = Tokenizer.from_str(tokenizer_json.decode())
        decoder = json.loads(tokenizer_json).get("decoder")
        self._token_bytes = bytes_of_tokens(self._tokenizer) if _is_byte_level(decoder) else None
        self._kinds = TokenKinds.of(self._tokenizer)

    def text_of(self, job: Job) -> TextStream:
        """The text of a sequence that continues the job's prompt."""
        detokenizer = self._detokenizer_behind(job.prompt_token_ids)
        text = OutputText(
            detokenizer,
            StopMatcher(job.stop.stop),
            self.bytes_of,
            include_stop=job.stop.include_stop_in_output,
            preface=self._prompt_text(job, detokenizer) if job.output.echo else "",
        )
        return FilteredText(text, self._filters) if self._filters else text

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes that a token stands for; special tokens by their names."""
        token = self._tokenizer.id_to_token(token_id) or ""
        if self._token_bytes is not None:
            return self._token_bytes.get(token_id) or token.encode()
        if token_id in self._kinds.byte:
            return bytes([int(token[3:5], 16)])
        return token.replace(WORD_SPACE, " ").encode()

    def _prompt_text(self, job: Job, detokenizer: Detokenizer) -> str:
        """The prompt as text; the beginning of a character at its end belongs to what follows."""
        if self._token_bytes is not None:
            return "".join(detokenizer.push(token_id) for token_id in job.prompt_token_ids)
        return self._tokenizer.decode(list(job.prompt_token_ids), skip_special_tokens=True)

    def _detokenizer_behind(self, prompt_token_ids: tuple[int, ...]) -> Detokenizer:
        if self._token_bytes is not None:
            return ByteLevelDetokenizer(self._token_bytes)
        return WindowedDetokenizer(self._tokenizer, self._kinds, prompt_token_ids)


def _is_byte_level(decoder: Any) -> bool:
    """Whether bytes are all that the decoder knows, alone or as the only member of a sequence."""
    if not isinstance(decoder, dict):
        return False
    if decoder.get("type") == "Sequence":
        members = decoder.get("decoders", [])
        return len(members) == 1 and _is_byte_level(members[0])
    return decoder.get("type") == "ByteLevel"
