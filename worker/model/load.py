"""From settings to a model that is ready to run.

find      checkpoint folder, converted or downloaded if need be
check     refuse by name what cannot run
load      weights, quantized
measure   layers' shapes, memory of the largest step, blocks that fit beside it
prove     the paged model equals the model itself
warm      a prefill and a decode of typical shape

The lean decoder takes what it covers: models that its tests know. Its kernels are compared with plain torch on a tiny
decoder, since processors and compilers differ; where they fail, the generic runner serves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from common.domain import Quantization, SamplingParams
from common.logs import get_log
from common.model_card import ModelCard
from worker.engine.block_store import PagedRunner
from worker.engine.model_settings import KvDtype, ModelSettings, RunnerKind
from worker.engine.runner import Draw, ModelRunner, Row
from worker.kernels.library import KernelsMissing
from worker.kv.cache import LayerShape, PagedCache
from worker.model import attention, card, identity
from worker.model.checkpoint import find_checkpoint
from worker.model.compiled import compile_decoder
from worker.model.decoder import Decoder
from worker.model.errors import ModelRefused
from worker.model.lean.load import kernels_name, layer_shapes, load_lean
from worker.model.lean.spec import NotLean
from worker.model.memory import MIB, PeakMemory, pool_size
from worker.model.placement import choose_device, device_map
from worker.model.runner import TorchRunner
from worker.model.self_check import self_check
from worker.model.stored import settle
from worker.model.support import check_layers
from worker.model.tokenizer import read_tokenizer
from worker.model.weights import load_decoder, read_config
from worker.sampling.kernel_draw import KernelDraw, KernelTeam
from worker.sampling.torch_draw import draw_by_torch

if TYPE_CHECKING:
    from worker.sampling.sampler import DrawTokens

Progress = Callable[[str], None]

_WARM_UP_TOKENS = 64
# The generic runner unpacks their weights in every step, which only a GPU does quickly.
_SLOW_ON_CPU = frozenset({Quantization.NF4, Quantization.FP4})
_log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class _Computing:
    """A runner, and what the card says of it."""

    runner: PagedRunner
    layers: list[LayerShape]
    dtype: torch.dtype
    kernels: str


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is warm, and its card."""

    runner: PagedRunner
    card: ModelCard


def load_model(settings: ModelSettings, progress: Progress) -> LoadedModel:
    """Load, check and warm the model; ``progress`` is told what takes time.

    Raises:
        ModelLoadError: one of its kinds, naming what is wrong.
    """
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    quiet: Any = transformers.utils.logging  # untyped
    quiet.disable_progress_bar()
    attention.register()
    folder = find_checkpoint(settings, progress)
    config = read_config(folder)
    tokenizer = read_tokenizer(folder)
    device = choose_device(settings.device)
    settings = settle(settings, config)
    dtype = choose_dtype(settings, config, device)
    context = min(config.max_position_embeddings, settings.context_tokens or 1 << 30)
    computing = _load_lean(settings, config, folder, device, context, progress)
    if computing is None:
        computing = _load_generic(settings, config, folder, dtype, device, context, progress)
    runner = computing.runner
    progress("warming up")
    _warm_up(runner, settings, context)
    revision = identity.revision(folder, tokenizer, settings)
    return LoadedModel(
        runner,
        card.make_card(
            settings,
            config,
            folder,
            tokenizer,
            layers=computing.layers,
            revision=revision,
            fingerprint=identity.fingerprint(revision, computing.dtype, device, computing.kernels),
            context_tokens=context,
            kv_capacity_tokens=runner.num_blocks * runner.block_size,
        ),
    )


def choose_dtype(settings: ModelSettings, config: Any, device: torch.device) -> torch.dtype:
    """The dtype of everything that is not quantized.

    Raises:
        ModelRefused: the setting names no floating-point dtype.
    """
    if settings.dtype not in {None, "auto"}:
        dtype = getattr(torch, str(settings.dtype), None)
        if dtype not in {torch.float32, torch.float16, torch.bfloat16}:
            raise ModelRefused(f"dtype {settings.dtype} is not float32, float16 or bfloat16")
        return dtype
    if device.type == "cuda":
        return config.dtype or torch.bfloat16
    # Unquantized on a CPU means exact. Quantized, the head is what costs: in bfloat16 it is four times as fast
    # where the CPU multiplies such numbers.
    fast = (
        torch.backends.cpu.get_cpu_capability() == "AVX512"
        and torch.cpu._is_avx512_bf16_supported()
    )
    return torch.bfloat16 if settings.storage is not Quantization.NONE and fast else torch.float32


def _load_lean(
    settings: ModelSettings,
    config: Any,
    folder: Path,
    device: torch.device,
    context_tokens: int,
    progress: Progress,
) -> _Computing | None:
    """The lean decoder, or None where the generic runner is asked for or needed."""
    is_q4 = settings.storage is Quantization.Q4
    if settings.runner is RunnerKind.GENERIC or settings.wants_generic:
        if is_q4:
            raise ModelRefused(f"the generic runner does not know quantization {settings.storage}")
        return None
    try:
        runner = load_lean(settings, config, folder, device, context_tokens, progress)
    except NotLean as error:
        if settings.runner is RunnerKind.LEAN or is_q4:
            raise ModelRefused(f"the lean decoder cannot run {folder.name}: {error}") from error
        progress(f"the generic runner serves, not the lean decoder: {error}")
        return None
    layers = layer_shapes(runner.decoder.spec)
    return _Computing(runner, layers, torch.bfloat16, kernels_name(runner))


def _load_generic(
    settings: ModelSettings,
    config: Any,
    folder: Path,
    dtype: torch.dtype,
    device: torch.device,
    context_tokens: int,
    progress: Progress,
) -> _Computing:
    if device.type == "cpu" and settings.storage in _SLOW_ON_CPU:
        _log.warning(
            "slow on a CPU: minutes to load, and some twenty times the time per token of int8",
            quantization=str(settings.storage),
        )
    places = device_map(settings.device_map, device)
    decoder = load_decoder(settings, config, folder, dtype, places, progress)
    layers = decoder.discover()
    check_layers(config, layers)
    cache = _make_cache(settings, decoder, layers, context_tokens, progress)
    if settings.compile:
        progress("compiling")
        took_s = compile_decoder(decoder, layers)
        progress(f"compiled in {took_s:.0f} s")
    self_check(decoder, layers, context_tokens=context_tokens)
    draw_tokens: DrawTokens = draw_by_torch
    kernels = identity.GENERIC_KERNELS
    if settings.kv_dtype is KvDtype.INT8:
        kernels += ", KV in int8"
    if settings.compile:
        kernels += ", compiled"
    if settings.device_map is not None:
        kernels += f", on {sorted({str(layer.device) for layer in layers})}"
    if decoder.device.type == "cpu":
        try:
            draw_tokens = KernelDraw(KernelTeam(torch.get_num_threads()))
            kernels += ", drawing kernels"
        except KernelsMissing as missing:
            progress(f"tokens are drawn by torch: {missing}")
    return _Computing(TorchRunner(decoder, cache, draw_tokens), layers, dtype, kernels)


def _make_cache(
    settings: ModelSettings,
    decoder: Decoder,
    layers: list[LayerShape],
    context_tokens: int,
    progress: Progress,
) -> PagedCache:
    with PeakMemory(decoder.device) as peak:
        decoder.discover(min(settings.max_batch_tokens, context_tokens))
    stored = torch.int8 if settings.kv_dtype is KvDtype.INT8 else decoder.dtype
    block_bytes = settings.block_size * sum(layer.bytes_per_token(stored) for layer in layers)
    shares: dict[torch.device, float] = {}
    for layer in layers:
        part = layer.bytes_per_token(stored) * settings.block_size / block_bytes
        shares[layer.device] = shares.get(layer.device, 0.0) + part
    size = pool_size(
        settings,
        block_bytes=block_bytes,
        context_tokens=context_tokens,
        activation_bytes=peak.bytes,
        shares=shares,
    )
    progress(
        f"KV pool of {size.num_blocks} blocks, {size.num_blocks * block_bytes // MIB} MiB ({size.reason})"
    )
    return PagedCache(
        layers,
        num_blocks=size.num_blocks,
        block_size=settings.block_size,
        dtype=decoder.dtype,
        stored=stored,
    )


def _warm_up(runner: ModelRunner, settings: ModelSettings, context_tokens: int) -> None:
    """A chunk and a decode, in blocks that nobody holds yet; the measured step was as large as steps get."""
    room = min(context_tokens, runner.num_blocks * runner.block_size)
    length = max(1, min(settings.max_batch_tokens, _WARM_UP_TOKENS, room - 1))
    blocks = range(-(-(length + 1) // runner.block_size))
    draw = Draw(SamplingParams(seed=0), 0, 0)
    runner.run([Row([0] * length, 0, blocks, draw)])
    if length < room:
        runner.run([Row([0], length, blocks, draw)])
