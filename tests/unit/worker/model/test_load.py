"""Loading: what the card says, what is refused by name, how the pool is sized."""

import dataclasses
import json
import pathlib
import pickle
import re
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from structlog.testing import capture_logs

from common.domain import Quantization, SamplingParams
from tests.support.drive_runner import Stream, drive
from tests.support.tiny_models import CONTEXT_TOKENS, VOCAB_SIZE, make_tiny_model, tiny_config
from worker.engine.model_settings import KvDtype, ModelSettings, RunnerKind
from worker.engine.runner import Draw, Drawn, Row, RowFailed
from worker.model import memory
from worker.model.errors import (
    DeviceMissing,
    ModelDoesNotFit,
    ModelNotFound,
    ModelRefused,
    TokenizerRefused,
)
from worker.model.load import load_model
from worker.model.placement import choose_device
from worker.quantize_command import quantize

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return make_tiny_model("llama", tmp_path_factory.mktemp("llama") / "tiny-llama")


def settings_for(folder, **changes) -> ModelSettings:
    base = ModelSettings(model=str(folder), quantization=Quantization.NONE, kv_blocks=64)
    return dataclasses.replace(base, **changes)


def load(folder, **changes):
    return load_model(settings_for(folder, **changes), lambda _: None)


def test_the_card_describes_the_model(llama):
    """Limits, tokens and names are the checkpoint's; defaults it does not give stay open."""
    card = load(llama, context_tokens=500).card
    assert card.model == "tiny-llama"
    assert card.architecture == "LlamaForCausalLM"
    assert (card.context_tokens, card.vocab_size, card.kv_capacity_tokens) == (
        500,
        VOCAB_SIZE,
        1024,
    )
    assert card.eos_token_ids == (2,)
    assert card.special_tokens["eos_token"] == "<|im_end|>"
    assert "<|im_start|>" in card.chat_template
    assert json.loads(card.tokenizer_json)["model"]["type"] == "BPE"
    assert card.default_temperature is None


def test_generation_defaults_are_the_models_own(llama, tmp_path):
    """Sampling defaults and several eos ids come from generation_config.json."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in llama.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    generation = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [2, 5]}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    card = load(folder, served_model_name="other").card
    assert (card.default_temperature, card.default_top_p, card.default_top_k) == (0.6, 0.9, None)
    assert card.eos_token_ids == (2, 5)
    assert card.model == "other"


def test_revision_and_fingerprint_tell_models_apart(llama, tmp_path):
    """Loading again gives the same names; quantization changes both, dtype the fingerprint alone, weights both."""
    first, again = load(llama).card, load(llama).card
    assert (first.revision, first.fingerprint) == (again.revision, again.fingerprint)
    half = load(llama, dtype="bfloat16").card
    assert half.revision == first.revision
    assert half.fingerprint != first.fingerprint
    others = [
        load(llama, quantization=Quantization.INT8).card,
        load(make_tiny_model("llama", tmp_path / "tiny-llama", seed=1)).card,
    ]
    assert len({first.revision, *(card.revision for card in others)}) == 3
    assert len({first.fingerprint, *(card.fingerprint for card in others)}) == 3


def test_blocks_of_4_bits_are_for_the_lean_decoder(tmp_path):
    """A model that it does not cover is refused by its kind."""
    folder = make_tiny_model("gpt2", tmp_path / "gpt2")
    with pytest.raises(ModelRefused, match="models of type gpt2 are not covered"):
        load(folder, quantization=Quantization.Q4)


@pytest.mark.parametrize("quantization", [q for q in Quantization if q is not Quantization.Q4])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_every_quantization_runs(family, quantization, tmp_path):
    """All formats of the generic runner load and produce text on linear layers and on GPT-2's transposed ones."""
    folder = make_tiny_model(family, tmp_path / family)
    loaded = load(folder, quantization=quantization, double_quant=True)
    streams = [Stream([5, 6, 7, n], 8) for n in range(10, 13)]
    drive(loaded.runner, streams)
    assert all(len(stream.tokens) == 8 for stream in streams)


@pytest.mark.parametrize("quantization", [Quantization.NONE, Quantization.INT8])
def test_chunks_mates_and_resume_change_nothing(llama, quantization):
    """Alone or together, in large or small chunks, from the start or resumed: the same tokens are sampled."""
    runner = load(llama, quantization=quantization, kv_blocks=256).runner

    def streams():
        return [
            Stream(
                list(range(n, n + 20 + 9 * n)), 20, SamplingParams(seed=n, top_p=0.95), arrives=n
            )
            for n in range(3, 12)
        ]

    together, small, alone = streams(), streams(), streams()
    drive(runner, together, budget=200)
    drive(runner, small, budget=13)
    for stream in alone:
        stream.arrives = 0
        stream.tokens = list(
            together[alone.index(stream)].tokens[:7]
        )  # as if 7 had been delivered
        drive(runner, [stream])
    assert [s.tokens for s in together] == [s.tokens for s in small] == [s.tokens for s in alone]


def test_an_injected_nan_fails_one_row(llama):
    """The row fails as NUMERIC, its neighbours draw what they would have drawn."""
    runner = load(llama).runner
    rows = [Row([5, 6, n], 0, [n], Draw(SamplingParams(seed=n), 0, 0)) for n in range(4)]
    sound = runner.run(rows)
    rows[1] = dataclasses.replace(rows[1], inject_nan=True)
    results = runner.run(rows)
    assert isinstance(results[1], RowFailed)
    assert results[1].reason == "NUMERIC"
    assert [results[i] for i in (0, 2, 3)] == [sound[i] for i in (0, 2, 3)]


def test_rows_without_a_draw_give_nothing(llama):
    """A step inside known tokens returns None for its row and still fills the cache."""
    runner = load(llama).runner
    draw = Draw(SamplingParams(seed=0, temperature=0.0), 0, 0)
    whole = runner.run([Row([5, 6, 7, 8], 0, [0], draw)])
    assert runner.run([Row([5, 6], 0, [1], None)]) == [None]
    assert runner.run([Row([7, 8], 2, [1], draw)]) == whole
    assert isinstance(whole[0], Drawn)
    assert runner.run([]) == []


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (transformers.T5Config(num_layers=1, d_model=8, d_ff=8, num_heads=2), "encoder-decoder"),
        (transformers.BertConfig(num_hidden_layers=1), "causal"),
        (transformers.MambaConfig(num_hidden_layers=1, hidden_size=16, vocab_size=384), ""),
        (transformers.LlavaConfig(), "multi-modal"),
    ],
    ids=lambda value: getattr(value, "model_type", None),
)
def test_other_architectures_are_refused_by_name(config, reason, llama, tmp_path):
    """What is no plain decoder is refused before any weight is looked for."""
    config.save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((llama / name).read_bytes())
    if config.model_type == "mamba":
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ModelRefused, match=rf"(?i){config.model_type}.*{reason}"):
        load(tmp_path)


def test_a_model_whose_attention_does_more_is_refused(llama, monkeypatch):
    """When paged output differs from the model's own, the self-check refuses instead of serving it."""
    monkeypatch.setattr(
        "worker.model.layout._first_seen", lambda position, _: max(0, position - 3)
    )
    with pytest.raises(ModelRefused, match=r"LlamaForCausalLM.*differs"):
        load(llama)


def test_missing_things_have_names(tmp_path):
    """No config, no tokenizer, an unknown dtype: each its own error."""
    with pytest.raises(ModelNotFound, match=r"config\.json"):
        load(tmp_path)
    tiny_config("llama").save_pretrained(tmp_path)
    with pytest.raises(TokenizerRefused):
        load(tmp_path)


def test_pickled_weights_are_refused_unread(llama, tmp_path):
    """A file of that kind could do anything: it is named, and the code in it does not run."""
    folder = shutil.copytree(llama, tmp_path / "pickled")
    (folder / "model.safetensors").unlink()
    trap = tmp_path / "sprung"

    class Trap:
        def __reduce__(self):
            return (pathlib.Path.touch, (trap,))

    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ModelRefused, match=r"pytorch_model\.bin is a pickle"):
        load(folder)
    assert not trap.exists()


def cut_short(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])


def without_a_tensor(folder):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.2.mlp.up_proj.weight"]
    save_file(tensors, file, metadata={"format": "pt"})


def wider(folder):
    configure(folder, intermediate_size=192)


def of_code(folder):
    configure(folder, model_type="its own", auto_map={"AutoConfig": "its.Config"})


def configure(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (cut_short, "not fully covered"),
        (without_a_tensor, r"the checkpoint has no model\.layers\.2\.mlp\.up_proj\.weight$"),
        (wider, r"the checkpoint has .*\.weight of \[.*160.*\], not \[.*192.*\], nor 8 more"),
        (of_code, "custom code"),
    ],
)
@pytest.mark.parametrize("quantization", [Quantization.NONE, Quantization.INT8])
def test_what_is_not_whole_is_refused(llama, tmp_path, capsys, damage, reason, quantization):
    """transformers puts random numbers where a tensor is missing, and asks on a terminal whether to run code."""
    folder = shutil.copytree(llama, tmp_path / "copy")
    damage(folder)
    with pytest.raises(ModelRefused, match=reason):
        load(folder, quantization=quantization)
    out = tmp_path / "out"
    assert quantize([str(folder), str(out)]) == 1
    told = capsys.readouterr()
    assert re.search(reason, told.err.strip())
    assert "[y/N]" not in told.out
    assert not out.exists()


def test_an_unknown_dtype_is_refused(llama):
    """Only floating-point dtypes of torch that models use."""
    with pytest.raises(ModelRefused, match="int4"):
        load(llama, dtype="int4")


CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("changes", "free_mib", "blocks"),
    [
        ({"kv_blocks": 7}, 1000, 7),
        ({"kv_blocks": None, "kv_memory_mb": 10}, 1000, 10),
        ({"kv_blocks": None}, 1000, 225),  # a quarter of what activations leave
        ({"kv_blocks": None, "max_seqs": 2}, 10_000, 128),  # no more than all sequences can fill
    ],
)
def test_pool_size(changes, free_mib, blocks, monkeypatch, tmp_path):
    """Settings win, else a share of what is free; blocks here are of 1 MiB, a request takes 64."""
    monkeypatch.setattr(memory, "available_bytes", lambda _: free_mib * memory.MIB)
    size = pool_size(settings_for(tmp_path, **changes))
    assert size.num_blocks == blocks


@pytest.mark.parametrize(
    ("changes", "free_mib"),
    [
        ({"kv_blocks": None}, 300),
        ({"kv_blocks": 2000}, 1000),
        ({"kv_blocks": None, "kv_memory_mb": 0}, 9),
    ],
)
def test_what_does_not_fit_is_an_error(changes, free_mib, monkeypatch, tmp_path):
    """Too little for one full request, for the settings, or for anything at all."""
    monkeypatch.setattr(memory, "available_bytes", lambda _: free_mib * memory.MIB)
    with pytest.raises(ModelDoesNotFit, match="MiB"):
        pool_size(settings_for(tmp_path, **changes))


def pool_size(settings):
    return memory.pool_size(
        settings,
        block_bytes=memory.MIB,
        context_tokens=CONTEXT_TOKENS,
        activation_bytes=100 * memory.MIB,
        shares={CPU: 1.0},
    )


def test_weights_that_do_not_fit_are_refused_before_loading(llama, monkeypatch):
    """A checkpoint larger than memory never starts to load."""
    monkeypatch.setattr(memory, "available_bytes", lambda _: 1000)
    with pytest.raises(ModelDoesNotFit, match="weights"):
        load(llama)


@pytest.mark.parametrize("name", ["cuda:99", "no such thing"])
def test_a_device_that_is_not_there_is_refused_by_name(name):
    """In one line, whether torch was built without it, or the machine lacks it, or nobody ever heard of it."""
    with pytest.raises(DeviceMissing) as refused:
        choose_device(name)
    assert str(refused.value).startswith(f"--device: there is no {name!r} here: ")
    assert "\n" not in str(refused.value)


def test_a_quantization_that_is_slow_on_a_cpu_is_warned_of(llama):
    """Before its weights are read, by one line in the log; the others are no warning."""
    for quantization, expected in ((Quantization.NF4, 1), (Quantization.INT8, 0)):
        with capture_logs() as logged:
            load(llama, quantization=quantization, device="cpu", runner=RunnerKind.GENERIC)
        warned = [line for line in logged if "slow on a CPU" in line["event"]]
        assert [line["log_level"] for line in warned] == ["warning"] * expected


@pytest.mark.parametrize("family", ["mistral", "gpt2"])
def test_keys_and_values_in_int8(family, tmp_path):
    """A quarter of the memory and a little more, near the same logits, and the same tokens in every company."""
    folder = make_tiny_model(family, tmp_path / family)
    plain = load(folder, dtype="float32", runner=RunnerKind.GENERIC)
    small = load(folder, dtype="float32", runner=RunnerKind.GENERIC, kv_dtype=KvDtype.INT8)
    assert small.card.fingerprint != plain.card.fingerprint
    assert len(small.runner.blocks.read(0)) < 0.6 * len(plain.runner.blocks.read(0))
    prompts = [[n * i % 380 for i in range(1, 30 + n)] for n in range(5, 11)]
    targets = [
        load_row.run([Row(prompt, 0, range(8), None, targets=prompt[1:])])[0].scores
        for load_row in (plain.runner, small.runner)
        for prompt in prompts[:1]
    ]
    off = [abs(a.logprob - b.logprob) for a, b in zip(*targets, strict=True)]
    assert 0 < max(off) < 2
    assert sum(off) / len(off) < 0.3
    together = [Stream(prompt, 12) for prompt in prompts]
    drive(small.runner, together, budget=23)
    for stream in together:
        alone = Stream(stream.prompt, 12)
        drive(small.runner, [alone], budget=200)
        assert alone.tokens == stream.tokens
