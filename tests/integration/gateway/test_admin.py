"""Operators see what the leaders' snapshots say, and order what leaders find in Redis."""

import asyncio
import logging

import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from common.domain import Priority
from common.streams.wake import DrainOrder, read_drain
from common.wire.snapshot import ClassStatus
from headrace.v1 import admin_service_pb2 as pb
from tests.integration.gateway.conftest import RunningGateway
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.integration.gateway.statuses import error_info, violations
from tests.support.time_scale import scaled

pytestmark = pytest.mark.integration


async def test_workers_and_queues(gateway: RunningGateway, scheduler: ScriptedScheduler) -> None:
    """As in the snapshot; a partition without a leader shows an empty queue without one."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.admin.GetQueue(pb.GetQueueRequest(model="no such name!"))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    for asked in (pb.GetQueueRequest(model="tiny"), pb.GetQueueRequest()):
        empty = await gateway.admin.GetQueue(asked)
        assert [(queue.model, queue.leader) for queue in empty.queues] == [("tiny", "")]
    classes = [ClassStatus(Priority.HIGH, 2, 30, 1500)]
    await scheduler.snapshot(num_workers=1, drain_rate=2.0, classes=classes)
    (queue,) = (await gateway.admin.GetQueue(pb.GetQueueRequest(model="tiny"))).queues
    assert queue.leader == "leader:1"
    assert queue.classes[0].num_waiting == 2
    assert queue.classes[0].oldest_age.ToMilliseconds() == 1500
    (worker,) = (await gateway.admin.ListWorkers(pb.ListWorkersRequest())).workers
    assert worker.worker_id == "w1"
    assert worker.kv_blocks == 100


async def test_watching_a_queue(gateway: RunningGateway, scheduler: ScriptedScheduler) -> None:
    """The first state, and then changes only."""
    call = gateway.admin.WatchQueue(pb.WatchQueueRequest(model="tiny"))
    changes = aiter(call)
    async with asyncio.timeout(scaled(60)):
        assert (await anext(changes)).queues[0].leader == ""
        await scheduler.snapshot(drain_rate=3.0)
        assert (await anext(changes)).queues[0].drain_rate == 3.0
    call.cancel()


async def test_draining_a_worker(gateway: RunningGateway, scheduler: ScriptedScheduler) -> None:
    """The order is in Redis, where the leader looks; an unknown worker is NOT_FOUND."""
    await scheduler.snapshot(num_workers=1)
    answer = await gateway.admin.DrainWorker(
        pb.DrainWorkerRequest(worker_id="w1", grace=Duration(seconds=7))
    )
    assert answer.worker.worker_id == "w1"
    order = await read_drain(scheduler.node, scheduler.partition, "w1")
    assert order == DrainOrder("w1", answer.worker.incarnation, 7000)
    assert order.incarnation
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.admin.DrainWorker(pb.DrainWorkerRequest(worker_id="w2"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert error_info(caught.value).reason == "WORKER_NOT_FOUND"


async def test_the_level_of_logs(gateway: RunningGateway) -> None:
    """In force with the answer, which tells the former one; what is no level changes nothing."""
    root = logging.getLogger()
    former = root.level
    try:
        for level in ("debug", "error"):
            await gateway.admin.SetLogLevel(pb.SetLogLevelRequest(level=level))
            assert logging.getLevelName(root.level) == level.upper()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.admin.SetLogLevel(pb.SetLogLevelRequest(level="loud"))
        assert violations(caught.value).keys() == {"level"}
        again = await gateway.admin.SetLogLevel(pb.SetLogLevelRequest(level="info"))
        assert again.former_level == "error"
    finally:
        root.setLevel(former)


async def test_reflection_names_the_services(gateway: RunningGateway) -> None:
    """Tools that know nothing of the contract find it."""
    stub = reflection_pb2_grpc.ServerReflectionStub(gateway.channel)
    call = stub.ServerReflectionInfo(
        iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    )
    answer = await anext(aiter(call))
    names = {service.name for service in answer.list_services_response.service}
    assert {"headrace.v1.InferenceService", "headrace.v1.AdminService"} <= names
