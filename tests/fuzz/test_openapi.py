"""The OpenAPI document against the server: what it promises is kept, what it forbids is refused."""

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway.http.openapi import document
from tests.fuzz.tally import TRIED
from tests.support.stack import Stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(scaled(1800))]

SCHEMA = schemathesis.openapi.from_dict(document())
_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@SCHEMA.parametrize()
@settings(suppress_health_check=[*HealthCheck])
def test_the_document_is_kept(stack: Stack, case: schemathesis.Case) -> None:
    """Valid and invalid requests alike: every answer is one that the document names."""
    TRIED["openapi"] += 1
    url = stack.gateways[0].endpoints["http"]
    case.call_and_validate(base_url=url, checks=_CHECKS, timeout=scaled(30))
