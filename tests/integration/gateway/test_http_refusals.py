"""What is malformed, oversized, slow or hostile over HTTP: a clear answer, and nobody else notices."""

import asyncio
import json

import pytest

from gateway.http.protocol import BoundedProtocol
from tests.integration.gateway.conftest import RunningGateway
from tests.integration.gateway.raw_http import connected, post, read_answer, request, send
from tests.integration.gateway.scripted_scheduler import ScriptedScheduler, words
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled(180))]

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
ALL_POSTS = (CHAT, COMPLETIONS, "/api/generate", "/api/batch_generate", "/tokenize")


def completion(**fields: object) -> dict[str, object]:
    """A request to `tiny`."""
    return {"model": "tiny", "prompt": "hello", **fields}


BODIES = [
    b"",
    b"{",
    b"[]",
    b'"text"',
    b"null",
    b"\xff\xfe",
    b'{"model": "tiny", "prompt": "\xff"}',
    b'{"temperature": NaN}',
    b'{"temperature": Infinity}',
    b"[" * 200_000,
    b'{"seed": ' + b"9" * 10_000 + b"}",
    b'{"a": 1} {"b": 2}',
]
CASES: list[tuple[dict[str, object], set[str]]] = [
    ({"temperature": -0.1, "top_p": 1.0001, "n": 0}, {"temperature", "top_p", "n"}),
    ({"temperature": True}, {"temperature"}),
    ({"temperature": "1"}, {"temperature"}),
    ({"temperature": 10**400}, {"temperature"}),
    ({"top_k": 0}, {"top_k"}),
    ({"top_k": 2**31}, {"top_k"}),
    ({"n": 1000}, {"n"}),
    ({"n": 1.0}, {"n"}),
    ({"seed": -1}, {"seed"}),
    ({"seed": 2**64}, {"seed"}),
    ({"max_tokens": 0}, {"max_tokens"}),
    ({"max_tokens": -1}, {"max_tokens"}),
    ({"max_tokens": 2**40}, {"max_tokens"}),
    ({"presence_penalty": 3, "frequency_penalty": -3}, {"presence_penalty", "frequency_penalty"}),
    ({"logit_bias": {"260": 1}}, {"logit_bias[260]"}),
    ({"logit_bias": {"-1": 1, "x": 2, "99999999999": 1}}, {"logit_bias[-1]", "logit_bias[x]", "logit_bias[99999999999]"}),
    ({"logit_bias": {"5": 1e308}}, {"logit_bias[5]"}),
    ({"stop": ["a"] * 17}, {"stop"}),
    ({"stop": ["x" * 1_000_000]}, {"stop[0]"}),
    ({"stop": ""}, {"stop[0]"}),
    ({"stop": ["a", 5]}, {"stop[1]"}),
    ({"stop_token_ids": [260]}, {"stop_token_ids[0]"}),
    ({"stop_token_ids": [-1]}, {"stop_token_ids[0]"}),
    ({"prompt": ""}, {"prompt"}),
    ({"prompt": "  "}, {"prompt"}),
    ({"prompt": []}, {"prompt"}),
    ({"prompt": [260]}, {"prompt[0]"}),
    ({"prompt": ["a"] * 65}, {"prompt"}),
    ({"prompt": ["a", ["b", "c"], 5]}, {"prompt[1]", "prompt[2]"}),
    ({"prompt": {"a": 1}}, {"prompt"}),
    ({"prompt": "\ud800"}, {"prompt"}),
    ({"user": "\ud800"}, {"user"}),
    ({"priority": "urgent"}, {"priority"}),
    ({"deadline": 0}, {"deadline"}),
    ({"stream": 1}, {"stream"}),
    ({"stream_options": {"include_usage": True}}, {"stream_options"}),
    ({"no_such": 1, "\ud800": 2}, {"no_such", "\\ud800"}),
    ({"timeout": 5, "temperature": 9, "logit_bias": {"260": 1}}, {"timeout", "temperature", "logit_bias[260]"}),
    ({"metadata": {"k": 1}}, {"metadata[k]"}),
    ({"model": None}, {"model"}),
    ({"response_format": {"type": "xml"}}, {"response_format.type"}),
]  # fmt: skip


async def test_a_body_that_is_no_json_object(gateway: RunningGateway) -> None:
    """INVALID_ARGUMENT, briefly, and without the inside of anything."""
    for path in ALL_POSTS:
        for body in BODIES:
            answer = await post(gateway.http, path, body)
            assert (answer.status, answer.code) == (400, "invalid_request"), (path, body[:40])
            assert len(answer.body) < 4096
            assert b"Traceback" not in answer.body


async def test_fields_by_their_json_names(gateway: RunningGateway) -> None:
    """All that is wrong, at once, under the names that were sent (B06, B07, B09, B12)."""
    for fields, expected in CASES:
        answer = await post(gateway.http, COMPLETIONS, completion(**fields))
        assert answer.status == 400, fields
        assert answer.fields == expected
        assert len(answer.body) < 8192


async def test_odd_text_is_tokenized(gateway: RunningGateway) -> None:
    """NULs, noncharacters, a megabyte of combining marks and marks of direction are text like any other (B09)."""
    for text in ("a\x00b", "\uffff", "e" + "\u0301" * 500_000, "\u200f\u202e"):
        for sent in (text.encode(), json.dumps(text).encode()[1:-1]):
            body = b'{"model": "tiny", "prompt": "' + sent.replace(b"\x00", b"\\u0000") + b'"}'
            answer = await post(gateway.http, "/tokenize", body)
            assert answer.status == 200, text[:9]
            assert answer.json["count"] >= 1


async def test_numbers_beyond_numbers(gateway: RunningGateway) -> None:
    """JSON can write what becomes infinite when it is read."""
    body = b'{"model": "tiny", "prompt": "hello", "temperature": 1e400, "deadline": -1e400}'
    assert (await post(gateway.http, COMPLETIONS, body)).fields == {"temperature", "deadline"}
    body = body.replace(b'"deadline": -1e400', b'"top_p": 1e400')
    assert (await post(gateway.http, COMPLETIONS, body)).fields == {"temperature", "top_p"}


async def test_messages_are_looked_at_one_by_one(gateway: RunningGateway) -> None:
    """Roles, contents, and parts that are no text."""
    messages = [
        {"role": "robot", "content": "x"},
        {"role": "user", "content": [{"type": "image_url", "text": "x"}]},
        {"role": "tool", "content": "x", "tool_call_id": "1"},
    ]
    answer = await post(gateway.http, CHAT, {"model": "tiny", "messages": messages})
    assert answer.fields == {
        "messages[0].role",
        "messages[1].content[0].type",
        "messages[2].tool_call_id",
    }


async def test_a_list_of_stop_strings_is_no_weapon(gateway: RunningGateway) -> None:
    """Very many are refused for their number; comparing each with each would take hours (B07)."""
    for number, field in ((100_000, "stop"), (500_000, "body")):
        answer = await post(gateway.http, COMPLETIONS, completion(stop=["ab"] * number))
        assert answer.fields == {field}


async def test_too_long_a_body(gateway: RunningGateway) -> None:
    """Refused by its length before it is sent, and by counting where no length is said."""
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    said = await send(
        gateway.http, head.encode() + b"content-length: 99000000\r\nexpect: 100-continue\r\n\r\n"
    )
    assert (said.status, said.code) == (413, "body_too_large")
    async with connected(gateway.http) as (reader, writer):
        writer.write(head.encode() + b"transfer-encoding: chunked\r\n\r\n")
        for _ in range(6):
            writer.write(b"100000\r\n" + b"x" * 0x100000 + b"\r\n")
            await writer.drain()
        counted = await read_answer(reader)
    assert (counted.status, counted.code) == (413, "body_too_large")


async def test_headers(gateway: RunningGateway, served: ScriptedScheduler) -> None:
    """Long ones within gRPC's bound pass; broken tracing is a new trace; beyond it the answer is clear (B10)."""
    for line, status in (
        ("x-long: " + "a" * 7_000, 200),
        ("x-long: " + "a" * 9_000, 200),
        ("x-long: " + "a" * 18_000, 431),
        ("baggage: k=" + "v" * 8_000, 200),
        ("traceparent: 00-zz-zz-01", 200),
        ("x-request-id: " + "r" * 2_000, 200),
        ("x-priority: sometimes", 400),
        ("x-tenant-id: no spaces please", 400),
        ("idempotency-key: " + "k" * 300, 400),
    ):
        answer = await post(gateway.http, COMPLETIONS, completion(max_tokens=1), line)
        assert answer.status == status, line[:20]
        assert len(answer.headers.get("x-request-id", "")) <= 256


async def test_bytes_that_are_no_http(gateway: RunningGateway) -> None:
    """A clear refusal, and the connection is closed."""
    for data in (
        b"\x00\x01\x02\x03\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\nbad header\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    ):
        answer = await send(gateway.http, data)
        assert (answer.status, answer.code) == (400, "malformed_http"), data


async def test_other_kinds_of_request(gateway: RunningGateway) -> None:
    """No form of a web page, nothing compressed, no other method, no other path."""
    body = b"{}"
    plain = request(CHAT, body).replace(b"application/json", b"text/plain")
    assert (await send(gateway.http, plain)).status == 415
    assert (await post(gateway.http, CHAT, body, "content-encoding: gzip")).status == 415
    assert (await send(gateway.http, request(CHAT, body, method="PUT"))).status == 405
    assert (await send(gateway.http, request("/v1/none", body))).status == 404


async def test_the_one_who_sends_slowly_is_cut_off(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head that never ends does not hold its connection, however often a byte of it comes."""
    monkeypatch.setattr(BoundedProtocol, "head_within_s", 0.3)
    async with connected(gateway.http) as (reader, writer):
        closed = asyncio.create_task(reader.read())
        async with asyncio.timeout(scaled(60)):
            while not closed.done():
                writer.write(b"x")
                await asyncio.wait({closed}, timeout=0.05)
        (outcome,) = await asyncio.gather(closed, return_exceptions=True)
        assert outcome == b"" or isinstance(outcome, ConnectionError)


async def test_the_one_who_does_not_read_is_cut_off_and_cancelled(
    gateway: RunningGateway, scheduler: ScriptedScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream stalls alone; after a while its connection is closed and its request cancelled (B23)."""
    monkeypatch.setattr(BoundedProtocol, "read_within_s", 1.0)
    async with connected(gateway.http) as (_, writer):
        writer.write(
            request("/v1/completions", b'{"model":"tiny","prompt":"hello","stream":true}')
        )
        led = await scheduler.next()
        await led.prompt()
        cancelled = asyncio.create_task(led.cancel_flag())
        async with asyncio.timeout(scaled(60)):
            while not cancelled.done():
                await led.tokens(2_000)
                await asyncio.wait({cancelled}, timeout=0.01)
        assert await cancelled
    serving = asyncio.create_task(scheduler.serve())
    answer = await post(gateway.http, COMPLETIONS, completion(max_tokens=2))
    assert answer.json["choices"][0]["text"] == "".join(words(0, 2))
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_the_plain_api(gateway: RunningGateway, served: ScriptedScheduler) -> None:
    """The contract's own words; batches by position; tokens; the probes and the document."""
    one = await post(gateway.http, "/api/generate", completion(max_tokens=2))
    assert one.json["choices"][0]["token_ids"] == [100, 101]
    events = await post(
        gateway.http, "/api/generate", completion(max_tokens=1, stream=True), "connection: close"
    )
    assert b'"accepted"' in events.body
    tokens = await post(gateway.http, "/tokenize", {"model": "tiny", "prompt": "hello world"})
    assert tokens.json == {"count": 3, "max_model_len": 64, "tokens": [1, 3, 4]}
    for path in ("/livez", "/readyz", "/openapi.json", "/v1/models"):
        assert (await send(gateway.http, request(path, b"", method="GET"))).status == 200


async def test_a_bad_request_of_a_batch_harms_no_other(
    gateway: RunningGateway, served: ScriptedScheduler
) -> None:
    """Whatever is wrong with it: each has its own outcome at its place, in the names that were sent."""
    bad: list[object] = [
        completion(model="none"),
        completion(max_tokens=-1),
        completion(n=1000, stop=""),
        completion(user="me"),
        completion(stream=True),
        "no request",
    ]
    many = {"requests": [*bad, completion(max_tokens=1)]}
    outcomes = (await post(gateway.http, "/api/batch_generate", many)).json["outcomes"]
    assert [one["index"] for one in outcomes] == [*range(len(bad) + 1)]
    assert outcomes.pop()["response"]["choices"][0]["text"] == "w0 "
    errors = [one["error"] for one in outcomes]
    assert errors[0]["reason"] == "MODEL_NOT_FOUND"
    named = [{one["field"] for one in error["field_violations"]} for error in errors[1:]]
    assert named == [{"max_tokens"}, {"n", "stop[0]"}, {"user"}, {"stream"}, {"request"}]
    assert all(
        name in error["message"]
        for error, names in zip(errors[1:], named, strict=True)
        for name in names
    )
    alone = await post(gateway.http, "/api/batch_generate", {"requests": bad[-1:]})
    assert (alone.status, len(alone.json["outcomes"])) == (200, 1)
    for count in (0, 257):
        many = {"requests": bad[-1:] * count}
        assert (await post(gateway.http, "/api/batch_generate", many)).fields == {"requests"}


async def test_one_client_id_twice(gateway: RunningGateway, served: ScriptedScheduler) -> None:
    """Ids of clients are for logs: two requests with the same one are two (B25)."""
    answers = await asyncio.gather(
        *(
            post(gateway.http, COMPLETIONS, completion(max_tokens=n), "x-request-id: same")
            for n in (1, 2, 3)
        )
    )
    assert [a.json["usage"]["completion_tokens"] for a in answers] == [1, 2, 3]
    assert len({answer.json["id"] for answer in answers}) == 3
    assert {answer.headers["x-request-id"] for answer in answers} == {"same"}


async def test_one_key_ten_times_at_once(
    gateway: RunningGateway, served: ScriptedScheduler
) -> None:
    """One execution, and the same bytes for all (B26)."""
    body = completion(max_tokens=2)
    answers = await asyncio.gather(
        *(post(gateway.http, COMPLETIONS, body, "idempotency-key: ten") for _ in range(10))
    )
    assert len({answer.body for answer in answers}) == 1
    assert len(served.served) == 1
    later = await post(gateway.http, COMPLETIONS, body, "idempotency-key: ten")
    assert later.body == answers[0].body, "also when it has ended"
    changed = await post(
        gateway.http, COMPLETIONS, completion(max_tokens=3), "idempotency-key: ten"
    )
    assert (changed.status, changed.code) == (409, "idempotency_key_reused")
    assert len(served.served) == 1
    other = await post(
        gateway.http, COMPLETIONS, body, "idempotency-key: ten", "x-tenant-id: other"
    )
    assert other.json["id"] != answers[0].json["id"]
