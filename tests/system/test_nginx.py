"""nginx, as we configure it, in front of two gateways: calls go to both, and one may die in mid-stream."""

import asyncio
import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import pytest

from headrace.client import AsyncClient, HeadraceError
from tests.support.outcomes import TokenCount, collect
from tests.support.polling import eventually
from tests.support.prometheus import ROOT
from tests.support.stack import SIMULATED, running_stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

CONFIG = ROOT / "deploy/nginx/headrace.conf"
NUM_TOKENS = 500


@contextlib.contextmanager
def running_nginx(gateways: Sequence[str]) -> Iterator[str]:
    """nginx with the delivered configuration, whose names and port are replaced; its address."""
    with tempfile.TemporaryDirectory(prefix="headrace-nginx-") as name:
        folder = Path(name)
        socket = folder / "grpc.sock"
        text = CONFIG.read_text()
        for number, address in enumerate(gateways, start=1):
            assert f"gateway-{number}:50051" in text
            text = text.replace(f"gateway-{number}:50051", address)
        text = text.replace("listen 50050 http2;", f"listen unix:{socket} http2;")
        text = text.replace("allow 127.0.0.1;", "allow unix:;")
        paths = "".join(
            f"{kind}_temp_path {folder};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        text = text.replace("access_log off;", f"access_log off;\n{paths}")
        config = folder / "nginx.conf"
        config.write_text(f"daemon off;\nuser root;\npid {folder}/pid;\n{text}")
        log = (folder / "log").open("wb")
        process = subprocess.Popen(
            ["nginx", "-p", str(folder), "-e", "stderr", "-c", str(config)], stdout=log, stderr=log
        )
        try:
            eventually(lambda: socket.exists() or process.poll() is not None)
            assert process.poll() is None, (folder / "log").read_text()
            yield f"unix:{socket}"
        finally:
            process.terminate()
            process.wait(60)
            log.close()


async def test_a_gateway_dies_behind_nginx():
    """Streams through nginx use both gateways; when one is killed, its clients attach through nginx to the other.

    No token is lost or repeated. When both are gone, callers get UNAVAILABLE and not a web server's page.
    """
    flags = [*SIMULATED, "--step-ms", "20"]
    with (
        running_stack(gateways=2, worker_flags=flags) as stack,
        running_nginx(stack.targets) as address,
    ):
        async with AsyncClient(address) as client:
            count = TokenCount()
            streams = [
                asyncio.create_task(
                    collect(
                        client,
                        f"number {n}",
                        model="sim",
                        max_tokens=NUM_TOKENS,
                        ignore_eos=True,
                        resumable=True,
                        seed=n,
                        count=count,
                    )
                )
                for n in range(16)
            ]
            await count.more(100)

            def shares() -> list[float]:
                return [stack.metric(one, "headrace_num_streams") for one in stack.gateways]

            await asyncio.to_thread(eventually, lambda: sum(shares()) == 16)
            assert min(shares()) >= 4, "both gateways serve"
            stack.gateways[0].kill()
            outcomes = await asyncio.gather(*streams)
            for outcome in outcomes:
                assert outcome.error is None
                assert outcome.usage.completion_tokens == NUM_TOKENS
            alone = await collect(
                client, "number 3", model="sim", max_tokens=NUM_TOKENS, ignore_eos=True, seed=3
            )
            assert alone.answer == outcomes[3].answer
            stack.gateways[1].kill()
            with pytest.raises(HeadraceError) as caught:
                await client.generate("hello", model="sim", max_tokens=1, timeout_s=5)
            assert caught.value.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")


async def test_health_is_seen_through_nginx():
    """A balancer in front asks through it, by service and by model."""
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with running_stack(gateways=2) as stack, running_nginx(stack.targets) as address:
        async with grpc.aio.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for name in ("headrace.v1.InferenceService", "model/sim"):
                watch = stub.Watch(health_pb2.HealthCheckRequest(service=name))
                async with asyncio.timeout(scaled(20)):
                    while (await watch.read()).status != health_pb2.HealthCheckResponse.SERVING:
                        continue  # a gateway learns of a model within a second
                watch.cancel()


def test_time_outs_outlast_what_gateways_promise():
    """nginx cuts off no stream that is merely silent, nor one that may still live."""
    from gateway.settings import LONGEST_LIFE_S, GatewaySettings

    text = CONFIG.read_text()
    for name in ("grpc_read_timeout", "grpc_send_timeout", "client_body_timeout"):
        (seconds,) = re.findall(rf"{name} (\d+)s", text)
        assert float(seconds) > max(LONGEST_LIFE_S, GatewaySettings().keepalive_s)
