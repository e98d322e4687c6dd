"""Small tokenizers of the kinds that real models have."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers


def byte_level_tokenizer() -> Tokenizer:
    """All bytes, some merges, a special token and an added one with a space in it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "t"), ("h", "e"), ("Ã", "©"), ("ð", "Ł")]
    vocabulary = [*alphabet, *("".join(merge) for merge in merges)]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    tokenizer.add_tokens([AddedToken("<a b>", special=False)])
    return tokenizer


def fallback_tokenizer() -> Tokenizer:
    """Words with a marked space, and byte tokens for the rest: the shape of Llama 2's vocabulary."""
    words = ["<unk>", "<s>", "▁", "▁the", "▁mill", "s", "▁wheel", "é", ".", "\n"]
    vocabulary = words + [f"<0x{byte:02X}>" for byte in range(256)]
    ids = {token: i for i, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.BPE(ids, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<s>", "<unk>"])
    return tokenizer
