"""Operators' calls on a port of their own: there and nowhere else, with channelz beside them."""

import asyncio
from pathlib import Path

import grpc.aio
import pytest
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace.cli.__main__ import main
from headrace.v1 import admin_service_pb2 as admin
from headrace.v1 import admin_service_pb2_grpc as admin_rpc
from headrace.v1 import inference_service_pb2 as pb
from headrace.v1 import inference_service_pb2_grpc as rpc
from tests.integration.gateway.conftest import running_gateway
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.integration

ADMIN_KEY = "operators-only-0123456789"
OPERATOR = (("authorization", f"Bearer {ADMIN_KEY}"),)


async def code_of(call: "grpc.aio.UnaryUnaryCall") -> grpc.StatusCode:
    """How a call ends."""
    return await call.code()


async def test_operators_have_a_port(
    redis_server: RedisServer, scheduler: ScriptedScheduler, tmp_path: Path
) -> None:
    """Administration is unknown on the public port, inference on the operators'; channelz wants their key."""
    async with running_gateway(
        redis_server.url, tmp_path, admin_port=0, admin_key=ADMIN_KEY
    ) as gateway:
        unknown = grpc.StatusCode.UNIMPLEMENTED
        ask = admin.ListWorkersRequest()
        assert await code_of(gateway.admin.ListWorkers(ask, metadata=OPERATOR)) is unknown
        assert gateway.operators
        async with grpc.aio.insecure_channel(gateway.operators) as channel:
            operators = admin_rpc.AdminServiceStub(channel)
            await operators.ListWorkers(ask, metadata=OPERATOR)
            refused = grpc.StatusCode.UNAUTHENTICATED
            assert await code_of(operators.ListWorkers(ask)) is refused
            models = rpc.InferenceServiceStub(channel).ListModels(pb.ListModelsRequest())
            assert await code_of(models) is unknown
            health = health_pb2_grpc.HealthStub(channel)
            assert await code_of(health.Check(health_pb2.HealthCheckRequest())) is (
                grpc.StatusCode.OK
            )
            channelz = channelz_pb2_grpc.ChannelzStub(channel)
            look = channelz_pb2.GetServersRequest()
            assert await code_of(channelz.GetServers(look)) is refused
            await gateway.inference.ListModels(pb.ListModelsRequest())
            found = await channelz.GetServers(look, metadata=OPERATOR)
            assert len(found.server) >= 2
            assert sum(one.data.calls_succeeded for one in found.server) >= 2


async def test_operators_commands_work_there(
    redis_server: RedisServer,
    scheduler: ScriptedScheduler,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the admin key, which opens no tenant's calls; at the other port they say what may be wrong."""
    await scheduler.snapshot(num_workers=1)
    async with running_gateway(
        redis_server.url, tmp_path, admin_port=0, admin_key=ADMIN_KEY, require_keys=True
    ) as gateway:

        async def run(target: str, *command: str) -> tuple[int, str, str]:
            environment = {"HEADRACE_TARGET": target, "HEADRACE_API_KEY": ADMIN_KEY}
            code = await asyncio.to_thread(main, command, environment)
            return code, *capsys.readouterr()

        for command in (("status",), ("top", "--frames", "1")):
            code, out, err = await run(gateway.operators, *command)
            assert (code, err) == (0, "")
            assert "tiny" in out
            assert "w1" in out
        code, _, err = await run(gateway.address, "top", "--frames", "1")
        assert code == 2
        assert "--target" in err
