"""What computes in a soak: the simulation, or a tiny real model; with faults on two tokens."""

from pathlib import Path
from typing import TYPE_CHECKING

from common.model_card import ModelCard
from tests.soak.bodies import BROKEN, DOOMED
from worker.engine.block_store import PagedRunner
from worker.faults import Fault, FaultAction, FaultyRunner
from worker.simulated.card import simulated_card
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings

if TYPE_CHECKING:
    from worker.model.load import LoadedModel

KINDS = ("simulated", "generic", "lean", "windowed")
"""``windowed`` is the lean runner on a model that looks back only so far, whose pool therefore hardly runs short."""
BLOCK_TOKENS = {"simulated": 8, "generic": 8, "lean": 16, "windowed": 16}
WINDOW_TOKENS = {"simulated": 0, "generic": 0, "lean": 0, "windowed": 24}
_FAMILIES = {"generic": "llama", "lean": "llama", "windowed": "mistral"}


def make_runner(kind: str, folder: Path, num_tokens: int) -> tuple[PagedRunner, ModelCard]:
    """A runner whose pool holds so many tokens, and which fails on what is doomed; the card of what it computes."""
    size = BLOCK_TOKENS[kind]
    num_blocks = -(-num_tokens // size)
    if kind == "simulated":
        simulation = SimulatedSettings(kv_blocks=num_blocks, block_size=size)
        runner: PagedRunner = SimulatedRunner(simulation)
        card = simulated_card(simulation)
    else:
        loaded = _load(kind, folder, num_blocks, size)
        runner, card = loaded.runner, loaded.card
    faults = [Fault(DOOMED, FaultAction.NAN), Fault(BROKEN, FaultAction.RAISE)]
    return FaultyRunner(runner, faults), card


def _load(kind: str, folder: Path, num_blocks: int, block_size: int) -> "LoadedModel":
    from common.domain import Quantization
    from tests.support.tiny_models import make_tiny_model
    from worker.engine.model_settings import ModelSettings, RunnerKind
    from worker.model.load import load_model

    is_lean = kind in {"lean", "windowed"}
    settings = ModelSettings(
        model=str(make_tiny_model(_FAMILIES[kind], folder / kind)),
        quantization=Quantization.INT8 if is_lean else Quantization.NONE,
        dtype=None if is_lean else "float32",
        runner=RunnerKind.LEAN if is_lean else RunnerKind.GENERIC,
        kv_blocks=num_blocks,
        block_size=block_size,
        threads=1,
    )
    return load_model(settings, lambda _: None)
