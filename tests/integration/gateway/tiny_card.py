"""A model card whose tokenizer knows words: small, exact, and decoded as a real one is."""

from tokenizers import Tokenizer, models, pre_tokenizers, processors

from common.model_card import ModelCard

VOCAB_SIZE = 260
WORDS = ["<unk>", "<s>", "</s>", "hello", "world", "user", "assistant", "system", ":"]
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant :{% endif %}"
)


def tiny_tokenizer() -> Tokenizer:
    """Splits at white space; `<s>` is put before plain text."""
    vocab = {word: index for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def tiny_card(model: str = "tiny", **changes: object) -> ModelCard:
    """The card of a model with a context of 64 tokens and room for 48 in memory."""
    facts: dict[str, object] = {
        "model": model,
        "revision": "r1",
        "architecture": "test",
        "quantization": "none",
        "context_tokens": 64,
        "vocab_size": VOCAB_SIZE,
        "tokenizer_json": tiny_tokenizer().to_str().encode(),
        "chat_template": TEMPLATE,
        "special_tokens": {"bos_token": "<s>", "eos_token": "</s>"},
        "eos_token_ids": (2,),
        "default_max_tokens": 16,
        "kv_capacity_tokens": 48,
        "fingerprint": "f1",
    }
    return ModelCard(**(facts | changes))  # type: ignore[arg-type]
