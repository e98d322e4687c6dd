"""``--compile``: a model's layers compiled by torch, where a compiler is found, all at once before anybody is served.

Each decoder layer is compiled by itself: they share their code, so all but the first cost little. Attention over the paged
cache stays outside, since its shapes are those of the step; so do experts, which a step chooses. Compiled arithmetic is
fused by shape, so what it gives is equal to what the model gives within rounding, and to itself only in equal batches.
"""

import time
from typing import Any

import torch

from worker.engine.runner import Row
from worker.kv.cache import LayerShape, PagedCache
from worker.model.decoder import Decoder
from worker.model.errors import ModelRefused
from worker.model.layout import StepLayout

# A step of one sequence, of several, and chunks short and long: whatever else comes is of one of their shapes.
_SHAPES = ((1,), (1, 1, 1, 1, 1, 1), (40,), (200, 1))
_BLOCK_SIZE = 16


def compile_decoder(decoder: Decoder, layers: list[LayerShape]) -> float:
    """Compile ``decoder``'s layers in place; the seconds that it took.

    Raises:
        ModelRefused: torch cannot compile here, or not this model.
    """
    from torch._dynamo.exc import TorchDynamoException  # seconds, for who compiles alone
    from torch._inductor.exc import InductorError

    began_s = time.monotonic()
    for layer in _decoder_layers(decoder.model):
        layer.compile(dynamic=True)
    decoder.is_compiled = True
    try:
        _run_shapes(decoder, layers)
    except (TorchDynamoException, InductorError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelRefused(f"--compile: torch cannot compile it here: {reason}") from error
    return time.monotonic() - began_s


def _decoder_layers(model: Any) -> list[torch.nn.Module]:
    """The layers, by what transformers says must not be divided.

    Raises:
        ModelRefused: it says nothing of this model.
    """
    names = set(model._no_split_modules or ())
    found = [module for module in model.modules() if type(module).__name__ in names]
    if not found:
        raise ModelRefused(f"--compile: {type(model).__name__} does not name its layers")
    return found


def _run_shapes(decoder: Decoder, layers: list[LayerShape]) -> None:
    for shape in _SHAPES:
        each = -(-max(shape) // _BLOCK_SIZE)
        cache = PagedCache(
            layers, num_blocks=each * len(shape), block_size=_BLOCK_SIZE, dtype=decoder.dtype
        )
        rows = [
            Row([0] * count, 0, range(i * each, (i + 1) * each), None)
            for i, count in enumerate(shape)
        ]
        layout = StepLayout(rows, cache, decoder.dtype, decoder.device)
        decoder.logits(layout, range(len(rows)))
