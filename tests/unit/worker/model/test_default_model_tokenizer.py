"""The tokenizer built from GGUF metadata splits text the way the SmolLM family's own does."""

import pytest
from tokenizers import Tokenizer, pre_tokenizers

from worker.model.errors import TokenizerRefused
from worker.model.gguf_tokenizer import build_tokenizer

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def metadata(pre="smollm", kind="gpt2"):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    extra = ["Ġ1", "12", "ĠĠ", "he", "ll"]
    tokens = [*SPECIALS, *alphabet, *extra]
    return {
        "tokenizer.ggml.model": kind,
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": ["Ġ 1", "1 2", "Ġ Ġ", "h e", "l l"],
        "tokenizer.ggml.token_type": [3] * len(SPECIALS) + [1] * (len(tokens) - len(SPECIALS)),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{% for m in messages %}<|im_start|>{{ m['content'] }}{% endfor %}",
    }


def plain(pre="smollm") -> Tokenizer:
    return build_tokenizer(metadata(pre)).backend_tokenizer


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("12345", ["1", "2", "3", "4", "5"]),
        ("a 12", ["a", "Ġ", "1", "2"]),
        ("a  1", ["a", "ĠĠ", "1"]),  # digits cut the text first, so both spaces stay together
        ("hello", ["he", "ll", "o"]),
    ],
)
def test_digits_stand_alone(text, tokens):
    """Digits are cut out before anything is merged, whatever merges exist."""
    assert plain().encode(text).tokens == tokens


def test_other_rules_are_not_mixed_up():
    """The plain byte-level rule merges digits where SmolLM's does not."""
    assert plain("gpt-2").encode("a 12").tokens != plain().encode("a 12").tokens


@pytest.mark.parametrize(
    "text", ["水车 🙂👨‍👩‍👧", "tab\tand\n\nnewline  ", " leading", "naïve\u0301", "\x00\x7f", "١٢"]
)
def test_text_survives(text):
    """Encoding and decoding any text gives it back."""
    tokenizer = plain()
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_special_tokens_are_one_token_and_are_hidden():
    """Control tokens inside text become their ids, and decoding can leave them out."""
    tokenizer = plain()
    ids = tokenizer.encode("<|im_start|>he<|im_end|>").ids
    assert ids[0] == 1
    assert ids[-1] == 2
    assert tokenizer.decode(ids) == "he"


def test_names_and_template_come_along():
    """bos, eos and the chat template are the file's."""
    wrapped = build_tokenizer(metadata())
    assert (wrapped.bos_token, wrapped.eos_token) == ("<|im_start|>", "<|im_end|>")
    chat = wrapped.apply_chat_template([{"content": "he"}], tokenize=False)
    assert chat == "<|im_start|>he"


@pytest.mark.parametrize(("pre", "kind"), [("llama-bpe", "gpt2"), ("smollm", "llama")])
def test_unknown_kinds_are_refused_by_name(pre, kind):
    """A rule that is not known here is not guessed."""
    with pytest.raises(TokenizerRefused, match="llama"):
        build_tokenizer(metadata(pre, kind))
