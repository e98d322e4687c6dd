"""The default model in float32 through the paged runner against transformers' generate."""

import pytest
import torch
import transformers
from tokenizers import Tokenizer

from common.domain import Quantization
from tests.support.drive_runner import Stream, drive
from worker.engine.model_settings import DEFAULT_MODEL, ModelSettings
from worker.model.checkpoint import find_checkpoint
from worker.model.load import load_model

pytestmark = pytest.mark.e2e

MAX_TOKENS = 24
STORY = "The miller opened the sluice, and the water ran down the headrace towards the wheel. "
TEXTS = (
    "The",
    "Hi there",
    "What is the capital of France?",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "SELECT name, price FROM products WHERE price > 12345 ORDER BY",
    "Die Mühle am Bach hat ein großes Rad aus Holz, das sich",
    "El agua del río mueve la rueda del molino y",
    "水车是一种古老的",
    "Привет, как дела? Сегодня мы",
    "🙂🙂 emoji and   spaces\t\ttabs\n\n\nnewlines",
    "1 2 3 4 5 6 7 8 9 10 11",
    '{"name": "Headrace", "items": [1, 2.5, null, true],',
    "Once upon a time",
    "Q: What is 17 + 25?\nA:",
    STORY,
    STORY * 2,
    STORY * 5 + "In one sentence:",
    STORY * 12,
    STORY * 20 + "Then",
    STORY * 34,
)
CHATS = ("What is the capital of France?", "Write a haiku about water.", "Explain recursion.")


@pytest.fixture(scope="module")
def settings() -> ModelSettings:
    return ModelSettings(
        model=DEFAULT_MODEL, quantization=Quantization.NONE, dtype="float32", kv_blocks=512
    )


@pytest.mark.timeout(1800)
def test_greedy_tokens_equal_generate(settings):
    """20 texts and some chats, started one after another in shared steps, give exactly the tokens of generate."""
    loaded = load_model(settings, lambda _: None)
    tokenizer = Tokenizer.from_str(loaded.card.tokenizer_json.decode())
    folder = find_checkpoint(settings, lambda _: None)
    chat = transformers.AutoTokenizer.from_pretrained(folder)
    prompts = [tokenizer.encode(text).ids for text in TEXTS]
    prompts += [
        chat.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=True
        )["input_ids"]
        for text in CHATS
    ]
    assert min(map(len, prompts)) == 1
    assert 600 < max(map(len, prompts)) <= 700
    streams = [
        Stream(prompt, MAX_TOKENS, eos_token_ids=loaded.card.eos_token_ids, arrives=2 * i)
        for i, prompt in enumerate(prompts)
    ]
    drive(loaded.runner, streams, budget=256)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for stream in streams:
        out = model.generate(
            torch.tensor([stream.prompt]),
            attention_mask=torch.ones((1, len(stream.prompt)), dtype=torch.int64),
            max_new_tokens=MAX_TOKENS,
            do_sample=False,
        )
        expected = out[0, len(stream.prompt) :].tolist()
        assert stream.tokens == expected, tokenizer.decode(stream.prompt)
    answer = tokenizer.decode(streams[len(TEXTS)].tokens)
    assert "Paris" in answer
