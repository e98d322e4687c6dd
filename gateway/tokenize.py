"""Prompts as token ids and constraints looked at, in threads: either may take a while, and the event loop serves everybody."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from common.content_filter import ContentFilter, first_refusal
from common.domain import OutputConstraint
from common.errors import FieldViolation, InvalidRequest
from common.grammars import BadGrammar, check_grammar
from gateway.draft import ChatPrompt, PromptDraft, TextPrompt, TokenPrompt
from gateway.model import Model

MAX_LONG_CHARS = 1 << 20
"""A text may have so many, or as many as the longest context of the longest tokens: more keeps a processor busy for seconds."""


_IDS_AT_ONCE = 1 << 16


class PromptTokenizer:
    """A bounded number of threads; prompts beyond it wait their turn."""

    def __init__(self, num_threads: int, filters: Sequence[ContentFilter] = ()) -> None:
        """Threads start when they are needed; ``filters`` judge prompts before they are let in."""
        self._filters = filters
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="tokenize")

    def __enter__(self) -> Self:
        """Ready."""
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for the prompt at hand; those that wait are dropped."""
        self._threads.shutdown(cancel_futures=True)

    async def tokens(self, model: Model, prompt: PromptDraft) -> Sequence[int]:
        """The prompt's tokens, cut to the last ``truncate_to_tokens`` if that is set.

        Raises:
            InvalidRequest: the prompt cannot be rendered or tokenized.
        """
        keep = prompt.truncate_to_tokens
        if isinstance(prompt.form, TokenPrompt):
            ids: Sequence[int] = prompt.form.ids
        else:
            loop = asyncio.get_running_loop()
            ids = await loop.run_in_executor(self._threads, tokenize, model, prompt.form)
        return ids if keep is None else ids[-keep:]

    async def check_content(
        self, model: Model, prompt: PromptDraft, tokens: Sequence[int]
    ) -> None:
        """Ask the content filters about a prompt, of which ``tokens`` are left.

        Raises:
            InvalidRequest: one of them refuses it.
        """
        if self._filters:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(
                self._threads, judge, self._filters, model, prompt.form, tokens
            )

    async def check_constraint(self, constraint: OutputConstraint) -> None:
        """Whether workers that follow constraints can follow this one, as far as its form tells.

        Raises:
            InvalidRequest: it cannot be read, or costs too much.
        """
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, check, constraint)


def check(constraint: OutputConstraint) -> None:
    """Whether the constraint can be followed.

    Raises:
        InvalidRequest: it cannot be read, or costs too much.
    """
    try:
        check_grammar(constraint)
    except BadGrammar as error:
        raise _refusal(f"constraint.{constraint.kind}", f"cannot be used: {error}") from error


def tokenize(model: Model, form: TextPrompt | ChatPrompt | None) -> Sequence[int]:
    """Plain text gets the special tokens that the tokenizer adds; a rendered template brings its own.

    Raises:
        InvalidRequest: the prompt is too long to look at, or cannot be rendered or tokenized.
    """
    if isinstance(form, ChatPrompt):
        if model.template is None:
            raise _refusal("prompt.chat", "the model has no chat template")
        field, text = "prompt.chat", model.template.render(form)
    else:
        assert form is not None
        field, text = "prompt.text", form.text
    most_chars = max(MAX_LONG_CHARS, model.longest_prompt_chars)
    if len(text) > most_chars:
        limit = f"the context is {model.card.context_tokens} tokens"
        raise _refusal(
            field, f"must have at most {most_chars} characters, has {len(text)}: {limit}"
        )
    try:
        # The batch call is the one that lets other threads run meanwhile.
        (encoding,) = model.tokenizer.encode_batch_fast(
            [text], add_special_tokens=not isinstance(form, ChatPrompt)
        )
    except Exception as error:  # the library raises bare Exception for what it cannot encode
        raise _refusal(field, f"cannot be tokenized: {str(error)[:200]}") from error
    ids: Sequence[int] = encoding.ids
    # In pieces, between which other threads get their turn.
    pieces = (ids[at : at + _IDS_AT_ONCE] for at in range(0, len(ids), _IDS_AT_ONCE))
    if any(max(piece) >= model.card.vocab_size for piece in pieces):
        raise _refusal(field, "holds a special token that the model does not have")
    return ids


def judge(
    filters: Sequence[ContentFilter],
    model: Model,
    form: TextPrompt | ChatPrompt | TokenPrompt | None,
    tokens: Sequence[int],
) -> None:
    """Each part as it was sent, and all of it as the model reads it: neither a border between parts nor token ids hide a text.

    Raises:
        InvalidRequest: a filter refuses it.
    """
    parts: dict[str, str] = {}
    match form:
        case TextPrompt():
            parts["prompt.text"] = form.text
        case ChatPrompt():
            for index, message in enumerate(form.messages):
                parts[f"prompt.chat.messages[{index}].content"] = message.content
    parts["prompt"] = model.tokenizer.decode(list(tokens), skip_special_tokens=True)
    for field, text in parts.items():
        name = first_refusal(filters, text)
        if name is not None:
            violation = FieldViolation(field, f"is refused by the content filter {name}")
            raise InvalidRequest([violation], reason="CONTENT_FILTER")


def _refusal(field: str, description: str) -> InvalidRequest:
    return InvalidRequest([FieldViolation(field, description)])
