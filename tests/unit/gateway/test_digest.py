"""Equal bodies have equal digests, however they were put on the wire; every field of a body counts."""

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest
from google.protobuf.message import Message

from common.wire.digest import body_digest
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb

NOT_COMPARED = {"idempotency_key", "client_request_id", "labels", "timeout"}
FIELDS = list(pb.GenerateRequest.DESCRIPTOR.fields)


def body() -> pb.GenerateRequest:
    """A request with something in most of its parts."""
    return pb.GenerateRequest(
        model="m",
        prompt=gen.Prompt(token_ids=gen.TokenIds(ids=[1, 300, 70_000])),
        sampling=gen.SamplingParams(seed=7, logit_bias={3: 1.0, 1: 2.0, 200: -1.0}),
        stop=gen.StopConditions(max_tokens=5, stop=["a", "b"]),
        priority=gen.PRIORITY_HIGH,
        cache_salt="s",
    )


def leaves(kind: type[Message]) -> Iterator[tuple[str, ...]]:
    """Paths of the fields of a message, and of those of its parts."""
    for field in kind.DESCRIPTOR.fields:
        part = field.message_type
        is_ours = part is not None and part.file.package == "headrace.v1"
        if part is None or field.is_repeated or not is_ours:
            yield (field.name,)
        else:
            below = type(getattr(kind(), field.name))
            yield from ((field.name, *rest) for rest in leaves(below))


def put(message: Message, field: Any) -> None:
    """Give a field a value that is not its default, or not the one it has."""
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        values = field.message_type.fields_by_name["value"]
        key = "k" if field.message_type.fields_by_name["key"].type == field.TYPE_STRING else 9
        value[key] = "v" if values.type == field.TYPE_STRING else 9
    elif field.is_repeated and field.message_type is not None:
        value.add()
    elif field.is_repeated:
        value.append("x" if field.type == field.TYPE_STRING else 9)
    elif field.message_type is not None:
        value.seconds = 9
    elif field.type == field.TYPE_STRING:
        setattr(message, field.name, "other")
    elif field.type == field.TYPE_BOOL:
        setattr(message, field.name, True)
    else:
        setattr(message, field.name, 1)


@pytest.mark.parametrize("path", list(leaves(pb.GenerateRequest)), ids=".".join)
def test_each_field_counts(path: tuple[str, ...]) -> None:
    """Set, alone, at any depth; all but those that are no part of the body."""
    request = pb.GenerateRequest()
    message: Message = request
    for name in path[:-1]:
        message = getattr(message, name)
        message.SetInParent()
    before = body_digest(request)
    put(message, message.DESCRIPTOR.fields_by_name[path[-1]])
    assert (body_digest(request) != before) is (path[0] not in NOT_COMPARED)


def test_the_order_on_the_wire_does_not_count() -> None:
    """Fields in any order, lists of numbers packed or not, map entries in any order: one digest."""
    parts = [pb.GenerateRequest(), pb.GenerateRequest(), pb.GenerateRequest()]
    parts[0].model, parts[0].cache_salt = "m", "s"
    parts[1].sampling.CopyFrom(body().sampling)
    parts[1].stop.CopyFrom(body().stop)
    parts[2].prompt.CopyFrom(body().prompt)
    parts[2].priority = gen.PRIORITY_HIGH
    expected = body_digest(body())
    for order in permutations(part.SerializeToString() for part in parts):
        assert body_digest(pb.GenerateRequest.FromString(b"".join(order))) == expected
    other = body()
    other.sampling.ClearField("logit_bias")
    for key, bias in ((200, -1.0), (3, 1.0), (1, 2.0)):
        other.sampling.logit_bias[key] = bias
    assert body_digest(other) == expected


def test_unset_is_not_the_default() -> None:
    """What was meant is not guessed."""
    explicit = body()
    explicit.resumable = False
    assert body_digest(explicit) != body_digest(body())


def test_the_request_is_left_as_it_was() -> None:
    """Taking a digest changes nothing."""
    request = body()
    request.idempotency_key = "k"
    copy = pb.GenerateRequest.FromString(request.SerializeToString())
    body_digest(request)
    assert request == copy
