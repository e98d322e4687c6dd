"""``headrace-worker quantize IN OUT``: a model, quantized once, as a checkpoint that loads without doing it again."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from common.domain import Quantization
from worker.engine.model_settings import ModelSettings

COMMAND = "quantize"


def quantize(argv: Sequence[str]) -> int:
    """Run the command; the exit code. What stands against it goes to stderr."""
    asked = _parser().parse_args(argv)
    how = Quantization(asked.quantization)
    if asked.double_quant and how is Quantization.INT8:
        _say("--double-quant: int8 has one scale for each row, nothing to quantize twice")
        return 2
    from worker.model.errors import ModelLoadError  # a model's libraries, only when asked for
    from worker.model.save_quantized import save_quantized

    settings = ModelSettings(
        model=asked.model,
        quantization=how,
        double_quant=asked.double_quant,
        model_cache=asked.model_cache,
    )
    try:
        save_quantized(settings, Path(asked.out), _say)
    except (OSError, ModelLoadError) as error:
        _say(str(error))
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"headrace-worker {COMMAND}",
        description="Writes a quantized checkpoint.",
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="IN", help="as --model: a folder, a hub id, a GGUF file")
    parser.add_argument("out", metavar="OUT", help="folder to write, not there yet")
    kinds = (Quantization.INT8, Quantization.NF4, Quantization.FP4)
    parser.add_argument(
        "--quantization",
        choices=[kind.value for kind in kinds],
        default=Quantization.INT8.value,
        help="how linear layers are stored (default int8)",
    )
    parser.add_argument(
        "--double-quant", action="store_true", help="quantize the scales of nf4 and fp4 too"
    )
    parser.add_argument("--model-cache", help="folder of converted checkpoints")
    return parser


def _say(text: str) -> None:
    sys.stderr.write(f"headrace-worker {COMMAND}: {text}\n")
