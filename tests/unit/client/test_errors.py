"""How errors read, and what a batch's errors become."""

from google.protobuf.duration_pb2 import Duration

from headrace.cli.exits import exit_code
from headrace.client.errors import ERROR_CLASSES, FieldViolation, HeadraceError, Resource
from headrace.client.status import error_from_batch
from headrace.v1 import inference_service_pb2 as pb


def test_the_text_is_one_line_with_every_fact_once() -> None:
    """What the message says already is not said again."""
    error = HeadraceError(
        "sampling.top_p: at most 1\nand more",
        code="INVALID_ARGUMENT",
        reason="INVALID_REQUEST",
        field_violations=[
            FieldViolation("sampling.top_p", "at most 1"),
            FieldViolation("prompt", "is empty"),
        ],
        retry_after_s=0.5,
        resource=Resource("model", "tiny"),
        request_id="r1",
    )
    assert str(error) == (
        "INVALID_ARGUMENT (INVALID_REQUEST); sampling.top_p: at most 1 and more; "
        "prompt: is empty; model tiny; request r1; retry after 0.5 s"
    )


def test_a_request_that_is_the_resource_is_named_once() -> None:
    """Whoever asks for a request that does not exist reads its id once."""
    error = HeadraceError(
        "there is none", code="NOT_FOUND", resource=Resource("request", "r1"), request_id="r1"
    )
    assert str(error) == "NOT_FOUND; there is none; request r1"


def test_a_batch_error_is_the_same_kind_as_a_calls() -> None:
    """Same class, same facts."""
    error = error_from_batch(
        pb.RequestError(
            code=8,
            message="full",
            reason="QUEUE_FULL",
            metadata={"request_id": "r1"},
            field_violations=[pb.FieldViolation(field="f", description="d")],
            retry_after=Duration(nanos=500_000_000),
        )
    )
    assert type(error) is ERROR_CLASSES["RESOURCE_EXHAUSTED"]
    assert (error.reason, error.request_id, error.retry_after_s) == ("QUEUE_FULL", "r1", 0.5)
    assert error.field_violations == (FieldViolation("f", "d"),)


def test_unknown_codes_do_not_break_it() -> None:
    """A newer server may know codes that this client does not."""
    assert error_from_batch(pb.RequestError(code=99)).code == "UNKNOWN"


def test_every_code_has_an_exit_code() -> None:
    """0 is never one of them."""
    assert {exit_code(HeadraceError("", code=code)) for code in ERROR_CLASSES} == {1, 2, 3, 4}
