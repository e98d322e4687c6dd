"""The worker's settings."""

import pytest

from common.domain import Quantization
from common.settings import SettingsError, read_settings
from worker.faults import Fault, FaultAction
from worker.settings import EngineKind, WorkerSettings


def read(*argv: str, **environ: str) -> WorkerSettings:
    return read_settings(WorkerSettings, argv, environ, prog="headrace-worker")


def test_defaults_serve_the_default_model() -> None:
    """Only the schedulers have to be said."""
    settings = read(HEADRACE_SCHEDULERS="a:1, b:2")
    assert settings.schedulers == ("a:1", "b:2")
    assert settings.engine is EngineKind.MODEL
    assert settings.for_model.quantization is None  # what the checkpoint has
    assert settings.for_model.storage is Quantization.INT8
    assert settings.share_tokens == settings.max_batch_tokens // 4


def test_all_problems_are_told_at_once() -> None:
    """Contradictions among settings are refused together."""
    with pytest.raises(SettingsError) as refused:
        read(
            *("--schedulers", "a:1", "--max-seqs", "9", "--max-batch-tokens", "8"),
            *("--kv-blocks", "1", "--kv-memory-mb", "1", "--fault", "token=1:nan"),
            *("--served-model-name", "no spaces"),
            *("--runner", "lean", "--compile", "--device-map", "auto"),
        )
    assert len(refused.value.problems) == 6


def test_a_scheduler_without_a_port_is_refused() -> None:
    """At the start, by flag and value: dialing it would fail for ever."""
    with pytest.raises(SettingsError, match=r"--schedulers: 'somewhere' is not host:port"):
        read("--schedulers", "here:1,somewhere")


def test_faults_can_be_repeated() -> None:
    """Each ``--fault`` adds one."""
    settings = read(
        *("--schedulers", "a:1", "--allow-faults"),
        *("--fault", "token=1:nan", "--fault", "token=2:exit"),
    )
    assert settings.fault == (Fault(1, FaultAction.NAN), Fault(2, FaultAction.EXIT))


def test_simulation_has_defaults_of_its_own() -> None:
    """Room and context are set without a model to take them from."""
    settings = read("--schedulers", "a:1", "--engine", "simulated", "--step-ms", "2.5")
    assert settings.for_simulation.step_ms == 2.5
    assert settings.for_simulation.kv_blocks > 0
    assert settings.for_simulation.model == "simulated"


def test_a_draft_model_is_named_where_it_is_used() -> None:
    """And only there; the simulated engine has none."""
    drafting = ("--schedulers", "a:1", "--speculation", "draft")
    settings = read(*drafting, "--draft-model", "small", "--draft-kv-memory-mb", "7")
    assert (settings.for_draft.model, settings.for_draft.kv_memory_mb) == ("small", 7)
    with pytest.raises(SettingsError, match="--draft-model: must name"):
        read(*drafting)
    with pytest.raises(SettingsError, match="--speculation: there is no model"):
        read(*drafting, "--engine", "simulated", "--draft-model", "small")
    with pytest.raises(SettingsError, match="--draft-quantization: is for --speculation draft"):
        read("--schedulers", "a:1", "--draft-quantization", "q4")


def test_leaving_fits_into_stopping() -> None:
    """The grace of running requests leaves time to give the rest back before a stop is forced."""
    settings = read("--schedulers", "a:1", "--stop-grace-s", "10", "--drain-grace-s", "60")
    assert settings.leave_grace_s == 5
