"""The simulated model's vocabulary: a token for each byte (its id is the byte), and four special tokens."""

from functools import lru_cache

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

NUM_BYTES = 256
SPECIAL_TOKENS = ("<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>")
BOS_ID, EOS_ID, IM_START_ID, IM_END_ID = range(NUM_BYTES, NUM_BYTES + len(SPECIAL_TOKENS))
VOCAB_SIZE = NUM_BYTES + len(SPECIAL_TOKENS)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@lru_cache(maxsize=1)
def tokenizer_json() -> bytes:
    """The content of a ``tokenizer.json`` for this vocabulary."""
    # The byte-level alphabet is the printable characters in their own places, the others from U+0100 on.
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    others = iter(sorted(char for char in alphabet if ord(char) >= NUM_BYTES))
    tokens = [chr(byte) if chr(byte) in alphabet else next(others) for byte in range(NUM_BYTES)]
    tokenizer = Tokenizer(models.BPE({token: byte for byte, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    return tokenizer.to_str().encode()
