"""Keys, and what they open: over gRPC and over HTTP alike."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import openai
import pytest
from openai import AsyncOpenAI

from common import keys
from common.streams.quota import QuotaUse, use_of
from gateway import access
from headrace.v1 import admin_service_pb2 as admin
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway, running_gateway
from tests.integration.gateway.raw_http import post
from tests.integration.gateway.requests import max_tokens, request
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.integration.gateway.statuses import details_of, error_info, retry_s
from tests.support.redis_server import RedisServer
from tests.support.tcp_proxy import running_proxy
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled(180))]

ADMIN_KEY = "operators-only-0123456789"
OPERATOR = (("authorization", f"Bearer {ADMIN_KEY}"),)


def bearing(secret: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {secret}"),)


@pytest.fixture
async def guarded(
    redis_server: RedisServer,
    scheduler: ScriptedScheduler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[RunningGateway]:
    """A gateway that asks for keys, and looks at once when something changes."""
    monkeypatch.setattr(access, "CACHED_S", 0.0)
    async with running_gateway(
        redis_server.url, tmp_path, require_keys=True, admin_key=ADMIN_KEY
    ) as running:
        yield running


async def issue(gateway: RunningGateway, tenant: str = "blue") -> admin.CreateKeyResponse:
    return await gateway.admin.CreateKey(admin.CreateKeyRequest(tenant=tenant), metadata=OPERATOR)


async def limit(gateway: RunningGateway, **limits: object) -> None:
    await gateway.admin.SetTenant(
        admin.SetTenantRequest(tenant="blue", limits=admin.TenantLimits(**limits)),  # type: ignore[arg-type]
        metadata=OPERATOR,
    )


async def refused(call: object) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call  # type: ignore[misc]
    return caught.value


async def test_without_a_key_nothing_opens(guarded: RunningGateway) -> None:
    """Every method of both services and every path but the probes; health and reflection stay open."""
    inference, operators = guarded.inference, guarded.admin
    for call, message in (
        (inference.Generate, request()),
        (inference.CountTokens, pb.CountTokensRequest(model="tiny")),
        (inference.ListModels, pb.ListModelsRequest()),
        (inference.GetModel, pb.GetModelRequest(model="tiny")),
        (inference.Cancel, pb.CancelRequest(request_id="x")),
        (inference.GetRequest, pb.GetRequestRequest(request_id="x")),
        (operators.ListKeys, admin.ListKeysRequest()),
        (operators.GetQueue, admin.GetQueueRequest(model="tiny")),
        (operators.SetTenant, admin.SetTenantRequest(tenant="blue")),
    ):
        for metadata in ((), bearing("hr-0123456789abcdef-" + "x" * 43), bearing("sk-1")):
            error = await refused(call(message, metadata=metadata))  # type: ignore[operator]
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    for stream in (
        inference.GenerateStream(request()),
        inference.Attach(pb.AttachRequest(request_id="x")),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in stream:
                pass
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    for path in ("/v1/chat/completions", "/v1/completions", "/api/generate", "/tokenize"):
        answer = await post(guarded.http, path, {})
        assert (answer.status, answer.code) == (401, "missing_key")
    async with AsyncOpenAI(base_url=f"{guarded.http}/v1", api_key="sk-wrong") as client:
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()


async def test_the_life_of_a_key(guarded: RunningGateway, served: ScriptedScheduler) -> None:
    """Issued, it says whose a request is; it is stored and listed without its secret; revoked, it opens nothing."""
    made = await issue(guarded)
    (stored,) = (await served.node.call(lambda one: one.hgetall(keys.api_keys()))).values()
    assert made.secret.rpartition("-")[2].encode() not in stored
    key = bearing(made.secret)
    answer = await guarded.inference.Generate(request(stop=max_tokens(1)), metadata=key)
    assert served.served[0].request.tenant == "blue"
    other = await issue(guarded, "green")
    error = await refused(
        guarded.inference.GetRequest(
            pb.GetRequestRequest(request_id=answer.request_id), metadata=bearing(other.secret)
        )
    )
    assert error.code() is grpc.StatusCode.NOT_FOUND
    error = await refused(
        guarded.inference.Generate(request(), metadata=(*key, ("x-tenant-id", "green")))
    )
    assert error_info(error).reason == "TENANT_MISMATCH"
    listed = await guarded.admin.ListKeys(admin.ListKeysRequest(tenant="blue"), metadata=OPERATOR)
    assert [one.key_id for one in listed.keys] == [made.key.key_id]
    assert made.secret not in str(listed)
    assert made.secret.rpartition("-")[2] not in str(listed)
    await guarded.admin.RevokeKey(
        admin.RevokeKeyRequest(key_id=made.key.key_id), metadata=OPERATOR
    )
    error = await refused(guarded.inference.Generate(request(), metadata=key))
    assert error_info(error).reason == "INVALID_KEY"


async def test_a_key_of_a_tenant_is_no_admin_key(guarded: RunningGateway) -> None:
    """Nor is the admin key a tenant's."""
    made = await issue(guarded)
    error = await refused(
        guarded.admin.ListKeys(admin.ListKeysRequest(), metadata=bearing(made.secret))
    )
    assert error_info(error).reason == "ADMIN_KEY_REQUIRED"
    error = await refused(guarded.inference.Generate(request(), metadata=OPERATOR))
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_models_and_classes(guarded: RunningGateway, served: ScriptedScheduler) -> None:
    """Other models are not listed, not described and not run; higher classes are refused; unset is what is allowed."""
    key = bearing((await issue(guarded)).secret)
    await limit(guarded, models=["other"], highest_priority=gen.PRIORITY_BATCH)
    listed = await guarded.inference.ListModels(pb.ListModelsRequest(), metadata=key)
    assert not listed.models
    for call in (
        guarded.inference.Generate(request(), metadata=key),
        guarded.inference.GetModel(pb.GetModelRequest(model="tiny"), metadata=key),
    ):
        error = await refused(call)
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
        assert error_info(error).reason == "MODEL_NOT_ALLOWED"
    await limit(guarded, highest_priority=gen.PRIORITY_BATCH)
    error = await refused(
        guarded.inference.Generate(request(priority=gen.PRIORITY_HIGH), metadata=key)
    )
    assert error_info(error).reason == "CLASS_NOT_ALLOWED"
    await guarded.inference.Generate(request(stop=max_tokens(1)), metadata=key)
    assert served.served[-1].request.priority.name == "BATCH"


async def test_limits_of_a_minute(
    guarded: RunningGateway, served: ScriptedScheduler, redis_server: RedisServer
) -> None:
    """RESOURCE_EXHAUSTED with QuotaFailure and RetryInfo, 429 with retry-after; more than ever fits has no retry."""
    secret = (await issue(guarded)).secret
    key = bearing(secret)
    await limit(guarded, requests_per_minute=2, tokens_per_minute=30)
    error = await refused(guarded.inference.Generate(request(stop=max_tokens(40)), metadata=key))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "RetryInfo" not in details_of(error)
    assert error_info(error).metadata["limit"] == "tokens_per_minute"
    for _ in range(2):
        await guarded.inference.Generate(request(stop=max_tokens(1)), metadata=key)
    error = await refused(guarded.inference.Generate(request(stop=max_tokens(1)), metadata=key))
    (violation,) = details_of(error)["QuotaFailure"].violations
    assert violation.subject == "tenant:blue"
    assert 0 < retry_s(error) <= 60
    async with AsyncOpenAI(base_url=f"{guarded.http}/v1", api_key=secret, max_retries=0) as client:
        with pytest.raises(openai.RateLimitError) as caught:
            await client.completions.create(model="tiny", prompt="hello", max_tokens=1)
    assert caught.value.code == "quota_exceeded"
    assert 0 < int(caught.value.response.headers["retry-after"]) <= 61
    found = await guarded.admin.GetTenant(admin.GetTenantRequest(tenant="blue"), metadata=OPERATOR)
    assert found.requests_used == 2
    assert found.limits.requests_per_minute == 2
    await limit(guarded)
    await guarded.inference.Generate(request(stop=max_tokens(1)), metadata=key)


async def test_what_is_refused_for_another_reason_is_not_counted(
    redis_server: RedisServer, scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    """A reservation ends with the refusal that follows it."""
    async with running_gateway(redis_server.url, tmp_path, queue_max_requests=(1,)) as gateway:
        await limit(gateway, concurrent_requests=5)
        blue = (("x-tenant-id", "blue"),)
        first = gateway.inference.GenerateStream(request(), metadata=blue)
        await first.read()
        error = await refused(gateway.inference.Generate(request(), metadata=blue))
        assert error_info(error).reason == "QUEUE_FULL"

        async with asyncio.timeout(scaled(60)):
            # Released in the background: there is no event to wait for.
            while await use_of(scheduler.node, "blue", bound_s=10) != QuotaUse(1, 19, 1):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        first.cancel()


async def test_limits_that_make_no_sense(guarded: RunningGateway) -> None:
    """All of them named at once."""
    error = await refused(
        guarded.admin.SetTenant(
            admin.SetTenantRequest(
                tenant="no spaces", limits=admin.TenantLimits(models=["/"], weight=float("nan"))
            ),
            metadata=OPERATOR,
        )
    )
    found = details_of(error)["BadRequest"].field_violations
    assert {one.field for one in found} == {"tenant", "limits.models", "limits.weight"}


async def test_a_count_of_unknown_outcome_is_taken_back(
    redis_server: RedisServer, scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    """Its answers are lost until the call gives up: what was counted for nothing does not stay open."""
    with running_proxy(redis_server.port) as link:
        url = f"redis://127.0.0.1:{link.port}/0"
        async with running_gateway(url, tmp_path) as gateway:
            await limit(gateway, concurrent_requests=5)
            link.drop_replies(b"{tenant:blue}:quota", 1000)
            blue = (("x-tenant-id", "blue"),)
            error = await refused(gateway.inference.Generate(request(), metadata=blue))
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert (await use_of(scheduler.node, "blue", bound_s=10)).open_requests == 1
            link.pass_through()
            async with asyncio.timeout(scaled(60)):
                # Released in the background: there is no event to wait for.
                while await use_of(scheduler.node, "blue", bound_s=10) != QuotaUse(0, 0, 0):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
