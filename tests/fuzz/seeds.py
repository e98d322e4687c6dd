"""What coverage-guided fuzzing begins with: inputs that get far, and the words that they are made of."""

import json
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.json_format import ParseDict

from gateway.http.request_forms import CHAT, COMPLETION, NATIVE, TOKENIZE
from headrace.internal.v1 import records_pb2, worker_service_pb2
from headrace.v1 import inference_service_pb2 as pb

_SAMPLING = {"temperature": 0.5, "top_p": 0.9, "seed": "7", "n": 2, "logit_bias": {"3": 1.5}}
_STOP = {"max_tokens": 4, "min_tokens": 1, "stop": ["ab"], "stop_token_ids": [2]}
_MESSAGES = [{"role": "user", "content": "hello"}]
_REQUESTS = (
    {"model": "tiny", "prompt": {"text": "hello"}, "sampling": _SAMPLING, "stop": _STOP},
    {"model": "tiny", "prompt": {"token_ids": {"ids": [3, 4]}}, "constraint": {"regex": "a+"}},
    {
        "model": "tiny",
        "prompt": {"chat": {"messages": [{"role": "ROLE_USER", "content": "hello"}]}},
        "constraint": {"json_schema": '{"type": "object"}'},
        "output": {"logprobs": True, "top_logprobs": 2, "echo": True, "prompt_logprobs": True},
        "labels": {"a": "b"},
        "timeout": "5s",
    },
)
_BODIES = (
    (0, {"model": "tiny", "messages": _MESSAGES, "n": 2, "logprobs": True, "stop": ["a"]}),
    (1, {"model": "tiny", "prompt": ["a", [3]], "echo": True, "logprobs": 1, "stream": True}),
    (2, {"model": "tiny", "prompt": "a", "json_schema": {"type": "object"}, "deadline": 5}),
    (3, {"model": "tiny", "prompt": [3, 4], "truncate_to_tokens": 1}),
    (4, {"model": "tiny", "messages": _MESSAGES, "labels": {"a": "b"}, "logit_bias": {"3": 1}}),
)
_TOKENS = {"token_ids": [3, 4], "text": "ab", "text_chars": [1, 1]}
_LENGTH = "FINISH_REASON_LENGTH"
_STORED = (
    (
        records_pb2.LogBatch(),
        {
            "records": [
                {"request_id": "r", "epoch": 1, "tokens": {"seq": 1, **_TOKENS}},
                {"request_id": "r", "epoch": 1, "prompt": {"worker_id": "w"}},
                {"request_id": "r", "epoch": 1, "finish": {"reason": _LENGTH, "last": True}},
                {"request_id": "r", "epoch": 2, "fence": {}},
            ]
        },
    ),
    (worker_service_pb2.ConnectRequest(), {"hello": {"worker_id": "w", "kv_blocks": 4}}),
    (
        worker_service_pb2.ConnectRequest(),
        {
            "output": {
                "sequences": [
                    {"request_id": "r", "epoch": 1, **_TOKENS, "finish": {"reason": _LENGTH}},
                ],
                "step_us": 5,
            }
        },
    ),
)


def inputs(target: str) -> Iterator[bytes]:
    """Inputs for a target of ``targets``."""
    match target:
        case "grpc":
            for values in _REQUESTS:
                yield ParseDict(values, pb.GenerateRequest()).SerializeToString()
        case "http":
            for number, values in _BODIES:
                yield bytes([number]) + json.dumps(values).encode()
        case _:
            for message, values in _STORED:
                yield ParseDict(values, message).SerializeToString()


def write(target: str, folder: Path) -> list[str]:
    """Flags for libFuzzer: inputs and words, as files in the folder."""
    begin = folder / "begin"
    begin.mkdir()
    for number, data in enumerate(inputs(target)):
        (begin / str(number)).write_bytes(data)
    names = {name for form in (CHAT, COMPLETION, NATIVE, TOKENIZE) for name in form.fields}
    words = folder / "words"
    words.write_text("".join(f'"\\"{name}\\":"\n' for name in sorted(names)))
    return [str(begin), *([f"-dict={words}"] if target == "http" else [])]
