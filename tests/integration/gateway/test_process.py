"""`headrace-gateway` as a process: how it starts, refuses and stops."""

import signal
import subprocess
import sys

import grpc
import pytest

from headrace.v1 import admin_service_pb2, admin_service_pb2_grpc, inference_service_pb2_grpc
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.requests import request
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.support.processes import ServiceProcess
from tests.support.redis_server import RedisServer
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

FLAGS = ("--grpc-port", "0", "--http-port", "0", "--metrics-port", "0", "--stop-grace-s", "4")


def gateway_process(redis_server: RedisServer, *flags: str) -> ServiceProcess:
    """A gateway of this Redis."""
    return ServiceProcess(
        "gateway",
        flags=[*FLAGS, *flags],
        environment={"HEADRACE_REDIS_URL": redis_server.url},
    )


async def test_sigterm_with_streams_open(
    redis_server: RedisServer, scheduler: ScriptedScheduler
) -> None:
    """Streams are told to go on elsewhere, watchers are cut, and the exit is clean and in time."""
    with gateway_process(redis_server) as process:
        address = process.endpoints["grpc"]
        with grpc.insecure_channel(address) as channel:
            watch = admin_service_pb2_grpc.AdminServiceStub(channel).WatchQueue(
                admin_service_pb2.WatchQueueRequest(model="tiny")
            )
            next(watch)
            stub = inference_service_pb2_grpc.InferenceServiceStub(channel)
            stream = stub.GenerateStream(request())
            accepted = next(stream).accepted
            process.process.send_signal(signal.SIGTERM)
            with pytest.raises(grpc.RpcError) as caught:
                list(stream)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert process.process.wait(scaled(60)) == 0
        with (
            gateway_process(redis_server) as other,
            grpc.insecure_channel(other.endpoints["grpc"]) as channel,
        ):
            stub = inference_service_pb2_grpc.InferenceServiceStub(channel)
            found = stub.GetRequest(pb.GetRequestRequest(request_id=accepted.request_id))
            assert found.waiting_for


async def test_sigterm_while_redis_hangs(
    redis_server: RedisServer, scheduler: ScriptedScheduler
) -> None:
    """With a stream open and nobody to tell that it leaves, the exit is clean and within the grace all the same."""
    with (
        gateway_process(redis_server, "--stop-grace-s", "6") as process,
        grpc.insecure_channel(process.endpoints["grpc"]) as channel,
    ):
        stream = inference_service_pb2_grpc.InferenceServiceStub(channel).GenerateStream(request())
        assert next(stream).accepted.request_id
        redis_server.pause()
        try:
            process.process.send_signal(signal.SIGTERM)
            with pytest.raises(grpc.RpcError) as caught:
                list(stream)
            status = process.process.wait(scaled(60))
        finally:
            redis_server.resume()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert status == 0, process.log


def test_a_taken_port_is_said(redis_server: RedisServer) -> None:
    """No traceback: the flag and the address."""
    with gateway_process(redis_server) as first:
        port = first.endpoints["grpc"].rpartition(":")[2]
        second = gateway_process(redis_server, "--grpc-port", port)
        with pytest.raises(RuntimeError, match="cannot bind") as caught:
            second.__enter__()
        assert "Traceback" not in str(caught.value)


def test_an_open_door_needs_a_word() -> None:
    """Addresses that others reach are refused unless that is asked for."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "--grpc-host", "0.0.0.0"],
        capture_output=True,
        text=True,
        timeout=scaled(120),
        check=False,
    )
    assert done.returncode == 2
    assert "--allow-unauthenticated" in done.stderr


def test_it_starts_without_redis() -> None:
    """It serves, says that it is not ready, and answers UNAVAILABLE."""
    environment = {"HEADRACE_REDIS_URL": "redis://127.0.0.1:1/0"}
    with (
        ServiceProcess("gateway", flags=FLAGS, environment=environment) as process,
        grpc.insecure_channel(process.endpoints["grpc"]) as channel,
    ):
        stub = inference_service_pb2_grpc.InferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Generate(request())
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
