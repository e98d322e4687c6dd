"""The paged runner against transformers' own generate, for tiny models of every family."""

import random

import pytest
import torch
import transformers

from common.domain import Quantization
from tests.support.drive_runner import Stream, drive
from tests.support.tiny_models import FAMILIES, MIXTURES, VOCAB_SIZE, make_tiny_model
from worker.engine.model_settings import ModelSettings
from worker.model.load import load_model

LENGTHS = (1, 2, 3, 5, 8, 15, 16, 17, 23, 24, 25, 31, 33, 60, 64, 100, 129, 200, 333, 700)


def expected_tokens(model, prompt, max_tokens):
    out = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.int64),
        max_new_tokens=max_tokens,
        do_sample=False,
        eos_token_id=[],
        pad_token_id=0,
    )
    return out[0, len(prompt) :].tolist()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("family", FAMILIES + MIXTURES)
def test_greedy_tokens_equal_generate(family, tmp_path):
    """20 prompts that arrive one after another and share steps give exactly the tokens of generate."""
    folder = make_tiny_model(family, tmp_path / family)
    settings = ModelSettings(
        model=str(folder), quantization=Quantization.NONE, dtype="float32", kv_blocks=256
    )
    runner = load_model(settings, lambda _: None).runner
    numbers = random.Random(family)
    streams = [
        Stream([numbers.randrange(VOCAB_SIZE) for _ in range(n)], 12, arrives=2 * i)
        for i, n in enumerate(LENGTHS)
    ]
    drive(runner, streams)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for stream in streams:
        expected = expected_tokens(model, stream.prompt, stream.max_tokens)
        assert stream.tokens == expected, len(stream.prompt)
    assert len({tuple(stream.tokens) for stream in streams}) > 10, "the oracle must not be trivial"
