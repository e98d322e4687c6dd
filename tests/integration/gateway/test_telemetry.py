"""One trace from the caller to the queue, metrics with vLLM's names, one log line without content."""

import asyncio
from typing import TYPE_CHECKING

import grpc.aio
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from common.tracing import Tracing, trace_id_of
from headrace.v1 import generation_pb2 as gen
from tests.integration.gateway.conftest import RunningGateway, running_gateway
from tests.integration.gateway.requests import drain, request
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler
from tests.support.time_scale import scaled

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

pytestmark = pytest.mark.integration

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PROMPT = "hello world"
PARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


async def test_one_trace_from_the_caller_to_the_queue(
    scheduler: ScriptedScheduler, redis_server, tmp_path
) -> None:
    """Server span below the caller's, validation and admission below it, the latter stored with the request."""
    exporter = InMemorySpanExporter()
    tracing = Tracing(Resource({}), SimpleSpanProcessor(exporter))
    async with running_gateway(redis_server.url, tmp_path, tracing) as gateway:
        call = gateway.inference.GenerateStream(
            request(stop=gen.StopConditions(max_tokens=2)), metadata=(("traceparent", PARENT),)
        )
        led = await scheduler.next()
        await led.prompt()
        await led.tokens(2)
        await led.finish()
        await drain(call)
        await gateway.stop()
    spans: dict[str, ReadableSpan] = {span.name: span for span in exporter.get_finished_spans()}
    server, admit = spans["text_completion tiny"], spans["headrace.admit"]
    assert server.kind is SpanKind.SERVER
    assert admit.kind is SpanKind.PRODUCER
    assert all(f"{span.context.trace_id:032x}" == TRACE_ID for span in spans.values())
    for name in ("headrace.admit", "headrace.validate"):
        parent = spans[name].parent
        assert parent is not None
        assert parent.span_id == server.context.span_id
    stored = led.request.trace
    assert trace_id_of(stored) == TRACE_ID
    assert stored.traceparent.split("-")[2] == f"{admit.context.span_id:016x}"
    attributes = server.attributes or {}
    assert attributes["gen_ai.usage.input_tokens"] == 3
    assert attributes["gen_ai.usage.output_tokens"] == 2
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes["gen_ai.response.id"] == str(led.id)


@pytest.mark.parametrize("is_wanted", [False, True])
async def test_content_is_traced_on_demand_only(
    scheduler: ScriptedScheduler, redis_server, tmp_path, is_wanted
) -> None:
    """Without the setting no span holds a word of prompt or answer; with it the server's span holds both."""
    exporter = InMemorySpanExporter()
    tracing = Tracing(Resource({}), SimpleSpanProcessor(exporter))
    async with running_gateway(
        redis_server.url, tmp_path, tracing, trace_content=is_wanted
    ) as gateway:
        call = gateway.inference.GenerateStream(request(stop=gen.StopConditions(max_tokens=2)))
        led = await scheduler.next()
        await led.prompt()
        await led.tokens(2)
        await led.finish()
        await drain(call)
        await gateway.stop()
    attributes = [dict(span.attributes or {}) for span in exporter.get_finished_spans()]
    with_content = [one for one in attributes if "gen_ai.input.messages" in one]
    assert len(with_content) == is_wanted
    for one in with_content:
        assert PROMPT in one["gen_ai.input.messages"]
        assert '"finish_reason": "stop"' in one["gen_ai.output.messages"]
    if not is_wanted:
        assert PROMPT not in repr(attributes)


async def test_metrics_of_ends_and_refusals(
    gateway: RunningGateway, scheduler: ScriptedScheduler
) -> None:
    """Success by finish reason, tokens, time to first token; refusals by reason."""
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(scheduler.serve())
        await gateway.inference.Generate(request(stop=gen.StopConditions(max_tokens=3)))
        serving.cancel()
    call = gateway.inference.GenerateStream(request(hold=False))
    with pytest.raises(Exception, match="no worker"):
        await drain(call)
    text = gateway.runtime.metrics.scrape()[0].decode()
    for line in (
        'headrace_request_success_total{finish_reason="length",model_name="tiny"} 1.0',
        'headrace_generation_tokens_total{model_name="tiny"} 3.0',
        'headrace_prompt_tokens_total{model_name="tiny"} 3.0',
        'headrace_time_to_first_token_seconds_count{model_name="tiny"} 1.0',
        'headrace_admission_refusals_total{class="normal",model_name="tiny",reason="NO_WORKER"} 1.0',
        "headrace_num_streams 0.0",
        'headrace_pool_requests_queued{model_name="tiny"} 0.0',
        'headrace_pool_requests_running{model_name="tiny"} 0.0',
        'rpc_method="headrace.v1.InferenceService/Generate",rpc_response_status_code="OK"',
        'rpc_response_status_code="UNAVAILABLE"',
    ):
        assert line in text, text
    whose = (
        'gen_ai_operation_name="text_completion",gen_ai_provider_name="headrace",'
        'gen_ai_request_model="tiny",gen_ai_response_model="r1"'
    )
    for name in ("request_duration", "time_to_first_token", "time_per_output_token"):
        assert f"gen_ai_server_{name}_seconds_count{{{whose}}} 1.0" in text, text
    ok = 'Generate",rpc_response_status_code="OK",rpc_system_name="grpc"} 1.0'
    assert ok in text, text


async def test_counters_stand_before_their_first_event(gateway: RunningGateway) -> None:
    """An increase from nothing shows on a dashboard only where nothing was shown before."""
    wanted = [
        'headrace_request_success_total{finish_reason="error",model_name="tiny"} 0.0',
        'headrace_generation_tokens_total{model_name="tiny"} 0.0',
        'headrace_prompt_tokens_total{model_name="tiny"} 0.0',
    ]
    text = ""
    async with asyncio.timeout(scaled(60)):
        while not all(line in text for line in wanted):
            await asyncio.sleep(0.05)
            text = gateway.runtime.metrics.scrape()[0].decode()


async def test_what_clients_make_up_becomes_no_label(gateway: RunningGateway) -> None:
    """Models, tenants, labels and methods that nobody knows leave the number of series as it is."""

    async def refused(number: int) -> None:
        made_up = request(
            model=f"made-up-{number}" if number % 2 else "tiny",
            labels={f"label-{number}": "x"},
            stop=gen.StopConditions(max_tokens=1 << 30),
        )
        tenant = (("x-tenant-id", f"made-up-tenant-{number}"),)
        with pytest.raises(grpc.aio.AioRpcError):
            await gateway.inference.Generate(made_up, metadata=tenant)
        call = gateway.channel.unary_unary(f"/headrace.v1.InferenceService/MadeUp{number}")
        with pytest.raises(grpc.aio.AioRpcError):
            await call(b"")

    for number in range(2):
        await refused(number)
    before = gateway.runtime.metrics.scrape()[0].decode()
    for number in range(2, 30):
        await refused(number)
    after = gateway.runtime.metrics.scrape()[0].decode()
    assert len(after.splitlines()) == len(before.splitlines())
    assert "made-up" not in after.lower()
    assert "MadeUp" not in after
