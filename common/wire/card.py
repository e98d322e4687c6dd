"""Model cards as stored in Redis and sent by workers."""

from google.protobuf.message import DecodeError

from common.model_card import ModelCard
from common.wire.records import UndecodableError
from headrace.internal.v1 import records_pb2 as pb
from headrace.v1 import generation_pb2


def encode_card(card: ModelCard) -> bytes:
    """The serialized card; deterministic, because its hash names it."""
    return pb.ModelCard(
        model=card.model,
        revision=card.revision,
        architecture=card.architecture,
        quantization=card.quantization,
        context_tokens=card.context_tokens,
        vocab_size=card.vocab_size,
        tokenizer_json=card.tokenizer_json,
        chat_template=card.chat_template,
        special_tokens=dict(card.special_tokens),
        eos_token_ids=card.eos_token_ids,
        default_max_tokens=card.default_max_tokens,
        sliding_window=card.sliding_window,
        kv_capacity_tokens=card.kv_capacity_tokens,
        kv_block_tokens=card.kv_block_tokens,
        max_seqs=card.max_seqs,
        capabilities=card.capabilities,
        fingerprint=card.fingerprint,
        default_sampling=generation_pb2.SamplingParams(
            temperature=card.default_temperature,
            top_p=card.default_top_p,
            top_k=card.default_top_k,
        ),
    ).SerializeToString(deterministic=True)


def decode_card(data: bytes) -> ModelCard:
    """The card that ``data`` holds.

    Raises:
        UndecodableError: the bytes are no card.
    """
    try:
        message = pb.ModelCard.FromString(data)
    except DecodeError as error:
        raise UndecodableError(f"model card: {error}") from error
    sampling = message.default_sampling
    return ModelCard(
        model=message.model,
        revision=message.revision,
        architecture=message.architecture,
        quantization=message.quantization,
        context_tokens=message.context_tokens,
        vocab_size=message.vocab_size,
        tokenizer_json=message.tokenizer_json,
        chat_template=message.chat_template,
        special_tokens=dict(message.special_tokens),
        eos_token_ids=tuple(message.eos_token_ids),
        default_max_tokens=message.default_max_tokens,
        kv_capacity_tokens=message.kv_capacity_tokens,
        fingerprint=message.fingerprint,
        sliding_window=message.sliding_window,
        kv_block_tokens=message.kv_block_tokens,
        max_seqs=message.max_seqs,
        capabilities=tuple(message.capabilities),
        default_temperature=sampling.temperature if sampling.HasField("temperature") else None,
        default_top_p=sampling.top_p if sampling.HasField("top_p") else None,
        default_top_k=sampling.top_k if sampling.HasField("top_k") else None,
    )
