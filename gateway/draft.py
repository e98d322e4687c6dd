"""A request as it was sent: nothing checked, nothing filled in. Unset fields are None, which is never zero."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation; ``role`` None is unset or unknown."""

    role: str | None
    content: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation."""

    messages: Sequence[ChatMessage]
    add_generation_prompt: bool = True


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids."""

    ids: Sequence[int]


PromptForm = TextPrompt | ChatPrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class PromptDraft:
    """The prompt; ``form`` None is unset."""

    form: PromptForm | None = None
    truncate_to_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class SamplingDraft:
    """How tokens are drawn."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    n: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopDraft:
    """When generation ends."""

    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    include_stop_in_output: bool = False
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class OutputDraft:
    """What the answer carries."""

    logprobs: bool = False
    top_logprobs: int | None = None
    prompt_logprobs: bool = False
    echo: bool = False
    token_ids: bool = True


@dataclass(frozen=True, slots=True)
class ConstraintDraft:
    """What the output must look like: the kind, and its text or its options."""

    kind: str
    text: str = ""
    options: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A whole request. ``priority`` is the class's name; what is no class at all stays as it was sent.

    ``body_digest`` is there where an idempotency key is.
    """

    model: str = ""
    prompt: PromptDraft = PromptDraft()
    sampling: SamplingDraft = SamplingDraft()
    stop: StopDraft = StopDraft()
    output: OutputDraft = OutputDraft()
    constraint: ConstraintDraft | None = None
    priority: str = "NORMAL"
    timeout_s: float | None = None
    idempotency_key: str = ""
    body_digest: str = ""
    client_request_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    cache_salt: str = ""
    bypass_prefix_cache: bool = False
    adapter: str = ""
    resumable: bool = False
    hold: bool = True
    use_response_cache: bool = False
