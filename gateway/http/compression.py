"""Compression of whole answers for clients that take it; events of streams go as they are, each as soon as it is there."""

from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware

from common.grpc_options import COMPRESSED_FROM_BYTES

# Half of the best level's time, for some hundredths more bytes.
_LEVEL = 4


def compression() -> Middleware:
    """Answers with gzip where `accept-encoding` has it and the body is worth it."""
    return Middleware(GZipMiddleware, minimum_size=COMPRESSED_FROM_BYTES, compresslevel=_LEVEL)
