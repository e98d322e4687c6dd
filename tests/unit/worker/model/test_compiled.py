"""``--compile``: the compiled model answers as the model does, and where torch cannot compile that is said."""

import dataclasses

import pytest
import torch
from torch._inductor import config as inductor

from common.domain import Quantization
from tests.support.drive_runner import Stream, drive
from tests.support.tiny_models import make_tiny_model
from worker.engine.model_settings import ModelSettings
from worker.model.errors import ModelRefused
from worker.model.load import load_model

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),  # torch's own use
]


def test_the_compiled_model_answers_as_the_model(tmp_path, monkeypatch):
    """Greedy tokens equal those of the model as it is, through the paged cache and its own check; its time is told."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    settings = ModelSettings(
        model=str(make_tiny_model("llama", tmp_path / "m")),
        quantization=Quantization.NONE,
        dtype="float32",
        kv_blocks=64,
    )
    said: list[str] = []
    compiled = load_model(dataclasses.replace(settings, compile=True), said.append)
    assert any(line.startswith("compiled in ") for line in said), said
    plain = load_model(dataclasses.replace(settings, runner="generic"), lambda _: None)
    assert compiled.card.fingerprint != plain.card.fingerprint
    answers = []
    for loaded in (compiled, plain):
        streams = [Stream([5, 6, 7, n] * n, 10, arrives=n) for n in range(1, 6)]
        drive(loaded.runner, streams, budget=40)
        answers.append([stream.tokens for stream in streams])
    assert answers[0] == answers[1]
    assert any((tmp_path / "compiled").iterdir())


def test_where_nothing_compiles_that_is_said(tmp_path, monkeypatch):
    """In one line, with the option's name: here there is no C++ compiler."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    torch._dynamo.reset()
    settings = ModelSettings(
        model=str(make_tiny_model("llama", tmp_path / "m", seed=1)),
        quantization=Quantization.NONE,
        dtype="float32",
        kv_blocks=64,
        compile=True,
    )
    with (
        # Its own way: what monkeypatch puts back there is gone for the next test.
        inductor.patch({"cpp.cxx": ("/no/compiler",)}),
        pytest.raises(ModelRefused, match=r"^--compile: torch cannot compile it here: .+$"),
    ):
        load_model(settings, lambda _: None)
