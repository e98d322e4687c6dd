"""The default model on the lean decoder: it knows its capital, and says what the generic runner says."""

from typing import Any

import pytest
import torch
import transformers

from common.domain import SamplingParams
from tests.support.drive_runner import Stream, drive
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.engine.runner import Row
from worker.kernels.library import KernelsMissing, load
from worker.model.checkpoint import find_checkpoint
from worker.model.load import load_model

pytestmark = pytest.mark.timeout(600)

try:
    load()
except KernelsMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)

QUESTION = "What is the capital of France?"


def load_runner(kind: RunnerKind) -> Any:
    settings = ModelSettings(kv_blocks=32, context_tokens=256, runner=kind)
    return load_model(settings, lambda _: None).runner


def test_the_capital_of_france():
    """The greedy answer names Paris; what it expects at each
    token is what the generic int8 runner expects, but for 8 bit activations.
    """
    folder = find_checkpoint(ModelSettings(), lambda _: None)
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}], add_generation_prompt=True, return_dict=False
    )
    runner = load_runner(RunnerKind.LEAN)
    stream = Stream(prompt, 24, SamplingParams(seed=0, temperature=0.0), (tokenizer.eos_token_id,))
    drive(runner, [stream])
    assert "Paris" in tokenizer.decode(stream.tokens)

    rows = [Row([token], i, range(16), None) for i, token in enumerate(stream.known)]
    found = torch.from_numpy(runner.decoder.logits(rows, range(len(rows))))
    expected = load_runner(RunnerKind.GENERIC)._decoder.reference(stream.known).float()
    divergence = torch.nn.functional.kl_div(
        found.log_softmax(dim=1), expected.log_softmax(dim=1), log_target=True, reduction="none"
    ).sum(dim=1)
    assert divergence.mean() < 0.03
    assert divergence.max() < 0.3
