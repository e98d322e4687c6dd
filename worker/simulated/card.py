"""The simulated model's card."""

import hashlib

from common.grammars import CAPABILITY, is_available
from common.model_card import ModelCard
from worker.simulated.settings import SimulatedSettings
from worker.simulated.vocabulary import (
    CHAT_TEMPLATE,
    EOS_ID,
    IM_END_ID,
    SPECIAL_TOKENS,
    VOCAB_SIZE,
    tokenizer_json,
)

# Rises when the tokens change that equal input gives.
_ALGORITHM = 1


def simulated_card(settings: SimulatedSettings) -> ModelCard:
    """A card like a real model's; its revision changes with everything that decides tokens."""
    source = f"{_ALGORITHM}:{settings.eos_every}".encode() + tokenizer_json()
    revision = hashlib.sha256(source).hexdigest()[:16]
    return ModelCard(
        model=settings.model,
        revision=revision,
        architecture="simulated",
        quantization="none",
        context_tokens=settings.context_tokens,
        vocab_size=VOCAB_SIZE,
        tokenizer_json=tokenizer_json(),
        chat_template=CHAT_TEMPLATE,
        special_tokens={"bos_token": SPECIAL_TOKENS[0], "eos_token": SPECIAL_TOKENS[1]},
        eos_token_ids=(EOS_ID, IM_END_ID),
        default_max_tokens=256,
        kv_capacity_tokens=settings.kv_blocks * settings.block_size,
        kv_block_tokens=settings.block_size,
        max_seqs=settings.max_seqs,
        capabilities=(CAPABILITY,) if is_available() else (),
        fingerprint=f"simulated:{revision}",
    )
