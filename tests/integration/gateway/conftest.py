"""A real gateway in this process, a real Redis, and a scheduler that does what the test says."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest
from opentelemetry.sdk.resources import Resource

from common.logs import get_log
from common.metrics import Metrics
from common.readiness import Readiness
from common.ready_file import ReadyFile
from common.server import Runtime
from common.status_endpoint import Pages
from common.streams import cards
from common.streams.node import Node
from common.tracing import Tracing
from common.wire.card import encode_card
from gateway.app import serve
from gateway.settings import GatewaySettings
from headrace.v1 import admin_service_pb2_grpc, inference_service_pb2_grpc
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.integration.gateway.tiny_card import tiny_card
from tests.support.redis_server import RedisServer
from tests.support.time_scale import scaled


@dataclass
class RunningGateway:
    """Stubs to a gateway that serves."""

    address: str
    http: str
    operators: str
    channel: grpc.aio.Channel
    inference: "inference_service_pb2_grpc.InferenceServiceAsyncStub"
    admin: "admin_service_pb2_grpc.AdminServiceAsyncStub"
    runtime: Runtime
    task: asyncio.Task[None]
    pages: dict[str, Pages]
    """What it would show on the status port."""

    async def stop(self) -> None:
        """As SIGTERM would, to the end."""
        self.runtime.stopping.set()
        async with asyncio.timeout(scaled(60)):
            await self.task


@contextlib.asynccontextmanager
async def running_gateway(
    url: str, folder: Path, tracing: Tracing | None = None, **changes: object
) -> AsyncIterator[RunningGateway]:
    """A gateway of its own port."""
    facts: dict[str, object] = {
        "grpc_port": 0,
        "http_port": 0,
        "redis_url": url,
        "stop_grace_s": 3.0,
        "keepalive_s": 15.0,
    }
    settings = GatewaySettings(**(facts | changes))  # type: ignore[arg-type]
    path = folder / f"gateway-{secrets.token_hex(4)}.json"
    pages: dict[str, Pages] = {}
    runtime = Runtime(
        "gateway",
        "test",
        get_log("gateway"),
        tracing or Tracing(Resource({})),
        Metrics(),
        Readiness(),
        asyncio.Event(),
        "127.0.0.1:0",
        ReadyFile(path),
        pages.__setitem__,
    )
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(serve(settings, runtime))
        async with asyncio.timeout(scaled(60)):
            while not path.exists():  # noqa: ASYNC110 - the file is what any user waits for
                await asyncio.sleep(0.01)
        endpoints = json.loads(path.read_text())["endpoints"]
        address = endpoints["grpc"]
        async with grpc.aio.insecure_channel(address) as channel:
            gateway = RunningGateway(
                address,
                endpoints["http"],
                endpoints.get("admin", ""),
                channel,
                inference_service_pb2_grpc.InferenceServiceStub(channel),  # type: ignore[arg-type]
                admin_service_pb2_grpc.AdminServiceStub(channel),  # type: ignore[arg-type]
                runtime,
                task,
                pages,
            )
            yield gateway
            runtime.stopping.set()


StartGateway = Callable[..., contextlib.AbstractAsyncContextManager[RunningGateway]]


@pytest.fixture
async def scheduler(redis_server: RedisServer) -> AsyncIterator[ScriptedScheduler]:
    """The scripted scheduler of the model `tiny`, whose card is stored."""
    node = Node(redis_server.url)
    card = tiny_card()
    await cards.store_card(node, card.model, card.revision, encode_card(card))
    await node.close()
    scheduler = ScriptedScheduler(redis_server.url)
    yield scheduler
    await scheduler.node.close()


@pytest.fixture
async def gateway(
    redis_server: RedisServer, scheduler: ScriptedScheduler, tmp_path: Path
) -> AsyncIterator[RunningGateway]:
    """A gateway that knows the model `tiny`."""
    async with running_gateway(redis_server.url, tmp_path) as running:
        yield running


@pytest.fixture
async def other_gateway(
    redis_server: RedisServer, gateway: RunningGateway, tmp_path: Path
) -> AsyncIterator[RunningGateway]:
    """A second gateway of the same Redis."""
    async with running_gateway(redis_server.url, tmp_path) as running:
        yield running


@pytest.fixture
async def served(scheduler: ScriptedScheduler) -> AsyncIterator[ScriptedScheduler]:
    """Every request is answered at once."""
    task = asyncio.create_task(scheduler.serve())
    yield scheduler
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
