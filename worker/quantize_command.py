"""``headrace-worker quantize IN OUT``: a model, quantized once, as a checkpoint that loads without doing it again."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from common.domain import Quantization
from worker.engine.model_settings import ModelSettings

COMMAND = "quantize"
_CALIBRATED = "gptq"
"""The method that wants to see a text: it is no way to load a model, so it has no other name here."""


def quantize(argv: Sequence[str]) -> int:
    """Run the command; the exit code. What stands against it goes to stderr."""
    asked = _parser().parse_args(argv)
    problem = _problem(asked)
    if problem is not None:
        _say(problem)
        return 2
    from worker.model.errors import ModelLoadError  # a model's libraries, only when asked for

    try:
        _save(asked)
    except (OSError, ModelLoadError) as error:
        _say(str(error))
        return 1
    return 0


def _problem(asked: argparse.Namespace) -> str | None:
    """What does not go together."""
    if asked.double_quant and asked.quantization == Quantization.INT8:
        return "--double-quant: int8 has one scale for each row, nothing to quantize twice"
    if asked.quantization == _CALIBRATED:
        if asked.double_quant:
            return "--double-quant: is for nf4 and fp4"
        if asked.calibration is None:
            return (
                f"--calibration: {_CALIBRATED} rounds by what layers see of a text; name its file"
            )
    elif asked.calibration is not None:
        return f"--calibration: {asked.quantization} looks at nothing but the weights"
    return None


def _save(asked: argparse.Namespace) -> None:
    from worker.model.save_gptq import save_gptq
    from worker.model.save_quantized import save_quantized

    is_calibrated = asked.quantization == _CALIBRATED
    settings = ModelSettings(
        model=asked.model,
        quantization=None if is_calibrated else Quantization(asked.quantization),
        double_quant=asked.double_quant,
        model_cache=asked.model_cache,
    )
    if is_calibrated:
        save_gptq(settings, Path(asked.calibration), Path(asked.out), _say)
    else:
        save_quantized(settings, Path(asked.out), _say)


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
        choices=[*(kind.value for kind in kinds), _CALIBRATED],
        default=Quantization.INT8.value,
        help="how linear layers are stored (default int8)",
    )
    parser.add_argument(
        "--double-quant", action="store_true", help="quantize the scales of nf4 and fp4 too"
    )
    parser.add_argument(
        "--calibration", metavar="FILE", help=f"text to which {_CALIBRATED} fits the weights"
    )
    parser.add_argument("--model-cache", help="folder of converted checkpoints")
    return parser


def _say(text: str) -> None:
    sys.stderr.write(f"headrace-worker {COMMAND}: {text}\n")
