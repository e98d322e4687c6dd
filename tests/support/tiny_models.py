"""Tiny random models of the families Headrace promises to run, as checkpoints with a tokenizer."""

from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCAB_SIZE = 384
CONTEXT_TOKENS = 1024
FAMILIES = ("llama", "qwen2", "qwen2-window", "qwen3", "mistral", "gpt2")
MIXTURES = ("mixtral", "qwen2-moe")
"""Of experts; beside the others where whole processes are not needed."""

_COMMON = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT_TOKENS,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_config(family: str) -> transformers.PreTrainedConfig:
    """The configuration of a family's tiny model."""
    if family == "llama":
        return transformers.LlamaConfig(**_COMMON, tie_word_embeddings=True)
    if family == "qwen2":
        return transformers.Qwen2Config(**_COMMON)
    if family == "qwen2-window":  # the first layer sees everything, the others 24 tokens
        return transformers.Qwen2Config(
            **_COMMON, use_sliding_window=True, sliding_window=24, max_window_layers=1
        )
    if family == "qwen3":
        return transformers.Qwen3Config(**_COMMON)
    if family == "mistral":
        return transformers.MistralConfig(**_COMMON, sliding_window=24)
    if family == "mixtral":
        return transformers.MixtralConfig(**_COMMON, num_local_experts=5, num_experts_per_tok=2)
    if family == "qwen2-moe":  # with an expert for every token beside the chosen ones
        return transformers.Qwen2MoeConfig(
            **_COMMON,
            num_experts=6,
            num_experts_per_tok=3,
            moe_intermediate_size=64,
            shared_expert_intermediate_size=96,
        )
    assert family == "gpt2"
    return transformers.GPT2Config(
        vocab_size=VOCAB_SIZE,
        n_positions=CONTEXT_TOKENS,
        n_embd=64,
        n_layer=3,
        n_head=4,
        bos_token_id=1,
        eos_token_id=2,
    )


def make_tiny_model(
    family: str, folder: Path, *, seed: int = 0, intermediate_size: int | None = None
) -> Path:
    """Write a seeded random checkpoint of ``family`` into ``folder`` and return it.

    Weights are larger than a fresh model's, so that greedy text varies instead of repeating one token.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = tiny_config(family)
        if intermediate_size is not None:
            config.intermediate_size = intermediate_size
        model = transformers.AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(6.0)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def greedy_answer(folder: Path, prompt: list[int], num_tokens: int) -> list[int]:
    """What transformers generates behind ``prompt`` in float32, whatever would end it."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    found = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.int64),
        max_new_tokens=num_tokens,
        do_sample=False,
        eos_token_id=[],
        pad_token_id=0,
    )
    tokens: list[int] = found[0, len(prompt) :].tolist()
    return tokens


def tiny_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Bytes and three special tokens."""
    specials = ["<pad>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate([*specials, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=specials[1],
        eos_token=specials[2],
        pad_token=specials[0],
    )
    fast.chat_template = _TEMPLATE
    return fast
