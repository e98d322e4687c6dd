"""The nouns of Headrace: plain, frozen values without I/O, shared by every service.

Wire formats (protobuf, Redis fields) are translated to and from these in ``common.wire`` only.
"""

import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Self

Clock = Callable[[], float]
"""Seconds of one process's monotonic clock; passed in wherever policy needs time."""

MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,95}")


class Priority(IntEnum):
    """Importance of a request; higher is served first."""

    BATCH = 1
    NORMAL = 2
    HIGH = 3
    CRITICAL = 4


class FinishReason(StrEnum):
    """Why a choice ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    CONTENT_FILTER = "content_filter"
    ERROR = "error"


class Quantization(StrEnum):
    """How the weights of linear layers are stored.

    NONE keeps the loading dtype; INT8, NF4 and FP4 are bitsandbytes' formats; Q4 are GGUF's blocks of 4 bits, of 8 for
    embeddings and head.
    """

    NONE = "none"
    INT8 = "int8"
    NF4 = "nf4"
    FP4 = "fp4"
    Q4 = "q4"


@dataclass(frozen=True, slots=True)
class Partition:
    """A share of one model's traffic, led by one scheduler at a time."""

    model: str
    index: int

    def __str__(self) -> str:
        return f"{self.model}/{self.index}"


@dataclass(frozen=True, slots=True)
class RequestId:
    """Server-made name of a request, ``<model>:<partition>:<uuid7 hex>``.

    It names model and partition, so that whoever holds it finds the record without a directory.
    """

    partition: Partition
    unique: str

    _PATTERN = re.compile(
        rf"(?P<model>{MODEL_NAME.pattern}):(?P<index>\d{{1,4}}):(?P<unique>[0-9a-f]{{32}})"
    )

    def __str__(self) -> str:
        return f"{self.partition.model}:{self.partition.index}:{self.unique}"

    @classmethod
    def make(cls, model: str, num_partitions: int, *, unix_ms: int | None = None) -> Self:
        """A new id, spread evenly over the model's partitions."""
        unique = uuid7_hex(time.time_ns() // 1_000_000 if unix_ms is None else unix_ms)
        return cls(Partition(model, int(unique[-8:], 16) % num_partitions), unique)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The id that ``text`` spells, or None when it spells none."""
        match = cls._PATTERN.fullmatch(text)
        if match is None:
            return None
        return cls(Partition(match["model"], int(match["index"])), match["unique"])


def uuid7_hex(unix_ms: int) -> str:
    """A UUIDv7 (RFC 9562) as 32 hex digits: 48 bits of time, then version, variant and 74 random bits."""
    random_bits = secrets.randbits(74)
    value = (unix_ms & (1 << 48) - 1) << 80 | 0x7 << 76 | (random_bits >> 62) << 64
    value |= 0b10 << 62 | random_bits & (1 << 62) - 1
    return f"{value:032x}"


@dataclass(frozen=True, slots=True)
class MatchedStop:
    """Which stop condition ended a choice: exactly one field is set."""

    stop_string: str | None = None
    stop_token_id: int | None = None
    eos_token_id: int | None = None

    def __post_init__(self) -> None:
        named = [self.stop_string, self.stop_token_id, self.eos_token_id]
        assert sum(value is not None for value in named) == 1, self


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn, after defaults: every value is definite.

    ``top_k`` 0 means off. ``temperature`` 0 means greedy.
    """

    seed: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    n: int = 1
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    @property
    def has_penalties(self) -> bool:
        """Whether drawing depends on the tokens before."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )


@dataclass(frozen=True, slots=True)
class StopConditions:
    """When a choice ends, after defaults."""

    max_tokens: int
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_in_output: bool = False
    ignore_eos: bool = False


class ConstraintKind(StrEnum):
    """In which language it is said what an output must look like."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    GRAMMAR = "grammar"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True)
class OutputConstraint:
    """What an output must look like: by a text, or as one of some ``options``."""

    kind: ConstraintKind
    text: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What an answer carries beside text. ``top_logprobs`` alternatives stand beside each log probability."""

    token_ids: bool = True
    logprobs: bool = False
    top_logprobs: int = 0
    prompt_logprobs: bool = False
    echo: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens counted so far; cumulative and exact however a request ends."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0
    from_response_cache: bool = False
    """Nothing was computed: the answer is that of an earlier equal request."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """W3C trace context as it travels in metadata, stream entries and messages."""

    traceparent: str = ""
    tracestate: str = ""


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What a request for a model has to stay inside; ``max_choices`` 0 is unknown, ``window_tokens`` 0 is no window."""

    context_tokens: int
    vocab_size: int
    kv_capacity_tokens: int
    default_max_tokens: int
    kv_block_tokens: int = 1
    max_choices: int = 0
    window_tokens: int = 0


@dataclass(frozen=True, slots=True)
class OrderingHeader:
    """All that ordering needs to know of a request: the inbox entry carries it.

    ``has_deadline`` says that the caller set the deadline, which every request has. ``seed`` and ``wants_token_ids``
    are for the end of a request whose body nobody has read. ``prefix_hashes`` name beginnings of the prompt, each
    ``prefix_step_tokens`` longer than the one before (``prefix_keys``).
    """

    tenant: str
    priority: Priority
    prompt_tokens: int
    max_tokens: int
    hold: bool = True
    model_revision: str = ""
    trace: TraceContext = TraceContext()
    seed: int = 0
    wants_token_ids: bool = True
    has_deadline: bool = False
    num_choices: int = 1
    is_reserved: bool = False
    """Whether its tenant's quota is to be settled at its end."""
    prefix_hashes: tuple[int, ...] = ()
    prefix_step_tokens: int = 0


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A validated request as a worker needs it; stored in the request record until the end."""

    request_id: str
    model: str
    model_revision: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    stop: StopConditions
    priority: Priority = Priority.NORMAL
    tenant: str = ""
    client_request_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    output: OutputOptions = OutputOptions()
    cache_salt: str = ""
    bypass_prefix_cache: bool = False
    constraint: OutputConstraint | None = None
    resumable: bool = False
    hold: bool = True
    trace: TraceContext = TraceContext()
    baggage: str = ""
