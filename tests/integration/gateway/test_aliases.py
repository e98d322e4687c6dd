"""Names that point at models, over the wire: requests, look-ups, promotion, fallback, refusals."""

import asyncio
import contextlib

import grpc
import grpc.aio
import pytest

from common.streams import cards
from common.wire.card import encode_card
from headrace.v1 import admin_service_pb2 as admin
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway import raw_http
from tests.integration.gateway.conftest import RunningGateway
from tests.integration.gateway.requests import drain, max_tokens, request
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.integration.gateway.statuses import bad_fields, error_info
from tests.integration.gateway.tiny_card import tiny_card
from tests.support.time_scale import scaled

pytestmark = pytest.mark.integration


def alias(name: str, *current: tuple[str, str, int], fallback=()) -> admin.SetModelAliasRequest:
    """A name and its targets."""

    def targets(found):
        return [admin.AliasTarget(model=m, revision=r, weight=w) for m, r, w in found]

    made = admin.ModelAlias(alias=name, current=targets(current), fallback=targets(fallback))
    return admin.SetModelAliasRequest(alias=made)


@contextlib.asynccontextmanager
async def served(scheduler: ScriptedScheduler, revision: str):
    """A worker serves this revision, as its leader says each moment; a second one is stored."""
    card = tiny_card(revision="r2")
    await cards.store_card(scheduler.node, card.model, card.revision, encode_card(card))

    async def tell() -> None:
        while True:
            await scheduler.snapshot(revision=revision)
            await asyncio.sleep(0.2)

    async with asyncio.TaskGroup() as tasks:
        telling = tasks.create_task(tell())
        yield
        telling.cancel()


async def settled(gateway: RunningGateway, name: str, revision: str) -> None:
    """Wait until the gateway has heard of it, within a second and a little."""
    async with asyncio.timeout(scaled(60)):
        while True:
            found = await gateway.inference.GetModel(pb.GetModelRequest(model=name))
            if found.model.revision == revision:
                return
            await asyncio.sleep(0.05)


async def known(gateway: RunningGateway, name: str) -> None:
    """Wait until the gateway has heard of a model, within a second and a little."""
    async with asyncio.timeout(scaled(60)):
        while True:
            found = await gateway.inference.ListModels(pb.ListModelsRequest())
            if name in [one.name for one in found.models]:
                return
            await asyncio.sleep(0.05)


async def accepted(
    gateway: RunningGateway, scheduler: ScriptedScheduler, model: str
) -> tuple[str, str]:
    """Model and revision that a request for a name gets; it runs to its end."""
    call = gateway.inference.GenerateStream(request(model=model, stop=max_tokens(1)))
    led = await scheduler.next()
    await led.tokens(1)
    await led.finish()
    first, *_ = await drain(call)
    return first.accepted.model, first.accepted.model_revision


async def test_a_name_is_asked_for_like_a_model(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Generation, look-up and the list know it; the answer says which model it was."""
    await gateway.admin.SetModelAlias(alias("chat", ("tiny", "", 1)))
    assert await accepted(gateway, scheduler, "chat") == ("tiny", "r1")
    found = await gateway.inference.GetModel(pb.GetModelRequest(model="chat"))
    assert (found.model.name, list(found.model.aliases)) == ("tiny", ["chat"])
    listed = await gateway.admin.ListModelAliases(admin.ListModelAliasesRequest())
    assert [one.alias for one in listed.aliases] == ["chat"]
    listing = raw_http.request("/v1/models", b"", method="GET")
    models = (await raw_http.send(gateway.http, listing)).json["data"]
    assert [(one["id"], one.get("root")) for one in models] == [("tiny", None), ("chat", "tiny")]
    await gateway.admin.SetModelAlias(alias("chat"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.inference.GetModel(pb.GetModelRequest(model="chat"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_requests_go_to_what_is_served(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """A canary that no worker serves yet gets nothing; once only it is served, it gets all."""
    both = alias("chat", ("tiny", "r1", 1), ("tiny", "r2", 99))
    async with served(scheduler, "r1"):
        await settled(gateway, "tiny", "r1")
        await gateway.admin.SetModelAlias(both)
        for _ in range(5):
            assert await accepted(gateway, scheduler, "chat") == ("tiny", "r1")
    async with served(scheduler, "r2"):
        await settled(gateway, "tiny", "r2")
        for _ in range(5):
            assert await accepted(gateway, scheduler, "chat") == ("tiny", "r2")


async def test_promotion_and_the_way_back(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """A model's own name can be promoted too; nobody serves the new revision yet, so the fallback answers."""
    promote = gateway.admin.PromoteModel
    async with served(scheduler, "r1"):
        await settled(gateway, "tiny", "r1")
        answer = await promote(admin.PromoteModelRequest(name="tiny", revision="r2"))
        assert [one.revision for one in answer.alias.current] == ["r2"]
        assert [one.revision for one in answer.alias.fallback] == ["r1"]
        assert await accepted(gateway, scheduler, "tiny") == ("tiny", "r1")
        answer = await promote(admin.PromoteModelRequest(name="tiny"))
        assert [one.revision for one in answer.alias.current] == ["r1"]
    for name, reason in (("tiny", "REVISION_NOT_FOUND"), ("nobody", "MODEL_NOT_FOUND")):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await promote(admin.PromoteModelRequest(name=name, revision="r9"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert error_info(caught.value).reason == reason


async def test_a_wrong_alias_is_refused_with_everything_that_is_wrong(
    gateway: RunningGateway,
) -> None:
    """Name, weights and models together; a model's name cannot be pointed at another model."""
    wrong = alias("b@d", ("nobody", "", 0), fallback=[("tiny", "", 2_000_000)])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.admin.SetModelAlias(wrong)
    assert bad_fields(caught.value) == {
        "model",
        "alias.current",
        "alias.current[0].model",
        "alias.fallback[0].weight",
    }


async def test_callers_who_share_a_key_share_the_model(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """A name that changes its meaning between two calls with one key changes nothing for the second."""
    await gateway.admin.SetModelAlias(alias("chat", ("tiny", "", 1)))
    metadata = (("idempotency-key", "k1"),)
    ask = request(model="chat", stop=max_tokens(1))
    call = gateway.inference.GenerateStream(ask, metadata=metadata)
    led = await scheduler.next()
    await led.tokens(1)
    await led.finish()
    first, *_ = await drain(call)
    card = tiny_card(model="small")
    await cards.store_card(scheduler.node, card.model, card.revision, encode_card(card))
    await known(gateway, "small")
    await gateway.admin.SetModelAlias(alias("chat", ("small", "", 1)))
    found = await gateway.inference.GetModel(pb.GetModelRequest(model="chat"))
    assert found.model.name == "small"
    again, *_ = await drain(gateway.inference.GenerateStream(ask, metadata=metadata))
    assert again.accepted == first.accepted
