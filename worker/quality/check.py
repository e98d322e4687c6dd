"""``headrace-worker --check-quality FILE``: a table of the model as it is set up, and of its unquantized source."""

import contextlib
import dataclasses
import gc
import sys
from pathlib import Path

from tokenizers import Tokenizer

from common.domain import Quantization
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.model.errors import ModelLoadError
from worker.model.load import load_model
from worker.quality.measure import (
    MOST_PIECES,
    PIECE_TOKENS,
    CannotMeasure,
    Quality,
    blocks_of_answer,
    measure,
    pieces_of,
)

_MIB = 1 << 20
_HEAD = f"{'weights':24} {'MiB':>8} {'perplexity':>11} {'change':>8}  distinct-1  -2     -3"


def check_quality(settings: ModelSettings, file: str) -> int:
    """Print the table; the exit code. What stands against it goes to stderr."""
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
        source = dataclasses.replace(
            settings,
            quantization=Quantization.NONE,
            dtype="float32",
            runner=RunnerKind.GENERIC,
        )
        print(_HEAD)  # noqa: T201 - this is what the command is for
        reference = _row("source, float32", source, text, None)
        name = f"{settings.storage}, {settings.dtype or 'default dtype'}"
        _row(name, settings, text, reference)
    except (OSError, ModelLoadError, CannotMeasure) as error:
        sys.stderr.write(f"headrace-worker: {error}\n")
        return 1
    return 0


def _row(name: str, settings: ModelSettings, text: str, reference: Quality | None) -> Quality:
    answers = MOST_PIECES * blocks_of_answer(settings.block_size)
    blocks = max(-(-PIECE_TOKENS // settings.block_size) + 1, answers)
    settings = dataclasses.replace(
        settings,
        kv_blocks=blocks,
        kv_memory_mb=None,
        max_batch_tokens=max(PIECE_TOKENS, settings.max_seqs),
    )

    def progress(step: str) -> None:
        sys.stderr.write(f"{name}: {step}\n")

    # Standard output is the table's alone; what loading has to say belongs beside it.
    with contextlib.redirect_stdout(sys.stderr):
        loaded = load_model(settings, progress)
    tokenizer = Tokenizer.from_str(loaded.card.tokenizer_json.decode())
    found = measure(loaded.runner, pieces_of(tokenizer.encode(text).ids))
    change = found.perplexity / (reference or found).perplexity - 1
    distinct = "  ".join(f"{found.distinct[n]:.3f}" for n in (1, 2, 3))
    print(  # noqa: T201 - this is what the command is for
        f"{name:24} {found.weight_bytes / _MIB:8.1f} {found.perplexity:11.3f} {change:+8.2%}  {distinct}",
        flush=True,
    )
    del loaded
    gc.collect()
    return found
