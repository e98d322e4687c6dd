"""The digest of a request's body: two requests are the same when theirs are equal."""

import hashlib

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
