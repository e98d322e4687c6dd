"""``headrace batch``: many requests from a file, a bounded number at once.

Each has an idempotency key made of its line, so a run that was interrupted, and started again with the same files,
computes nothing twice that was finished; what is in the output already is not even asked for.
"""

import argparse
import json
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from headrace.cli.batch_files import Line, check, done_before, read_lines
from headrace.cli.exits import OTHER
from headrace.cli.options import only_model
from headrace.cli.progress import Progress
from headrace.cli.terminal import Terminal
from headrace.client import Client, HeadraceError
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb

# Refusals that hold for this moment, not for the request: they are not written, so that the next run asks again.
_NOT_NOW = frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED"})


def batch(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Runs every request that has no answer in the output yet."""
    source, target = Path(arguments.source), Path(arguments.target_file)
    total, done = check(source), done_before(target)
    model = arguments.model or only_model(client).name
    progress = Progress(terminal.error, total, len(done))
    # Set when the run is left by Ctrl-C: what waits in the pool then ends without being sent.
    is_over = threading.Event()

    def run(line: Line) -> dict[str, Any] | None:
        return None if is_over.is_set() else _run(client, line, model, arguments.timeout)

    num_failed, pending = 0, set[Future[dict[str, Any] | None]]()
    with (
        target.open("a", encoding="utf-8") as out,
        ThreadPoolExecutor(arguments.concurrency) as pool,
        progress,
    ):
        try:
            for line in read_lines(source):
                if line.custom_id in done:
                    continue
                if len(pending) >= arguments.concurrency:
                    finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                    num_failed += _write(out, finished, progress)
                pending.add(pool.submit(run, line))
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                num_failed += _write(out, finished, progress)
        except BaseException:
            is_over.set()
            client.close()  # ends the calls that are open, and so the threads that wait for them
            raise
    if num_failed:
        terminal.note(f"headrace: {num_failed} of {total} requests failed; the output says why")
    return OTHER if num_failed else 0


def _write(out: Any, finished: set[Future[dict[str, Any] | None]], progress: Progress) -> int:
    num_failed = 0
    for future in finished:
        answer = future.result()
        if answer is None:
            continue
        is_failed = "error" in answer
        num_failed += is_failed
        progress.count(is_failed=is_failed)
        if not (is_failed and answer["error"]["code"] in _NOT_NOW):
            out.write(json.dumps(answer, ensure_ascii=False) + "\n")
    out.flush()
    return num_failed


def _run(client: Client, line: Line, model: str, timeout_s: float | None) -> dict[str, Any]:
    options = {"model": model, "idempotency_key": line.key, **line.options}
    try:
        answer = client.generate(line.prompt, timeout_s=timeout_s, **options)
    except HeadraceError as error:
        facts = {"code": error.code, "reason": error.reason, "message": error.message}
        return {"custom_id": line.custom_id, "error": facts}
    except (TypeError, ValueError, UnicodeError) as error:
        facts = {"code": "INVALID_ARGUMENT", "reason": "INVALID_REQUEST", "message": str(error)}
        return {"custom_id": line.custom_id, "error": facts}
    return {"custom_id": line.custom_id, **_answer(answer)}


def _answer(answer: pb.GenerateResponse) -> dict[str, Any]:
    return {
        "request_id": answer.request_id,
        "model": answer.model,
        "choices": [
            {
                "index": choice.index,
                "text": choice.text,
                "finish_reason": gen.FinishReason.Name(choice.finish_reason)
                .removeprefix("FINISH_REASON_")
                .lower(),
            }
            for choice in answer.choices
        ],
        "usage": {
            "prompt_tokens": answer.usage.prompt_tokens,
            "completion_tokens": answer.usage.completion_tokens,
        },
        "seed": answer.seed,
    }
