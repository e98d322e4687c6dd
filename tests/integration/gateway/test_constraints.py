"""Constraints at the gateway: passed on as they were sent, or refused with the reason."""

from pathlib import Path

import grpc
import grpc.aio
import pytest

from common.domain import ConstraintKind, OutputConstraint
from common.grammars import CAPABILITY
from common.streams import cards
from common.wire.card import encode_card
from headrace.v1 import generation_pb2 as gen
from tests.integration.gateway.conftest import running_gateway
from tests.integration.gateway.requests import drain, request
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.integration.gateway.statuses import bad_fields, error_info
from tests.integration.gateway.tiny_card import tiny_card

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture
async def shaped(redis_server, tmp_path: Path):
    """A gateway and a scheduler of the model `shaped`, whose workers follow grammars."""
    scheduler = ScriptedScheduler(redis_server.url, "shaped")
    card = tiny_card("shaped", capabilities=(CAPABILITY,))
    await cards.store_card(scheduler.node, card.model, card.revision, encode_card(card))
    async with running_gateway(redis_server.url, tmp_path) as gateway:
        yield gateway, scheduler
    await scheduler.node.close()


GOOD = {
    ConstraintKind.JSON_SCHEMA: gen.OutputConstraint(json_schema='{"type": "object"}'),
    ConstraintKind.JSON_OBJECT: gen.OutputConstraint(json_object=True),
    ConstraintKind.REGEX: gen.OutputConstraint(regex="a+"),
    ConstraintKind.GRAMMAR: gen.OutputConstraint(grammar='root ::= "a"'),
    ConstraintKind.CHOICE: gen.OutputConstraint(choice=gen.ChoiceList(options=["a", "b"])),
}


@pytest.mark.parametrize("kind", GOOD)
async def test_a_constraint_reaches_the_worker(shaped, kind: ConstraintKind) -> None:
    """By its kind, with its text or its options."""
    gateway, scheduler = shaped
    message = request(model="shaped", constraint=GOOD[kind])
    call = gateway.inference.GenerateStream(message)
    led = await scheduler.next()
    text = {
        ConstraintKind.JSON_SCHEMA: '{"type": "object"}',
        ConstraintKind.REGEX: "a+",
        ConstraintKind.GRAMMAR: 'root ::= "a"',
    }.get(kind, "")
    options = ("a", "b") if kind is ConstraintKind.CHOICE else ()
    assert led.request.constraint == OutputConstraint(kind, text, options)
    await led.finish()
    await drain(call)


BAD = {
    "constraint.regex": gen.OutputConstraint(regex="(a"),
    "constraint.json_schema": gen.OutputConstraint(json_schema='{"type": "nonsense"}'),
    "constraint.grammar": gen.OutputConstraint(grammar="root"),
    "constraint.choice": gen.OutputConstraint(choice=gen.ChoiceList()),
}


@pytest.mark.parametrize("field", BAD)
async def test_what_no_worker_could_follow_is_refused(shaped, field: str) -> None:
    """INVALID_ARGUMENT by field, before anything is queued."""
    gateway, _ = shaped
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.inference.Generate(request(model="shaped", constraint=BAD[field]))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert bad_fields(caught.value) == {field}


async def test_workers_without_the_library_follow_none(gateway) -> None:
    """UNIMPLEMENTED, as their card says."""
    message = request(constraint=GOOD[ConstraintKind.REGEX])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.inference.Generate(message)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert error_info(caught.value).metadata["fields"] == "constraint"
