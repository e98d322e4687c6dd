"""What a large message holds is counted before it is parsed, and what no request holds is refused by name."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import InvalidRequest
from gateway.message_size import (
    MAX_FIELDS,
    MAX_NUMBERS,
    SMALL_BYTES,
    MessageSizes,
    check_in_pieces,
)
from headrace.v1 import inference_service_pb2 as pb

GENERATE, BATCH = pb.GenerateRequest.DESCRIPTOR, pb.BatchGenerateRequest.DESCRIPTOR


def refused(message: pb.GenerateRequest | pb.BatchGenerateRequest) -> list[str]:
    """The fields that are told."""
    with pytest.raises(InvalidRequest) as caught:
        list(check_in_pieces(message.SerializeToString(), message.DESCRIPTOR))
    return [one.field for one in caught.value.violations]


def test_what_is_refused_is_named_with_its_limit() -> None:
    """The field that holds most of it, wherever it lies."""
    many = pb.GenerateRequest()
    for number in range(MAX_FIELDS // 2 + 1):
        many.labels[str(number)] = "x"
    assert refused(many) == ["labels"]
    biases = pb.GenerateRequest()
    for number in range(MAX_FIELDS // 2 + 1):
        biases.sampling.logit_bias[number] = 1.0
    assert refused(biases)[0].startswith("sampling.logit_bias")
    texts = pb.GenerateRequest()
    texts.stop.stop.extend([""] * MAX_FIELDS)
    assert refused(texts) == ["stop.stop"]
    batch = pb.BatchGenerateRequest(requests=[pb.GenerateRequest()] * (MAX_FIELDS + 1))
    assert refused(batch) == ["requests"]
    ids = pb.GenerateRequest()
    ids.prompt.token_ids.ids.extend([300] * (MAX_NUMBERS + 1))
    assert refused(ids) == ["prompt.token_ids.ids"]
    with pytest.raises(InvalidRequest, match=str(MAX_NUMBERS)):
        list(check_in_pieces(ids.SerializeToString(), GENERATE))


def test_what_fits_passes() -> None:
    """Up to the limit, and any text."""
    ids = pb.GenerateRequest()
    ids.prompt.token_ids.ids.extend([300] * MAX_NUMBERS)
    text = pb.GenerateRequest()
    text.prompt.text = "\x0a\x00" * 2_000_000
    conversations = pb.BatchGenerateRequest(requests=[pb.GenerateRequest() for _ in range(256)])
    for request in conversations.requests:
        for number in range(60):
            request.prompt.chat.messages.add(role=2, content=f"message {number}")  # type: ignore[arg-type]
    for message in (ids, text, conversations):
        list(check_in_pieces(message.SerializeToString(), message.DESCRIPTOR))


@given(data=st.binary(max_size=400))
def test_any_bytes_are_counted_to_an_end(data: bytes) -> None:
    """What is no message is the parser's matter."""
    for root in (GENERATE, BATCH):
        list(check_in_pieces(data, root))


def test_groups_and_unknown_fields_count_as_well() -> None:
    """They cost the parser as much."""
    for odd in (b"\xf8\x7f\x01", b"\xfb\x7f", b"\xfc\x7f", b"\xfd\x7f\x01\x02\x03\x04"):
        with pytest.raises(InvalidRequest, match=str(MAX_FIELDS)):
            list(check_in_pieces(odd * (MAX_FIELDS + 1), GENERATE))


async def test_others_get_their_turn_while_one_is_counted() -> None:
    """And messages are counted one after the other, so that many take no longer turns than one."""
    data = pb.BatchGenerateRequest(
        requests=[pb.GenerateRequest()] * MAX_FIELDS
    ).SerializeToString()
    assert len(data) > SMALL_BYTES
    sizes, turns = MessageSizes(), 0
    checks = [asyncio.create_task(sizes.check(data, BATCH)) for _ in range(3)]
    while not all(check.done() for check in checks):
        turns += 1
        await asyncio.sleep(0)
    assert turns > 3 * 32
