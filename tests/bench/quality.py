"""What quantization costs: perplexity of the default model on a fixed English text, by runner.

python -m tests.bench.quality [--texts N] [--tokens N]
"""

import argparse
import dataclasses
import functools
import math
import pydoc_data.topics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers

from common.domain import Quantization
from worker.engine.model_settings import KvDtype, ModelSettings, RunnerKind
from worker.engine.runner import Row
from worker.model.checkpoint import find_checkpoint
from worker.model.load import load_model
from worker.model.quantize import linears
from worker.model.quiet_bitsandbytes import bitsandbytes

LogitsOf = Callable[[list[int]], torch.Tensor]


def texts(folder: Path, count: int, tokens: int) -> list[list[int]]:
    """Pieces of the Python reference, which comes with every interpreter."""
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    whole = "\n".join(text for _, text in sorted(pydoc_data.topics.topics.items()))
    # From the middle on, in steps, so that the pieces are of different topics.
    ids = tokenizer(whole[200_000:500_000], verbose=False)["input_ids"]
    step = len(ids) // count
    return [ids[i * step : i * step + tokens] for i in range(count)]


def perplexity(logits_of: LogitsOf, pieces: list[list[int]]) -> float:
    """Over all tokens but each piece's first."""
    losses = [
        torch.nn.functional.cross_entropy(logits_of(piece)[:-1].float(), torch.tensor(piece[1:]))
        for piece in pieces
    ]
    return math.exp(torch.stack(losses).mean().item())


def variants(folder: Path, tokens: int) -> Iterator[tuple[str, LogitsOf]]:
    """The source in float32, 4-bit weights of bitsandbytes computed exactly, and the model as runners serve it quantized."""
    blocks = -(-tokens // 16)
    base = ModelSettings(kv_blocks=blocks, context_tokens=max(tokens, 64))
    exact: Any = load_model(
        dataclasses.replace(base, quantization=Quantization.NONE), lambda _: None
    )
    yield "float32", exact.runner._decoder.reference
    for how in (Quantization.NF4, Quantization.FP4):
        yield f"{how}, computed exactly", functools.partial(_logits, dequantized(folder, how))
    generic: Any = load_model(dataclasses.replace(base, runner=RunnerKind.GENERIC), lambda _: None)
    yield "int8, generic", generic.runner._decoder.reference
    for how in (Quantization.INT8, Quantization.Q4, Quantization.NF4, Quantization.FP4):
        for kv in (KvDtype.MODEL, KvDtype.INT8):
            lean = dataclasses.replace(
                base, runner=RunnerKind.LEAN, quantization=how, kv_dtype=kv, max_seqs=tokens
            )
            decoder: Any = load_model(lean, lambda _: None).runner.decoder
            name = f"{how}, keys {kv}, lean ({decoder.isa})"
            yield name, functools.partial(_lean_logits, decoder, blocks)


def dequantized(folder: Path, how: Quantization) -> Any:
    """The model in float32, with what bitsandbytes makes of its linear layers and gives back."""
    functional = bitsandbytes().functional
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        for _, _, layer in linears(model):
            stored = functional.quantize_4bit(layer.weight, quant_type=how.value)
            layer.weight.copy_(functional.dequantize_4bit(*stored))
    return model


@torch.inference_mode()
def _logits(model: Any, piece: list[int]) -> torch.Tensor:
    found: torch.Tensor = model(torch.tensor([piece])).logits[0]
    return found


def _lean_logits(decoder: Any, blocks: int, piece: list[int]) -> torch.Tensor:
    """Each token is a row of its own, so that the head gives logits after every one."""
    rows = [Row([token], i, range(blocks), None) for i, token in enumerate(piece)]
    return torch.from_numpy(decoder.logits(rows, range(len(rows))))


def main() -> None:
    """Print a line for each variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=512)
    options = parser.parse_args()
    folder = find_checkpoint(ModelSettings(), lambda _: None)
    pieces = texts(folder, options.texts, options.tokens)
    source = 0.0
    for name, logits_of in variants(folder, options.tokens):
        value = perplexity(logits_of, pieces)
        source = source or value
        print(f"{name:34} {value:8.3f}  {value / source - 1:+.2%}", flush=True)


if __name__ == "__main__":
    main()
