"""The default model: converted once by whoever comes first, with the tokenizer and chat template of its family."""

import multiprocessing

import pytest
from tokenizers import Tokenizer

from common.domain import SamplingParams
from tests.support.drive_runner import Stream, drive
from worker.engine.model_settings import ModelSettings
from worker.model.checkpoint import find_checkpoint
from worker.model.load import load_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def convert(cache, barrier, results):
    barrier.wait(300)
    said = []
    folder = find_checkpoint(ModelSettings(model_cache=cache), said.append)
    results.put((str(folder), len(said)))


def test_concurrent_starts_convert_once(tmp_path):
    """Three processes that start together on an empty cache get the same complete folder; one of them made it."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(3), context.Queue()
    leftover = tmp_path / "cache" / ".unrelated"
    leftover.mkdir(parents=True)
    workers = [
        context.Process(target=convert, args=(str(tmp_path / "cache"), barrier, results))
        for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=500) for _ in workers]
    for worker in workers:
        worker.join(300)
    assert len({folder for folder, _ in found}) == 1
    assert sum(said for _, said in found) == 1
    assert [p for p in (tmp_path / "cache").iterdir() if p.name.startswith(".smol")] == []
    assert leftover.is_dir()


def test_tokens_template_and_answer_with_int8():
    """Digits stand alone, special tokens are one id each, and the int8 model knows the capital of France."""
    loaded = load_model(ModelSettings(kv_blocks=64), lambda _: None)
    card = loaded.card
    tokenizer = Tokenizer.from_str(card.tokenizer_json.decode())
    assert tokenizer.encode("a  12345").tokens == ["a", "ĠĠ", "1", "2", "3", "4", "5"]
    assert tokenizer.encode("<|im_start|>user\n").ids[:1] == [1]
    for text in ("水车 🙂👩‍👩‍👧", "def f(x):\n\treturn x  # ok", " naïve Übermut", "日本語"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert card.eos_token_ids == (2,)
    assert card.context_tokens == 8192
    assert "<|im_start|>assistant" in card.chat_template
    prompt = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    )
    stream = Stream(
        tokenizer.encode(prompt).ids,
        24,
        SamplingParams(seed=0, temperature=0.0),
        eos_token_ids=card.eos_token_ids,
    )
    drive(loaded.runner, [stream])
    assert "Paris" in tokenizer.decode(stream.tokens)
