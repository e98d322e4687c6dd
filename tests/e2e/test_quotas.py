"""Quotas under load: four gateways, one tenant, clients that stay and clients that leave."""

import asyncio

import grpc
import pytest

from headrace.v1 import admin_service_pb2 as admin
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from headrace.v1.admin_service_pb2_grpc import AdminServiceStub
from headrace.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.support.stack import SIMULATED, running_stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

LIMIT = 3000
NUM_CALLS = 120
BLUE = (("x-tenant-id", "blue"),)
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


async def call(stub: InferenceServiceStub, number: int) -> str | None:
    """One request's id, read to its end or left in the middle; None where the limit refused it."""
    asked = pb.GenerateRequest(
        model="sim",
        prompt=gen.Prompt(text="hello mill " * (1 + number % 3)),
        sampling=gen.SamplingParams(temperature=0),
        stop=gen.StopConditions(max_tokens=20 + number % 30, ignore_eos=True),
    )
    stream = stub.GenerateStream(asked, metadata=BLUE)
    try:
        async for event in stream:
            if event.WhichOneof("event") == "accepted":
                request_id = event.accepted.request_id
            if event.WhichOneof("event") == "delta" and number % 4 == 0:
                stream.cancel()
                return request_id
    except grpc.aio.AioRpcError as error:
        if error.code() is not EXHAUSTED:
            raise
        return None
    return request_id


async def ended(stub: InferenceServiceStub, request_id: str) -> gen.Usage:
    """What it used, once it has ended."""
    async with asyncio.timeout(scaled(60)):
        while True:
            found = await stub.GetRequest(
                pb.GetRequestRequest(request_id=request_id), metadata=BLUE
            )
            if found.status >= gen.REQUEST_STATUS_FINISHED:
                return found.usage
            await asyncio.sleep(0.05)


async def test_four_gateways_count_to_the_token() -> None:
    """Never more than the limit is let in, and what was used is the sum of the requests' own usage, to the token."""
    flags = [*SIMULATED, "--step-ms", "3"]
    with running_stack(gateways=4, worker_flags=flags) as stack:
        channels = [grpc.aio.insecure_channel(target) for target in stack.targets]
        stubs = [InferenceServiceStub(channel) for channel in channels]
        operators = AdminServiceStub(channels[0])
        limits = admin.TenantLimits(tokens_per_minute=LIMIT)
        await operators.SetTenant(admin.SetTenantRequest(tenant="blue", limits=limits))
        calls = [asyncio.create_task(call(stubs[n % 4], n)) for n in range(NUM_CALLS)]
        most = 0
        while not all(one.done() for one in calls):
            seen = await operators.GetTenant(admin.GetTenantRequest(tenant="blue"))
            most = max(most, seen.tokens_used)
            await asyncio.sleep(0.01)
        accepted = [one for one in await asyncio.gather(*calls) if one is not None]
        usages = [await ended(stubs[0], request_id) for request_id in accepted]
        used = sum(one.prompt_tokens + one.completion_tokens for one in usages)
        async with asyncio.timeout(scaled(60)):
            while True:
                seen = await operators.GetTenant(admin.GetTenantRequest(tenant="blue"))
                if not seen.requests_open and seen.tokens_used == used:
                    break
                await asyncio.sleep(0.05)
        for channel in channels:
            await channel.close()
    assert 0 < len(accepted) < NUM_CALLS
    assert used <= most <= LIMIT
