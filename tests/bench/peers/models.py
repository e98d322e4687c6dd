"""The models that are compared, as checkpoint folders, and the forms that peers want them in: all made once."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers

from worker.engine.model_settings import ModelSettings
from worker.model.checkpoint import find_checkpoint

PEERS = Path(".venv/peers")
_MODELS = PEERS / "models"
_VOCABULARY = 49152


def smollm2() -> Path:
    """SmolLM2-135M-Instruct: the default model's own folder."""
    return find_checkpoint(ModelSettings(), print)


def qwen3() -> Path:
    """Random weights in the shape of Qwen3-0.6B, with the default model's tokenizer and so its vocabulary."""

    def make(folder: Path) -> None:
        config = transformers.Qwen3Config(
            vocab_size=_VOCABULARY,
            hidden_size=1024,
            intermediate_size=3072,
            num_hidden_layers=28,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=128,
            tie_word_embeddings=True,
            max_position_embeddings=2048,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=2,
        )
        torch.manual_seed(0)
        model: Any = transformers.Qwen3ForCausalLM(config)
        model.to(torch.bfloat16).save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            if (source := smollm2() / name).exists():
                shutil.copy(source, folder)

    return _once("qwen3-0.6b-random", make)


MODELS: dict[str, Callable[[], Path]] = {"smollm2": smollm2, "qwen3": qwen3}


def openvino_form(folder: Path, weights: str) -> Path:
    """Exported by optimum, its weights in ``int8`` or ``int4``."""

    def make(target: Path) -> None:
        tool = PEERS / "openvino/bin/optimum-cli"
        task = ["--task", "text-generation-with-past", "--weight-format", weights]
        if weights == "int4":
            # The widths of the default model are no multiples of the usual 128.
            task += ["--group-size", "64"]
        _run(tool, "export", "openvino", "--model", folder, *task, target)

    return _once(f"{folder.name}-openvino-{weights}", make)


def gguf_form(folder: Path, weights: str) -> Path:
    """A GGUF file in ``Q8_0`` or ``Q4_0``, quantized by llama.cpp's own tool from 16 bits."""
    peer = PEERS / "llama.cpp"

    def make(target: Path) -> None:
        target.mkdir()
        source = target / "f16.gguf"
        convert = peer / "source/convert_hf_to_gguf.py"
        _run(
            peer / "bin/python",
            convert,
            folder,
            "--outtype",
            "f16",
            "--outfile",
            source,
            path=peer / "source/gguf-py",
        )
        _run(peer / "build/bin/llama-quantize", source, target / "model.gguf", weights)
        source.unlink()

    return _once(f"{folder.name}-gguf-{weights}", make) / "model.gguf"


def _once(name: str, make: Callable[[Path], None]) -> Path:
    target = (_MODELS / name).resolve()
    if not target.exists():
        with _scratch(target) as scratch:
            make(scratch)
            scratch.rename(target)
    return target


@contextlib.contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """A place that becomes the target by a rename: what is there is whole."""
    scratch = target.with_name(f".{target.name}")
    shutil.rmtree(scratch, ignore_errors=True)  # of a run that was cut off; usually there is none
    target.parent.mkdir(parents=True, exist_ok=True)
    yield scratch


def _run(*command: str | Path, path: Path | None = None) -> None:
    environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-2000:]}")
