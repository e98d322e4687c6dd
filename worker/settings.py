"""The worker's settings, from flags and environment."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from common.domain import MODEL_NAME, Quantization
from common.service_settings import WORKER_METRICS_PORT, ServiceSettings, metrics_port_setting
from common.setting_fields import above, at_least, between, each, host_and_port, setting
from common.tls_settings import ClientTlsSettings
from worker.engine.model_settings import DEFAULT_MODEL, KvDtype, ModelSettings, RunnerKind
from worker.faults import Fault
from worker.simulated.settings import SimulatedSettings

SIMULATED_NAME = "simulated"
SIMULATED_BLOCKS = 4096
SIMULATED_CONTEXT_TOKENS = 8192


class EngineKind(StrEnum):
    """What computes."""

    MODEL = "model"
    SIMULATED = "simulated"


class SpeculationKind(StrEnum):
    """Where guesses of the next tokens come from."""

    OFF = "off"
    LOOKUP = "lookup"
    DRAFT = "draft"


def _parse_fault(text: str) -> tuple[Fault, ...]:
    return tuple(Fault.parse(part.strip()) for part in text.split(",") if part.strip())


@dataclass(frozen=True, kw_only=True)
class WorkerSettings(ServiceSettings, ClientTlsSettings):
    """Everything a worker can be told."""

    metrics_port: int = metrics_port_setting(WORKER_METRICS_PORT)
    schedulers: tuple[str, ...] = setting(
        (), help="addresses of schedulers, host:port, to dial in turn", check=each(host_and_port)
    )
    worker_id: str = setting(
        "", help="stable name of this worker; default host name and process id"
    )
    engine: EngineKind = setting(EngineKind.MODEL, help="what computes")
    model: str = setting(DEFAULT_MODEL, help="a directory, a hub id, or the default model")
    served_model_name: str | None = setting(
        None, help="name that requests use; default the model's own"
    )
    runner: RunnerKind = setting(
        RunnerKind.AUTO, help="lean is fast and covers few models, generic covers all"
    )
    quantization: Quantization | None = setting(
        None, help="how linear layers are stored; default as the checkpoint has them, else int8"
    )
    double_quant: bool = setting(False, help="quantize the scales of nf4 and fp4 too")
    dtype: str | None = setting(None, help="float32, bfloat16 or float16; default by machine")
    kv_dtype: KvDtype = setting(
        KvDtype.AUTO, help="how keys and values are stored; default int8 on the lean decoder"
    )
    device: str = setting("auto", help="a torch device; auto takes CUDA where there is one")
    device_map: str | None = setting(
        None,
        help="spread the model: auto, balanced, sequential, a JSON object of devices by module, or a file of it",
    )
    compile: bool = setting(
        False,
        help="have torch compile the generic runner's layers: slower starts, faster steps if it is not quantized",
    )
    model_cache: str | None = setting(None, help="folder of converted checkpoints")
    max_seqs: int = setting(64, help="most sequences at once", check=at_least(1))
    max_batch_tokens: int = setting(512, help="most tokens of one step", check=at_least(1))
    max_share_tokens: int | None = setting(
        None,
        help="most tokens of one prompt in a step beside others, fewer where that takes long; default a quarter of a step",
        check=at_least(1),
    )
    block_size: int = setting(16, help="tokens per KV block", check=at_least(1))
    kv_memory_mb: int | None = setting(
        None,
        help="KV memory in MiB; default a quarter of what is free beside the model (of a GPU nine tenths), and no more than max_seqs requests of full length need",
        check=at_least(1),
    )
    prefix_cache: bool = setting(True, help="reuse computed blocks of equal beginnings")
    cache_ttl_s: float = setting(
        1800.0, help="seconds that a cached block is kept for nobody", check=above(0)
    )
    disk_cache_dir: str | None = setting(
        None,
        help="folder of this worker alone for blocks that left the prefix cache; default none",
    )
    disk_cache_mb: int = setting(1024, help="most MiB of such blocks", check=at_least(1))
    swap_memory_mb: int = setting(
        64,
        help="host memory in MiB for requests that make room when KV blocks run out",
        check=at_least(0),
    )
    park_s: float = setting(
        10.0,
        help="seconds that such a request waits before it is given back",
        check=above(0),
    )
    kv_blocks: int | None = setting(
        None, help="KV blocks, instead of kv_memory_mb", check=at_least(1)
    )
    context_tokens: int | None = setting(
        None, help="longest prompt plus output; default the model's", check=at_least(2)
    )
    threads: int | None = setting(
        None,
        help="threads that compute; default one a core, or OMP_NUM_THREADS",
        check=at_least(1),
    )
    speculation: SpeculationKind = setting(
        SpeculationKind.OFF,
        help="guess tokens where that pays, and none differs: lookup from a text's own past, draft by a second model",
    )
    draft_model: str | None = setting(
        None, help="speculation draft: a smaller model with the same tokenizer, named as --model"
    )
    draft_quantization: Quantization | None = setting(
        None,
        help="how its linear layers are stored; default as its checkpoint has them, else int8",
    )
    draft_kv_memory_mb: int | None = setting(
        None,
        help="its KV memory in MiB; default the share of --kv-memory-mb, of what the model leaves",
        check=at_least(1),
    )
    step_timeout_s: float = setting(
        60.0, help="a step that takes longer ends the process", check=above(0)
    )
    drain_grace_s: float = setting(
        20.0,
        help="seconds for running requests when the worker is stopped, as far as stop_grace_s allows",
        check=at_least(0),
    )
    output_filters: tuple[str, ...] = setting(
        (),
        help="content filters over what is generated, NAME or NAME=ARGUMENT: patterns=FILE, or plug-ins",
    )
    quality_sample: float = setting(
        0.05,
        help="share of the requests whose answers are measured: perplexity and variety, as metrics",
        check=between(0, 1),
    )
    check_quality: str | None = setting(
        None,
        help="print perplexity, variety and size of the model against its unquantized source on this text, and end",
    )
    quality_formats: tuple[str, ...] = setting(
        (), help="rows of --check-quality instead: float16, int8, q4+kv8 (KV in int8) …, or all"
    )
    step_ms: float = setting(0.0, help="simulated: time of a step", check=at_least(0))
    prefill_tokens_per_s: float = setting(
        0.0, help="simulated: speed of prompts, 0 for no time", check=at_least(0)
    )
    eos_every: int = setting(
        0, help="simulated: one in so many tokens is an end, 0 none", check=at_least(0)
    )
    allow_faults: bool = setting(False, help="accept --fault; for tests only")
    fault: tuple[Fault, ...] = setting(
        (), help="token=ID:raise|exit|sleep|nan|break, what a token does", parse=_parse_fault
    )

    def problems(self) -> Iterable[str]:
        """What is wrong with settings taken together."""
        yield from self.tls_problems()
        if not self.schedulers and self.check_quality is None:
            yield "--schedulers: must name at least one address"
        if self.max_seqs > self.max_batch_tokens:
            yield "--max-batch-tokens: must be at least --max-seqs, or sequences would wait in turn"
        if self.check_quality is not None and self.engine is EngineKind.SIMULATED:
            yield "--check-quality: there is no model in the simulated engine"
        if self.quality_formats and self.check_quality is None:
            yield "--quality-formats: they are rows of --check-quality"
        if self.compile and self.device_map is not None:
            yield "--compile: not together with --device-map"
        if self.runner is RunnerKind.LEAN and self.for_model.wants_generic:
            yield "--runner lean: --compile and --device-map are the generic runner's"
        if self.kv_blocks is not None and self.kv_memory_mb is not None:
            yield "--kv-memory-mb: --kv-blocks says it already"
        if self.fault and not self.allow_faults:
            yield "--fault: refused without --allow-faults"
        yield from self._draft_problems()
        if self.served_model_name is not None and not MODEL_NAME.fullmatch(self.served_model_name):
            yield f"--served-model-name: must match {MODEL_NAME.pattern}"

    def _draft_problems(self) -> Iterable[str]:
        if self.speculation is SpeculationKind.DRAFT:
            if self.engine is EngineKind.SIMULATED:
                yield "--speculation: there is no model in the simulated engine"
            elif self.draft_model is None:
                yield "--draft-model: must name the model that --speculation draft guesses by"
            return
        for name in ("draft_model", "draft_quantization", "draft_kv_memory_mb"):
            if getattr(self, name) is not None:
                yield f"--{name.replace('_', '-')}: is for --speculation draft"

    @property
    def leave_grace_s(self) -> float:
        """Time for running requests that leaves some for giving back the rest before a stop is forced."""
        return min(self.drain_grace_s, self.stop_grace_s / 2)

    @property
    def share_tokens(self) -> int:
        """Most tokens of one prompt in a step beside others."""
        return self.max_share_tokens or max(1, self.max_batch_tokens // 4)

    @property
    def for_model(self) -> ModelSettings:
        """What loading the model depends on."""
        return ModelSettings(
            model=self.model,
            served_model_name=self.served_model_name,
            quantization=self.quantization,
            double_quant=self.double_quant,
            dtype=self.dtype,
            kv_dtype=self.kv_dtype,
            block_size=self.block_size,
            kv_blocks=self.kv_blocks,
            kv_memory_mb=self.kv_memory_mb,
            context_tokens=self.context_tokens,
            max_seqs=self.max_seqs,
            max_batch_tokens=self.max_batch_tokens,
            threads=self.threads,
            device=self.device,
            device_map=self.device_map,
            compile=self.compile,
            model_cache=self.model_cache,
            runner=self.runner,
        )

    @property
    def for_draft(self) -> ModelSettings:
        """The same of the draft model."""
        assert self.draft_model is not None
        return replace(
            self.for_model,
            model=self.draft_model,
            served_model_name=None,
            quantization=self.draft_quantization,
            dtype=None,
            kv_blocks=None,
            kv_memory_mb=self.draft_kv_memory_mb,
            device_map=None,
            compile=False,
            runner=RunnerKind.AUTO,
        )

    @property
    def for_simulation(self) -> SimulatedSettings:
        """What the simulated engine depends on."""
        return SimulatedSettings(
            model=self.served_model_name or SIMULATED_NAME,
            step_ms=self.step_ms,
            prefill_tokens_per_s=self.prefill_tokens_per_s,
            kv_blocks=self.kv_blocks or SIMULATED_BLOCKS,
            block_size=self.block_size,
            context_tokens=self.context_tokens or SIMULATED_CONTEXT_TOKENS,
            eos_every=self.eos_every,
            max_seqs=self.max_seqs,
        )
