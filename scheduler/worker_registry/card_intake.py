"""Asks a worker for its model card when the store does not have it, and checks what comes."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

from common.streams import cards
from common.streams.node import Node
from common.wire.card import decode_card
from common.wire.records import UndecodableError
from common.wire.session import CardChunk, Hello

MAX_CHUNK_BYTES = 1024 * 1024
# Tokenizers with 250,000 words take about 20 MB; more is a mistake, and is refused before memory is.
MAX_CARD_BYTES = 64 * 1024 * 1024
# For all chunks of a big card over a slow link.
TIMEOUT_S = 60.0
REDIS_TIMEOUT_S = 5.0


class CardRefused(Exception):
    """What the worker sent is not the card that it announced."""


async def ensure_card(
    node: Node,
    hello: Hello,
    request: Callable[[], Awaitable[None]],
    next_chunk: Callable[[], Awaitable[CardChunk]],
) -> None:
    """Have the card of ``hello`` in the store.

    Raises:
        CardRefused: the chunks make no card, or another one.
        TimeoutError: they did not come in time.
        Unavailable: the store does not answer.
    """
    if await cards.has_card(node, hello.model, hello.model_revision, bound_s=REDIS_TIMEOUT_S):
        return
    async with asyncio.timeout(TIMEOUT_S):
        await request()
        data = await _collect(next_chunk)
    _check(hello, data)
    await cards.store_card(node, hello.model, hello.model_revision, data)


async def _collect(next_chunk: Callable[[], Awaitable[CardChunk]]) -> bytes:
    data = bytearray()
    while True:
        chunk = await next_chunk()
        if chunk.offset != len(data) or len(chunk.data) > MAX_CHUNK_BYTES:
            raise CardRefused(f"a chunk of {len(chunk.data)} bytes at {chunk.offset}")
        data += chunk.data
        if len(data) > MAX_CARD_BYTES:
            raise CardRefused(f"the card exceeds {MAX_CARD_BYTES} bytes")
        if chunk.is_last:
            return bytes(data)


def _check(hello: Hello, data: bytes) -> None:
    if hashlib.sha256(data).digest() != hello.card_hash:
        raise CardRefused("the card does not have the hash that was announced")
    try:
        card = decode_card(data)
    except UndecodableError as error:
        raise CardRefused(str(error)) from error
    if (card.model, card.revision) != (hello.model, hello.model_revision):
        raise CardRefused(f"the card is of {card.model} {card.revision}")
