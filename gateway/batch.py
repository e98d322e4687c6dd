"""Many requests in one call, whose outcomes come as they finish; one bad request harms no other."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from common.errors import FieldViolation, HeadraceError, InternalFailure, InvalidRequest
from common.logs import Log
from common.wire.status import request_error_of
from headrace.v1 import inference_service_pb2 as pb

MAX_REQUESTS = 256

Generate = Callable[[pb.GenerateRequest], Awaitable[pb.GenerateResponse]]
Write = Callable[[pb.BatchGenerateResponse], Awaitable[Any]]


async def run_batch(
    requests: Sequence[pb.GenerateRequest], generate: Generate, write: Write, log: Log
) -> None:
    """Generate for all requests at once and write each outcome when it is there.

    Raises:
        InvalidRequest: the batch itself is refused.
    """
    if not 1 <= len(requests) <= MAX_REQUESTS:
        raise InvalidRequest(
            [FieldViolation("requests", f"must hold 1 to {MAX_REQUESTS} requests")]
        )
    outcomes: asyncio.Queue[pb.BatchGenerateResponse] = asyncio.Queue()

    async def one(index: int, request: pb.GenerateRequest) -> None:
        try:
            outcome = pb.BatchGenerateResponse(index=index, response=await generate(request))
        except HeadraceError as error:
            outcome = pb.BatchGenerateResponse(index=index, error=request_error_of(error))
        except Exception as error:
            log.error("request of a batch failed", index=index, exc_info=error)
            failure = InternalFailure("internal error", reason="INTERNAL")
            outcome = pb.BatchGenerateResponse(index=index, error=request_error_of(failure))
        outcomes.put_nowait(outcome)

    async with asyncio.TaskGroup() as tasks:
        for index, request in enumerate(requests):
            tasks.create_task(one(index, request), name=f"batch {index}")
            # They do not all begin in one turn of the event loop, in which everybody else would wait for all of them.
            await asyncio.sleep(0)
        for _ in requests:
            await write(await outcomes.get())
