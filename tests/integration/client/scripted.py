"""A gRPC server that does what a test tells it, and remembers what it was asked."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import Message
from google.rpc import status_pb2

from headrace.v1 import admin_service_pb2_grpc as admin_grpc
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from headrace.v1 import inference_service_pb2_grpc as inference_grpc

REQUEST_ID = "tiny.0.018f"
DETAILS_KEY = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class Seen:
    """One call as the server saw it."""

    method: str
    request: Any
    metadata: dict[str, str | bytes]
    time_left_s: float | None


@dataclass
class Script:
    """Behaviour by method; each call takes the next one, and the last one stays."""

    behaviours: dict[str, list[Callable[[Any, grpc.ServicerContext], Any]]] = field(
        default_factory=dict
    )
    seen: list[Seen] = field(default_factory=list)
    ended: dict[str, threading.Event] = field(default_factory=dict)

    def on(self, method: str, *behaviours: Callable[[Any, grpc.ServicerContext], Any]) -> Self:
        """Sets what calls of ``method`` do."""
        self.behaviours[method] = list(behaviours)
        self.ended[method] = threading.Event()
        return self

    def run(self, method: str, request: Any, context: grpc.ServicerContext) -> Any:
        """Notes the call and does the next thing."""
        metadata = dict(context.invocation_metadata())
        self.seen.append(Seen(method, request, metadata, context.time_remaining()))
        context.add_callback(self.ended.setdefault(method, threading.Event()).set)
        queue = self.behaviours.get(method)
        if not queue:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method} is not implemented yet")
        assert queue is not None
        return (queue.pop(0) if len(queue) > 1 else queue[0])(request, context)

    def of(self, method: str) -> list[Seen]:
        """The calls of a method."""
        return [call for call in self.seen if call.method == method]


class ScriptedServer:
    """Serves a script on a free port of the loopback."""

    def __init__(self, script: Script, port: int = 0) -> None:
        """Starts to serve."""
        self.script = script
        self._server = grpc.server(
            futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)]
        )
        _serve(script, inference_grpc.InferenceServiceServicer, self._server)
        _serve(script, admin_grpc.AdminServiceServicer, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self.target = f"127.0.0.1:{self.port}"
        self._server.start()

    def stop(self) -> None:
        """Breaks all connections."""
        assert self._server.stop(grace=None).wait(60)


def _serve(script: Script, base: type, server: grpc.Server) -> None:
    """Registers a servicer of which every method runs the script."""

    def bind(name: str) -> Callable[[Any, Any, Any], Any]:
        return lambda _self, request, context: script.run(name, request, context)

    names = [name for name in vars(base) if name[0].isupper()]
    servicer = type("Scripted", (base,), {name: bind(name) for name in names})()
    is_admin = base is admin_grpc.AdminServiceServicer
    module = admin_grpc if is_admin else inference_grpc
    getattr(module, f"add_{base.__name__}_to_server")(servicer, server)


def answer(message: Message) -> Callable[[Any, grpc.ServicerContext], Message]:
    """Answers with a message."""
    return lambda _request, _context: message


def fail(
    code: grpc.StatusCode, message: str = "no", details: Sequence[Message] = ()
) -> Callable[[Any, grpc.ServicerContext], Any]:
    """Ends the call with a status and google.rpc details."""

    def behave(_request: Any, context: grpc.ServicerContext) -> Any:
        _abort(context, code, message, details)

    return behave


def stream(
    events: Iterable[pb.GenerateStreamResponse],
    end: grpc.StatusCode | None = None,
    details: Sequence[Message] = (),
    *,
    attach: bool = False,
) -> Callable[[Any, grpc.ServicerContext], Iterator[Message]]:
    """Streams events, then ends well or with a status."""
    events = list(events)

    def behave(_request: Any, context: grpc.ServicerContext) -> Iterator[Message]:
        for event in events:
            yield pb.AttachResponse(event=event) if attach else event
        if end is not None:
            _abort(context, end, "broken", details)

    return behave


def hang_after(
    events: Iterable[pb.GenerateStreamResponse],
) -> Callable[[Any, grpc.ServicerContext], Iterator[Message]]:
    """Streams events, then says nothing until the call is over."""
    events = list(events)

    def behave(_request: Any, context: grpc.ServicerContext) -> Iterator[Message]:
        over = threading.Event()
        if not context.add_callback(over.set):
            return
        yield from events
        assert over.wait(60)

    return behave


def accepted() -> pb.GenerateStreamResponse:
    """The first event of a stream."""
    return pb.GenerateStreamResponse(
        accepted=gen.Accepted(request_id=REQUEST_ID, model="tiny", model_revision="r1", seed=7)
    )


def delta(seq: int, tokens: Sequence[str], index: int = 0) -> pb.GenerateStreamResponse:
    """Tokens, each a piece of text."""
    return pb.GenerateStreamResponse(
        seq=seq,
        count=len(tokens),
        delta=gen.Delta(index=index, text="".join(tokens), token_ids=range(len(tokens))),
        usage=gen.Usage(prompt_tokens=3, completion_tokens=seq + len(tokens)),
    )


def cut_off(seq: int) -> pb.GenerateStreamResponse:
    """The gateway has lost the queue."""
    return pb.GenerateStreamResponse(seq=seq, keepalive=gen.KeepAlive(queue_unreachable=True))


def flush(seq: int, text: str, index: int = 0) -> pb.GenerateStreamResponse:
    """Text that was held back and comes without tokens."""
    return pb.GenerateStreamResponse(seq=seq, delta=gen.Delta(index=index, text=text))


def finish(
    seq: int,
    reason: gen.FinishReason.ValueType = gen.FINISH_REASON_STOP,
    *,
    index: int = 0,
    last: bool = True,
) -> pb.GenerateStreamResponse:
    """The end of a choice."""
    timings = gen.Timings(attempts=1)
    timings.queue.FromMilliseconds(12)
    timings.time_to_first_token.FromMilliseconds(345)
    timings.total.FromMilliseconds(678)
    return pb.GenerateStreamResponse(
        seq=seq,
        finish=gen.ChoiceFinished(
            index=index,
            finish_reason=reason,
            matched_stop=gen.MatchedStop(eos_token_id=2),
            timings=timings if last else None,
            last=last,
        ),
        usage=gen.Usage(prompt_tokens=3, completion_tokens=seq),
    )


def _abort(
    context: grpc.ServicerContext,
    code: grpc.StatusCode,
    message: str,
    details: Sequence[Message],
) -> None:
    if details:
        status = status_pb2.Status(code=code.value[0], message=message)
        for detail in details:
            packed = Packed()
            packed.Pack(detail)
            status.details.append(packed)
        context.set_trailing_metadata(((DETAILS_KEY, status.SerializeToString()),))
    context.abort(code, message)
