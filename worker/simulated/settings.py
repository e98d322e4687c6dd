"""How fast the simulated model is, and how much room it has."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SimulatedSettings:
    """``prefill_tokens_per_s`` 0 means no time for prompts; ``eos_every`` n ends about one in n tokens, 0 none."""

    model: str = "simulated"
    step_ms: float = 0.0
    prefill_tokens_per_s: float = 0.0
    kv_blocks: int = 4096
    block_size: int = 16
    context_tokens: int = 8192
    eos_every: int = 0
    max_seqs: int = 64
