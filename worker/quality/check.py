"""``headrace-worker --check-quality FILE``: a table of the model as it is set up, and of its unquantized source.

With ``--quality-formats`` of the model in each of these formats instead, of which there may be one or all.
"""

import contextlib
import dataclasses
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from common.domain import Quantization
from worker.engine.model_settings import KvDtype, ModelSettings, RunnerKind
from worker.model.checkpoint import find_checkpoint
from worker.model.errors import ModelLoadError, ModelRefused
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
_KV8 = "+kv8"
_DTYPES = ("float32", "float16", "bfloat16")
EVERY_FORMAT = (
    *("float16", "bfloat16", "int8", f"int8{_KV8}", "q4", f"q4{_KV8}"),
    *("nf4", "fp4"),
)
"""What a whole table shows: plain numbers, then quantized ones, with keys and values in int8 where it says so."""


def check_quality(settings: ModelSettings, file: str, formats: Sequence[str] = ()) -> int:
    """Print the table, of the model as it is set up or in each of ``formats``; the exit code.

    A format that the model cannot have is named on stderr and left out; any other trouble ends the table.
    """
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
        source = dataclasses.replace(
            settings,
            quantization=Quantization.NONE,
            dtype="float32",
            kv_dtype=KvDtype.MODEL,
            runner=RunnerKind.GENERIC,
        )
        folder = find_checkpoint(source, lambda text: _say(settings.model, text))
        _print(f"{settings.model}, whose source is {folder.name}; text {Path(file).name}\n{_HEAD}")
        reference = _row("source, float32", source, text, None)
        as_set_up = f"{settings.storage}, {settings.dtype or 'default dtype'}"
        wanted = [(name, in_format(settings, name)) for name in formats]
        for name, one in wanted or [(as_set_up, settings)]:
            try:
                _row(name, one, text, reference)
            except ModelRefused as error:
                if not formats:
                    raise
                _say(name, f"left out: {error}")
    except (OSError, ModelLoadError, CannotMeasure) as error:
        sys.stderr.write(f"headrace-worker: {error}\n")
        return 1
    return 0


def in_format(settings: ModelSettings, name: str) -> ModelSettings:
    """``settings`` with weights, and keys and values, as the format ``name`` says."""
    weights, kv8, _ = name.partition(_KV8)
    settings = dataclasses.replace(settings, kv_dtype=KvDtype.INT8 if kv8 else KvDtype.MODEL)
    if weights in _DTYPES:
        return dataclasses.replace(settings, quantization=Quantization.NONE, dtype=weights)
    return dataclasses.replace(settings, quantization=Quantization(weights), dtype=None)


def format_problem(name: str) -> str | None:
    """What is wrong with the name of a format."""
    known = {*EVERY_FORMAT, *_DTYPES, *(f"{one}{_KV8}" for one in (*_DTYPES, "nf4", "fp4"))}
    return None if name in known else f"{name!r} is none of {', '.join(sorted(known))}"


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - this is what the command is for


def _say(name: str, text: str) -> None:
    sys.stderr.write(f"{name}: {text}\n")


def _row(name: str, settings: ModelSettings, text: str, reference: Quality | None) -> Quality:
    answers = MOST_PIECES * blocks_of_answer(settings.block_size)
    blocks = max(-(-PIECE_TOKENS // settings.block_size) + 1, answers)
    settings = dataclasses.replace(
        settings,
        kv_blocks=blocks,
        kv_memory_mb=None,
        max_batch_tokens=max(PIECE_TOKENS, settings.max_seqs),
    )

    # Standard output is the table's alone; what loading has to say belongs beside it.
    with contextlib.redirect_stdout(sys.stderr):
        loaded = load_model(settings, lambda step: _say(name, step))
    tokenizer = Tokenizer.from_str(loaded.card.tokenizer_json.decode())
    found = measure(loaded.runner, pieces_of(tokenizer.encode(text).ids))
    change = found.perplexity / (reference or found).perplexity - 1
    distinct = "  ".join(f"{found.distinct[n]:.3f}" for n in (1, 2, 3))
    _print(
        f"{name:24} {found.weight_bytes / _MIB:8.1f} {found.perplexity:11.3f} {change:+8.2%}  {distinct}"
    )
    del loaded
    gc.collect()
    return found
