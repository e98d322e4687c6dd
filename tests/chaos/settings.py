"""What a chaos run is told."""

from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.schedule import LASTS_LONG, FaultKind


@dataclass(frozen=True, kw_only=True)
class ChaosSettings:
    """One run; equal settings give equal schedules, as far as timing allows."""

    seed: int
    duration_s: float
    engine: str = "simulated"
    num_streams: int = 16
    num_asks: int = 40
    step_ms: float = 15.0
    longest_answer_tokens: int = 1500
    kinds: tuple[FaultKind, ...] = tuple(kind for kind in FaultKind if kind not in LASTS_LONG)
    gap_s: tuple[float, float] = (1.5, 5.0)
    """Pause between the beginnings of two faults."""
    most_at_once: int = 2
    """Faults that hold at the same time; many more would only add up to a stack that is never there."""
    longest_without_redis_s: float = 8.0
    num_schedulers: int = 2
    num_partitions: int = 1
    """Of each model."""
    num_gateways: int = 2
    folder: Path = field(default_factory=lambda: Path(".cache/chaos"))
    """Where a failure leaves its histories and logs."""

    @property
    def is_real(self) -> bool:
        """Whether a real model computes."""
        return self.engine == "model"

    def worker_flags(self, model: str) -> list[str]:
        """Flags of a worker of `model`."""
        if self.is_real:
            # fp32: whoever computes a token, and in whatever batch, it is the same token.
            flags = ["--quantization", "none", "--served-model-name", model]
            return [*flags, "--max-seqs", "8", "--kv-memory-mb", "128", "--threads", "1"]
        flags = ["--engine", "simulated", "--served-model-name", model]
        flags += ["--step-ms", f"{self.step_ms:g}", "--eos-every", "400"]
        # Few blocks and slots: requests wait, and are put back.
        return [*flags, "--kv-blocks", "512", "--max-seqs", "8"]

    @property
    def workers(self) -> dict[str, int]:
        """Workers of each model."""
        return {"real": 2} if self.is_real else {"sim-a": 2, "sim-b": 1}

    def alias(self, model: str) -> str:
        """Another name of a model, by which it is asked for too."""
        return f"{model}-too"
