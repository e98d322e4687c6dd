"""Log probabilities on both sides of the border."""

from collections.abc import Iterable

from common.logprobs import Logprobs, TokenLogprob
from headrace.v1 import generation_pb2 as pb


def logprobs_to_pb(values: Iterable[Logprobs]) -> list[pb.Logprobs]:
    """Positions on the wire, in order."""
    return [
        pb.Logprobs(
            chosen=None if value.chosen is None else _token_to_pb(value.chosen),
            top=[_token_to_pb(token) for token in value.top],
        )
        for value in values
    ]


def logprobs_from_pb(messages: Iterable[pb.Logprobs]) -> tuple[Logprobs, ...]:
    """Positions from the wire, in order."""
    return tuple(
        Logprobs(
            _token_from_pb(message.chosen) if message.HasField("chosen") else None,
            tuple(_token_from_pb(token) for token in message.top),
        )
        for message in messages
    )


def _token_to_pb(value: TokenLogprob) -> pb.TokenLogprob:
    return pb.TokenLogprob(token_id=value.token_id, logprob=value.logprob, token=value.token)


def _token_from_pb(message: pb.TokenLogprob) -> TokenLogprob:
    return TokenLogprob(message.token_id, message.logprob, message.token)
