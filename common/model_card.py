"""What the rest of the system has to know about the model behind a runner: a model card, before any wire format."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A served model as gateways and schedulers see it; they need no model files beside it.

    ``revision`` changes with weights, tokenizer, template or quantization. ``fingerprint`` changes with anything
    that can alter a token (the revision, dtype, kernels): a started request resumes only on an equal one.
    ``sliding_window`` 0 means that every token sees all before it. A ``default_…`` of None leaves the server's default.
    ``kv_block_tokens`` and ``max_seqs`` of 0 are unknown: such a worker is asked for one choice at a time.
    """

    model: str
    revision: str
    architecture: str
    quantization: str
    context_tokens: int
    vocab_size: int
    tokenizer_json: bytes
    chat_template: str
    special_tokens: Mapping[str, str]
    eos_token_ids: tuple[int, ...]
    default_max_tokens: int
    kv_capacity_tokens: int
    fingerprint: str
    sliding_window: int = 0
    kv_block_tokens: int = 0
    max_seqs: int = 0
    capabilities: tuple[str, ...] = field(default=())
    default_temperature: float | None = None
    default_top_p: float | None = None
    default_top_k: int | None = None
