"""Log probabilities as they travel with tokens: of the token that was taken, and of the likeliest at its place."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token, the natural logarithm of its probability, and the bytes that it stands for."""

    token_id: int
    logprob: float
    token: bytes = b""


@dataclass(frozen=True, slots=True)
class Logprobs:
    """One position; ``chosen`` is None for a prompt's first token, before which there is nothing."""

    chosen: TokenLogprob | None = None
    top: tuple[TokenLogprob, ...] = ()
