"""`headrace keys` and `headrace tenant` against a scripted server."""

from typing import Any

from headrace.cli.__main__ import main
from headrace.v1 import admin_service_pb2 as pb
from headrace.v1 import generation_pb2 as gen
from tests.integration.client.scripted import Script, ScriptedServer, answer


def test_a_key_is_issued_listed_and_revoked(script: Script, run: Any) -> None:
    """The secret alone is the output, so that it can be kept by a pipe; a list never has it."""
    key = pb.Key(key_id="k1", tenant="blue", description="ci")
    script.on("CreateKey", answer(pb.CreateKeyResponse(key=key, secret="hr-k1-secret")))
    script.on("ListKeys", answer(pb.ListKeysResponse(keys=[key])))
    script.on("RevokeKey", answer(pb.RevokeKeyResponse(key=key)))
    code, out, err = run("keys", "create", "blue", "--days", "30")
    assert (code, out) == (0, "hr-k1-secret\n")
    assert "k1" in err
    code, out, _ = run("keys", "list")
    assert code == 0
    assert "never" in out
    assert "secret" not in out
    assert run("keys", "revoke", "k1")[1] == "revoked k1 of blue\n"


def test_a_tenant_is_limited_and_shown(script: Script, run: Any) -> None:
    """What was not said has no limit."""
    limits = pb.TenantLimits(
        models=["m"], highest_priority=gen.PRIORITY_HIGH, weight=2, tokens_per_minute=100
    )
    script.on("SetTenant", answer(pb.SetTenantResponse(limits=limits)))
    script.on("GetTenant", answer(pb.GetTenantResponse(limits=limits, tokens_used=40)))
    code, out, _ = run("tenant", "set", "blue", "--model", "m", "--tokens-per-minute", "100")
    assert code == 0
    assert "tokens per minute    40    100" in out
    assert "any" in out


def test_the_key_of_the_environment_goes_along(server: ScriptedServer, script: Script) -> None:
    """HEADRACE_API_KEY, on every call."""
    script.on("ListKeys", answer(pb.ListKeysResponse()))
    environ = {"HEADRACE_TARGET": server.target, "HEADRACE_API_KEY": "hr-x"}
    assert main(["keys", "list"], environ) == 0
    (call,) = script.of("ListKeys")
    assert call.metadata["authorization"] == "Bearer hr-x"
