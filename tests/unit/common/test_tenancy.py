"""Keys open only for their own secret, while they hold."""

from dataclasses import replace

import pytest

from common.tenancy import ApiKey, TenantLimits, key_id_of


def test_a_key_opens_for_its_secret_alone() -> None:
    """The secret names its key, and is nowhere in what is stored."""
    key, secret = ApiKey.issue("blue", "for tests", 1_000, 2_000)
    _, other = ApiKey.issue("blue", "", 1_000, None)
    assert key_id_of(secret) == key.key_id
    assert key.opens(secret, 1_999)
    assert not key.opens(other, 1_999)
    assert not key.opens(secret + "x", 1_999)
    assert not key.opens(secret, 2_000)
    assert not replace(key, is_revoked=True).opens(secret, 1_999)
    assert secret.rpartition("-")[2] not in repr(key)


@pytest.mark.parametrize(
    "text",
    ["", "hr", "hr-", "sk-" + "x" * 60, "hr-0123456789abcde-" + "x" * 43, "hr-0123456789abcdef-x"],
)
def test_what_is_no_secret(text: str) -> None:
    """Other forms are not even looked up."""
    assert key_id_of(text) is None


def test_limits_that_count() -> None:
    """Models, classes and weights need no counter; the other three do, and zero is a limit."""
    assert not TenantLimits(models=("m",), weight=2.0).are_counted
    assert TenantLimits(concurrent_requests=0).are_counted
    assert TenantLimits(models=("m",)).allows_model("m")
    assert not TenantLimits(models=("m",)).allows_model("n")
