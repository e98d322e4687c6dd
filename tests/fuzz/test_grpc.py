"""Bytes of every kind on gRPC's wire: a status of the caller's making, never one of ours."""

from collections.abc import Iterator

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.fuzz.tally import TRIED
from tests.support.stack import Stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(scaled(1800))]

_OURS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS}
_NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.sampled_from([0.0, -1.0, 1e308, 1e-308])
)
_UINT32 = st.one_of(st.integers(0, 300), st.just(2**32 - 1), st.integers(0, 2**32 - 1))
_TEXTS = st.text(max_size=200)


@st.composite
def requests(draw: st.DrawFn) -> pb.GenerateRequest:
    """Messages that parse, with anything in them."""
    request = pb.GenerateRequest(model=draw(st.sampled_from(["sim", "", "none", "a/b", "\x00"])))
    match draw(st.integers(0, 3)):
        case 0:
            request.prompt.text = draw(_TEXTS)
        case 1:
            request.prompt.token_ids.ids.extend(draw(st.lists(_UINT32, max_size=50)))
        case 2:
            for _ in range(draw(st.integers(0, 4))):
                request.prompt.chat.messages.add(
                    role=draw(st.integers(0, 9)), content=draw(_TEXTS)
                )  # type: ignore[arg-type]
    for field in gen.SamplingParams.DESCRIPTOR.fields:
        if draw(st.booleans()) and field.name != "logit_bias":
            is_number = field.cpp_type == field.CPPTYPE_DOUBLE
            value = draw(_NUMBERS if is_number else st.integers(0, 2**31 - 1))
            setattr(request.sampling, field.name, value)
    for token_id, bias in draw(st.dictionaries(_UINT32, _NUMBERS, max_size=4)).items():
        request.sampling.logit_bias[token_id] = bias
    request.stop.max_tokens = draw(st.integers(0, 40))
    request.stop.stop.extend(draw(st.lists(_TEXTS, max_size=20)))
    request.stop.stop_token_ids.extend(draw(st.lists(_UINT32, max_size=5)))
    request.priority = draw(st.integers(0, 9))  # type: ignore[assignment]
    request.timeout.seconds = draw(st.integers(-5, 5))
    request.idempotency_key = draw(st.text(max_size=5))
    request.labels.update(draw(st.dictionaries(_TEXTS, _TEXTS, max_size=3)))
    if draw(st.booleans()):
        request.constraint.regex = draw(_TEXTS)
    return request


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """Valid messages with some bytes changed, cut or doubled."""
    data = bytearray(draw(requests()).SerializeToString())
    for _ in range(draw(st.integers(1, 5))):
        if not data:
            break
        place = draw(st.integers(0, len(data) - 1))
        match draw(st.integers(0, 2)):
            case 0:
                data[place] = draw(st.integers(0, 255))
            case 1:
                del data[place:]
            case _:
                data[place:place] = data[place : place + 40]
    return bytes(data)


@pytest.fixture(scope="module")
def channel(stack: Stack) -> Iterator[grpc.Channel]:
    """To the gateway."""
    with grpc.insecure_channel(stack.targets[0]) as channel:
        yield channel


def send(channel: grpc.Channel, method: str, data: bytes, metadata=()) -> None:
    """Any status is right but those that say that we are wrong."""
    TRIED["grpc"] += 1
    call = channel.unary_stream(f"/headrace.v1.InferenceService/{method}")
    try:
        for _ in call(data, timeout=scaled(20), metadata=metadata):
            pass
    except grpc.RpcError as error:
        code, details = error.code(), error.details() or ""
    else:
        return
    assert code not in _OURS, (code, details, data)
    assert "Traceback" not in details


@given(data=st.binary(max_size=300))
def test_any_bytes(channel: grpc.Channel, data: bytes) -> None:
    """For every method."""
    for method in pb.DESCRIPTOR.services_by_name["InferenceService"].methods_by_name:
        send(channel, method, data)


@given(data=mangled())
def test_messages_with_a_flaw(channel: grpc.Channel, data: bytes) -> None:
    """As a broken client would send them."""
    for method in ("Generate", "GenerateStream", "CountTokens"):
        send(channel, method, data)


@given(request=requests())
def test_any_message(channel: grpc.Channel, request: pb.GenerateRequest) -> None:
    """Every field with anything in it, alone and in a batch."""
    send(channel, "GenerateStream", request.SerializeToString())
    batch = pb.BatchGenerateRequest(requests=[request, request])
    send(channel, "BatchGenerate", batch.SerializeToString())


_ASCII = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300)


@given(
    metadata=st.dictionaries(
        st.sampled_from(
            ["x-priority", "x-tenant-id", "x-request-id", "idempotency-key", "traceparent", "baggage", "authorization"]
        ),
        _ASCII,
    )
)  # fmt: skip
def test_any_metadata(channel: grpc.Channel, metadata: dict[str, str]) -> None:
    """Headers are input like any other."""
    request = pb.GenerateRequest(model="sim", prompt=gen.Prompt(text="x"))
    request.stop.max_tokens = 1
    send(channel, "GenerateStream", request.SerializeToString(), tuple(metadata.items()))
