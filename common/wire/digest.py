"""Digests of requests: of a body, by which two requests are the same, and of what an answer depends on."""

import hashlib
from dataclasses import replace

from common.domain import GenerationRequest, Priority, TraceContext
from common.wire.request import encode_body
from headrace.v1 import inference_service_pb2 as pb


def body_digest(request: pb.GenerateRequest) -> str:
    """Equal for equal bodies, in whatever order their fields and map entries were sent.

    A field that is set to its default differs from one that is unset: which of the two was meant is not guessed.
    """
    compared = pb.GenerateRequest()
    compared.CopyFrom(request)
    # Not compared: the key itself; what is for logs and traces only; and the time limit, which a retry has less of. It
    # does not shape the result: an attempt that ran out of time gives its key back.
    compared.ClearField("idempotency_key")
    compared.ClearField("client_request_id")
    compared.ClearField("labels")
    compared.ClearField("timeout")
    return hashlib.sha256(compared.SerializeToString(deterministic=True)).hexdigest()


def answer_digest(request: GenerationRequest) -> str:
    """Equal for requests that can only have the same answer: of one model revision, tenant, prompt and parameters."""
    sampling = request.sampling
    compared = replace(
        request,
        request_id="",
        # Greedy choices never ask it.
        sampling=sampling if sampling.temperature else replace(sampling, seed=0),
        priority=Priority.NORMAL,
        client_request_id="",
        labels={},
        bypass_prefix_cache=False,
        resumable=False,
        hold=True,
        trace=TraceContext(),
        baggage="",
    )
    return hashlib.sha256(encode_body(compared)).hexdigest()
