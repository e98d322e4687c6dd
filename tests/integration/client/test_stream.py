"""The sync client's streams: order, continuation, cancellation, deadlines."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo

from headrace.client import (
    Client,
    DeadlineExceeded,
    InternalFailure,
    ReattachPolicy,
    Unavailable,
)
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.client.scripted import (
    REQUEST_ID,
    Script,
    ScriptedServer,
    accepted,
    cut_off,
    delta,
    fail,
    finish,
    flush,
    hang_after,
    stream,
)

pytestmark = pytest.mark.integration
QUEUE_AWAY = [ErrorInfo(reason="QUEUE_UNAVAILABLE", domain="headrace")]
FAST = ReattachPolicy(max_attempts=3, first_pause_s=0.001, longest_pause_s=0.002)


def test_a_stream_gives_its_text_and_facts(client: Client, script: Script) -> None:
    """Text comes in order; id, usage, seed, end and timings are known afterwards."""
    script.on(
        "GenerateStream",
        stream([accepted(), delta(0, ["Pa", "ris"]), flush(2, "."), finish(2)]),
    )
    with client.stream("Capital?", model="tiny") as tokens:
        text = "".join(tokens.texts())
    assert text == "Paris."
    assert tokens.request_id == REQUEST_ID
    assert tokens.accepted is not None
    assert tokens.accepted.seed == 7
    assert tokens.usage.completion_tokens == 2
    assert tokens.next_seq == 2
    assert tokens.timings is not None
    assert tokens.timings.queue.ToMilliseconds() == 12


def test_a_broken_stream_is_continued_where_it_was(client: Client, script: Script) -> None:
    """The attach asks for the first token not delivered, and replays are not delivered again."""
    script.on(
        "GenerateStream",
        stream([accepted(), delta(0, ["a", "b"]), delta(2, ["c"])], grpc.StatusCode.UNAVAILABLE),
    )
    script.on(
        "Attach",
        fail(grpc.StatusCode.UNAVAILABLE),
        stream([accepted(), delta(2, ["c"]), delta(3, ["d"]), finish(4)], attach=True),
    )
    tokens = client.stream("x", model="tiny", reattach=FAST)
    assert "".join(tokens.texts()) == "abcd"
    asked = [call.request for call in script.of("Attach")]
    assert [(r.request_id, r.from_seq) for r in asked] == [(REQUEST_ID, 3), (REQUEST_ID, 3)]


def test_a_stream_that_was_not_accepted_is_repeated_under_a_key_only(
    client: Client, script: Script
) -> None:
    """The connection fails first. With a key the second request is the same one; what a server refuses stays refused."""
    answer = stream([accepted(), delta(0, ["a"]), finish(1)])
    script.on("GenerateStream", fail(grpc.StatusCode.UNAVAILABLE), answer)
    tokens = client.stream("x", model="tiny", reattach=FAST, idempotency_key="k")
    assert "".join(tokens.texts()) == "a"
    assert [call.request.idempotency_key for call in script.of("GenerateStream")] == ["k", "k"]
    refused = [ErrorInfo(reason="NO_WORKER", domain="headrace")]
    for key, details in (("", []), ("k", refused)):
        script.on("GenerateStream", fail(grpc.StatusCode.UNAVAILABLE, "no", details), answer)
        with pytest.raises(Unavailable):
            next(client.stream("x", model="tiny", reattach=FAST, idempotency_key=key))


def test_a_stream_moves_to_another_gateway(script: Script, server: ScriptedServer) -> None:
    """With several targets, the attach goes to the next one when the first is gone."""
    other = Script().on("Attach", stream([delta(1, ["b"]), finish(2)], attach=True))
    second = ScriptedServer(other)
    script.on("GenerateStream", hang_after([accepted(), delta(0, ["a"])]))
    try:
        with Client([server.target, second.target], timeout_s=60) as client:
            texts = client.stream("x", model="tiny", reattach=FAST).texts()
            assert next(texts) == "a"
            server.stop()
            assert "".join(texts) == "b"
    finally:
        second.stop()


@pytest.fixture
def other() -> Iterator[ScriptedServer]:
    """A second gateway."""
    server = ScriptedServer(Script())
    yield server
    server.stop()


def test_a_gateway_that_lost_the_queue_is_left(
    script: Script, server: ScriptedServer, other: ScriptedServer
) -> None:
    """It is left once another one follows the request, without gap or repeat, and new calls go there too."""
    script.on(
        "GenerateStream", hang_after([accepted(), delta(0, ["a"]), flush(1, "b"), cut_off(1)])
    )
    other.script.on(
        "Attach", stream([accepted(), flush(1, "bc"), delta(1, ["d"]), finish(2)], attach=True)
    )
    other.script.on("GenerateStream", stream([accepted(), delta(0, ["e"]), finish(1)]))
    with Client([server.target, other.target], timeout_s=60) as client:
        tokens = client.stream("x", model="tiny")
        told: list[str] = []
        tokens.on_break = lambda error: told.append(error.reason)
        assert "".join(tokens.texts()) == "abcd"
        assert told == ["QUEUE_UNAVAILABLE"]
        assert script.ended["GenerateStream"].wait(60)
        [asked] = other.script.of("Attach")
        assert (asked.request.request_id, asked.request.from_seq) == (REQUEST_ID, 1)
        assert "".join(client.stream("x", model="tiny").texts()) == "e"


def test_a_stream_stays_where_nobody_else_reaches_the_queue(
    script: Script, server: ScriptedServer, other: ScriptedServer
) -> None:
    """A refusal elsewhere harms nothing: the stream goes on where it is, and what is new there is delivered."""
    go_on = threading.Event()

    def behave(_request: Any, _context: grpc.ServicerContext) -> Iterator[Any]:
        yield from [accepted(), flush(0, "b"), cut_off(0)]
        assert go_on.wait(60)
        yield from [flush(0, "b"), delta(0, ["c"]), finish(1)]

    def refuse(request: Any, context: grpc.ServicerContext) -> None:
        go_on.set()
        fail(grpc.StatusCode.UNAVAILABLE, "no", QUEUE_AWAY)(request, context)

    script.on("GenerateStream", behave)
    other.script.on("Attach", refuse)
    with Client([server.target, other.target], timeout_s=60) as client:
        assert "".join(client.stream("x", model="tiny").texts()) == "bbc"
    assert len(other.script.of("Attach")) == 1
    assert not script.of("Attach")


@pytest.mark.parametrize("why", ["one target", "switched off"])
def test_a_stream_that_may_not_go_elsewhere_stays(
    script: Script, server: ScriptedServer, other: ScriptedServer, why: str
) -> None:
    """What the gateway says about the queue is passed on, and nothing else happens."""
    script.on("GenerateStream", stream([accepted(), cut_off(0), delta(0, ["a"]), finish(1)]))
    targets = [server.target] if why == "one target" else [server.target, other.target]
    with Client(targets, timeout_s=60) as client:
        events = list(client.stream("x", model="tiny", reattach=why == "one target"))
    assert sum(event.keepalive.queue_unreachable for event in events) == 1
    assert not other.script.seen


def test_closing_ends_the_look_for_another_gateway(
    script: Script, server: ScriptedServer, other: ScriptedServer
) -> None:
    """A stream that is closed from another thread while it tries the second gateway leaves both."""
    script.on("GenerateStream", hang_after([accepted(), cut_off(0)]))
    is_asked = threading.Event()

    def hang(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        is_asked.set()
        return hang_after([])(request, context)

    other.script.on("Attach", hang)
    with Client([server.target, other.target], timeout_s=60) as client:
        tokens = client.stream("x", model="tiny")
        reader = threading.Thread(target=lambda: list(tokens))
        reader.start()
        assert is_asked.wait(60)
        tokens.close()
        reader.join(60)
        assert not reader.is_alive()
        assert script.ended["GenerateStream"].wait(60)
        assert other.script.ended["Attach"].wait(60)


def test_closing_as_a_pause_ends_leaves_no_call(client: Client, script: Script) -> None:
    """Closed by another thread when the call that continues it is made, and not yet its own."""
    script.on("GenerateStream", stream([accepted()], grpc.StatusCode.UNAVAILABLE))
    script.on("Attach", hang_after([]))
    tokens = client.stream("x", model="tiny", reattach=FAST)
    begin, made = tokens._begin, []

    def begin_and_close() -> Any:
        call = begin()
        made.append(call)
        tokens.close()
        return call

    tokens._begin = begin_and_close  # type: ignore[method-assign]
    assert [event.WhichOneof("event") for event in tokens] == ["accepted"]
    (call,) = made
    assert not call.is_active()


def test_a_first_event_that_comes_too_late_is_none(
    script: Script, server: ScriptedServer, other: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time for a look at another gateway is over just as its first event is there: the stream stays where it is."""

    class Late:
        """A timer that fires when it is called off."""

        daemon = True

        def __init__(self, _: float, fire: Callable[[], None]) -> None:
            self.cancel = fire

        def start(self) -> None:
            pass

    monkeypatch.setattr("headrace.client.stream.threading.Timer", Late)
    script.on("GenerateStream", hang_after([accepted(), cut_off(0), delta(0, ["a"])]))
    other.script.on("Attach", hang_after([pb.AttachResponse(event=accepted())]))
    with Client([server.target, other.target], timeout_s=60) as client:
        tokens = client.stream("x", model="tiny")
        kinds = [next(tokens).WhichOneof("event") for _ in range(3)]
        assert kinds == ["accepted", "keepalive", "delta"]
        assert other.script.ended["Attach"].wait(60)
        assert not script.ended["GenerateStream"].is_set()
        tokens.close()


def test_a_queue_that_is_away_is_waited_for(client: Client, script: Script) -> None:
    """Answers of a gateway that lives use up no attempt, however many they are."""
    script.on("GenerateStream", stream([accepted()], grpc.StatusCode.UNAVAILABLE))
    away = fail(grpc.StatusCode.UNAVAILABLE, "no", QUEUE_AWAY)
    rest = stream([accepted(), delta(0, ["a"]), finish(1)], attach=True)
    script.on("Attach", *[away] * 10, rest)
    assert "".join(client.stream("x", model="tiny", reattach=FAST).texts()) == "a"
    assert len(script.of("Attach")) == 11


def test_a_stream_outlives_a_restart_of_its_gateway(
    script: Script, server: ScriptedServer
) -> None:
    """With one target, the client finds the gateway again when it is back at its address."""
    script.on("GenerateStream", hang_after([accepted(), delta(0, ["a"])]))
    after = Script().on("Attach", stream([delta(1, ["b"]), finish(2)], attach=True))
    with Client(server.target, timeout_s=60) as client:
        texts = client.stream("x", model="tiny").texts()
        assert next(texts) == "a"
        server.stop()
        again = ScriptedServer(after, server.port)
        try:
            assert "".join(texts) == "b"
        finally:
            again.stop()


def test_attempts_are_bounded(client: Client, script: Script) -> None:
    """When nobody answers, the stream fails with the typed error after the policy's attempts."""
    script.on("GenerateStream", stream([accepted()], grpc.StatusCode.UNAVAILABLE))
    script.on("Attach", fail(grpc.StatusCode.UNAVAILABLE))
    with pytest.raises(Unavailable) as caught:
        list(client.stream("x", model="tiny", reattach=FAST))
    assert caught.value.request_id == REQUEST_ID
    assert len(script.of("Attach")) == 3


def test_a_stream_that_cannot_go_on_in_its_time_says_so(client: Client, script: Script) -> None:
    """What broke it is told beside: the time was over before anybody could be asked for the rest."""
    script.on("GenerateStream", stream([accepted()], grpc.StatusCode.UNAVAILABLE))
    script.on("Attach", fail(grpc.StatusCode.UNAVAILABLE))
    with pytest.raises(DeadlineExceeded, match="UNAVAILABLE") as caught:
        list(client.stream("x", model="tiny", timeout_s=0.3))
    assert caught.value.request_id == REQUEST_ID
    assert script.of("Attach")


def test_reattach_can_be_switched_off(client: Client, script: Script) -> None:
    """With ``reattach=False`` a break is an error at once."""
    script.on("GenerateStream", stream([accepted()], grpc.StatusCode.UNAVAILABLE))
    with pytest.raises(Unavailable):
        list(client.stream("x", model="tiny", reattach=False))
    assert not script.of("Attach")


def test_a_stream_that_broke_before_acceptance_is_not_repeated(
    client: Client, script: Script
) -> None:
    """Nobody knows whether the request was taken, so the client does not send it twice."""
    script.on("GenerateStream", fail(grpc.StatusCode.UNAVAILABLE))
    with pytest.raises(Unavailable):
        list(client.stream("x", model="tiny", reattach=FAST))
    assert len(script.of("GenerateStream")) == 1


def test_a_break_after_the_last_event_harms_nothing(client: Client, script: Script) -> None:
    """The answer is complete, so there is nothing to attach for."""
    script.on(
        "GenerateStream",
        stream([accepted(), delta(0, ["a"]), finish(1)], grpc.StatusCode.UNAVAILABLE),
    )
    assert "".join(client.stream("x", model="tiny").texts()) == "a"
    assert not script.of("Attach")


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([accepted(), delta(1, ["b"])], id="gap"),
        pytest.param([accepted(), delta(0, ["a"])], id="no end"),
    ],
)
def test_lost_tokens_are_an_error(client: Client, script: Script, events: list[Any]) -> None:
    """A gap, and an end that no finish announced, are never passed off as an answer."""
    script.on("GenerateStream", stream(events))
    with pytest.raises(InternalFailure) as caught:
        list(client.stream("x", model="tiny"))
    assert caught.value.code == "DATA_LOSS"


def test_closing_cancels_the_call(client: Client, script: Script) -> None:
    """Leaving the block ends the call at the server, and a closed stream is over."""
    script.on("GenerateStream", hang_after([accepted(), delta(0, ["a"])]))
    with client.stream("x", model="tiny") as tokens:
        assert next(tokens.texts()) == "a"
    assert script.ended["GenerateStream"].wait(60)
    assert list(tokens) == []


def test_the_limit_goes_to_the_server_and_the_call_waits_longer(
    client: Client, script: Script
) -> None:
    """The server gets the limit as given and a gRPC deadline a little behind it, so that it can answer."""
    script.on("GenerateStream", stream([accepted(), finish(0)]))
    list(client.stream("x", model="tiny", timeout_s=4))
    [call] = script.of("GenerateStream")
    assert call.request.timeout.ToMilliseconds() == 4000
    assert call.time_left_s is not None
    assert 4 < call.time_left_s < 6


def test_a_silent_server_ends_in_deadline_exceeded(client: Client, script: Script) -> None:
    """The client's own clock ends the wait, with the id that is known."""
    script.on("GenerateStream", hang_after([accepted()]))
    with pytest.raises(DeadlineExceeded) as caught:
        list(client.stream("x", model="tiny", timeout_s=0.05))
    assert caught.value.request_id == REQUEST_ID
