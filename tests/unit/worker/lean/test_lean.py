"""The lean decoder: close to the model it runs, the same bits in every batch, refused where it covers nothing."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from common.domain import Quantization, SamplingParams
from tests.support.drive_runner import Stream, drive
from tests.support.tiny_models import VOCAB_SIZE, make_tiny_model, tiny_config
from worker.engine.model_settings import KvDtype, ModelSettings, RunnerKind
from worker.engine.runner import Checked, Draw, Row, RowFailed
from worker.kernels.library import KernelsMissing, instruction_sets
from worker.kernels.structs import KvFormat
from worker.model.errors import ModelRefused
from worker.model.lean.blocks import blocks_of_4, blocks_of_8, values
from worker.model.lean.checkpoint import Checkpoint
from worker.model.lean.decoder import LeanDecoder
from worker.model.lean.four_bit import FORMATS, quantize
from worker.model.lean.packing import quantize_rows
from worker.model.lean.runner import LeanRunner
from worker.model.lean.spec import NotLean, read_spec
from worker.model.lean.weights import load_weights
from worker.model.load import load_model
from worker.model.runner import TorchRunner

pytestmark = pytest.mark.timeout(600)

try:
    ISAS = instruction_sets()
except KernelsMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)

FAMILIES = ("llama", "qwen2", "qwen2-window", "qwen3", "mistral")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("models")
    return {family: make_tiny_model(family, base / family) for family in FAMILIES}


@dataclasses.dataclass(frozen=True)
class Form:
    """How weights, keys and values are stored."""

    how: Quantization = Quantization.INT8
    kv: KvFormat = KvFormat.BFLOAT16


FORMS = [Form(), Form(Quantization.Q4, KvFormat.INT8), Form(Quantization.NF4)]


def make_decoder(
    folder, form=FORMS[0], *, isa=ISAS[0], threads=2, num_blocks=64, block_size=16
) -> LeanDecoder:
    spec = read_spec(transformers.AutoConfig.from_pretrained(folder), block_size)
    return LeanDecoder(
        spec,
        load_weights(Checkpoint(folder), spec, form.how),
        isa=isa,
        threads=threads,
        num_blocks=num_blocks,
        block_size=block_size,
        kv=form.kv,
    )


def text(seed, length):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCAB_SIZE, (length,), generator=generator).tolist()


def dequantized(folder, how):
    """The model with the weights that the decoder has, computed exactly."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Embedding) or name == "lm_head":
                module.weight.copy_(stored_table(module.weight))
            elif isinstance(module, torch.nn.Linear):
                module.weight.copy_(stored(module.weight, how))
    return model


def stored(weight, how):
    if how is Quantization.Q4:
        return torch.from_numpy(values(blocks_of_4(weight)))
    if how in FORMATS:
        return torch.from_numpy(quantize(weight, how).values())
    steps, scales = quantize_rows(weight)
    return steps.float() * scales[:, None]


def stored_table(weight):
    return torch.from_numpy(values(blocks_of_8(weight)))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_close_to_the_model(folders, family, form, isa):
    """Along a chunked text, what differs from exact arithmetic on the same weights is 8 bit activations, keys and values."""
    decoder = make_decoder(folders[family], form, isa=isa)
    tokens, table = text(1, 110), [5, 9, 1, 30, 7, 22, 3]
    with torch.inference_mode():
        expected = dequantized(folders[family], form.how)(torch.tensor([tokens])).logits[0]
    for first, last in ((0, 40), (40, 41), (41, 60), (60, 109), (109, 110)):
        found = decoder.logits([Row(tokens[first:last], first, table, None)], [0])
        error = torch.from_numpy(found[0]) - expected[last - 1]
        limit = 0.1 if form.kv is KvFormat.INT8 else 0.06
        assert error.norm() < limit * expected[last - 1].norm(), (first, last)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_has_the_same_bits_in_every_batch(folders, family, form):
    """Chunks, mates, places in the batch and in the pool, and the number of threads change no bit."""
    alone = make_decoder(folders[family], form, threads=1)
    mates = make_decoder(folders[family], form, threads=3, num_blocks=256, block_size=32)
    tokens = text(2, 90)
    expected = alone.logits([Row(tokens, 0, list(range(6)), None)], [0])[0]

    @settings(max_examples=15, deadline=None)
    @given(
        cuts=st.lists(st.integers(1, 89), max_size=4, unique=True),
        lengths=st.lists(st.integers(1, 70), max_size=9),
        place=st.integers(0, 9),
    )
    def check(cuts, lengths, place):
        place = min(place, len(lengths))
        edges = [0, *sorted(cuts), len(tokens)]
        logits = None
        for first, last in itertools.pairwise(edges):
            rows = [
                Row(text(i, n), 0, list(range(20 + 4 * i, 24 + 4 * i)), None)
                for i, n in enumerate(lengths)
            ]
            rows.insert(place, Row(tokens[first:last], first, [200, 17, 100], None))
            logits = mates.logits(rows, [place])[0]
        assert (logits == expected).all()

    check()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen2-window"])
@pytest.mark.parametrize("threads", [1, 3])
def test_logits_behind_every_token_are_those_of_single_steps(folders, family, form, threads):
    """Of the last layer only what is asked for is computed, in many rows or few: the bits are those of one token at a time."""
    decoder = make_decoder(folders[family], form, threads=threads)
    tokens, table = text(8, 130), list(range(9))
    singly = np.stack(
        [
            decoder.logits([Row([token], at, table, None)], [0])[0]
            for at, token in enumerate(tokens)
        ]
    )
    row = Row(tokens, 0, list(range(20, 29)), None)
    for places in (range(130), range(60, 130), [129], [3, 4, 70, 71, 72, 5]):
        assert (decoder.logits_after([row], places) == singly[places]).all(), places


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen2-window"])
def test_every_instruction_set_gives_the_same_bits(folders, family, form):
    """Whole numbers add up exactly and floats in one order."""
    rows = [Row(text(4, 70), 0, list(range(5)), None), Row(text(5, 3), 0, [6], None)]
    first, *others = (
        make_decoder(folders[family], form, isa=isa).logits(rows, [0, 1]) for isa in ISAS
    )
    assert all((found == first).all() for found in others)


def test_sampled_tokens_do_not_depend_on_mates(folders):
    """Sequences that arrive, share steps and end give what each gives alone."""
    runner = LeanRunner(make_decoder(folders["llama"], num_blocks=256))

    def streams():
        return [
            Stream(text(n, 5 + 9 * n), 15, SamplingParams(seed=n, top_p=0.95), arrives=n)
            for n in range(10)
        ]

    together, alone = streams(), streams()
    drive(runner, together, budget=50)
    for stream in alone:
        stream.arrives = 0
        drive(runner, [stream])
    assert [s.tokens for s in together] == [s.tokens for s in alone]


@pytest.mark.parametrize("form", FORMS)
def test_a_broken_sequence_leaves_nothing_behind(folders, form):
    """Blocks that held NaN give the next owner the bits that fresh blocks give."""
    decoder = make_decoder(folders["llama"], form)
    tokens = text(3, 20)
    fresh = decoder.logits([Row(tokens, 0, [1, 2], None)], [0])
    for pool in decoder._pool:
        pool.keys[:] = pool.values[:] = np.array(0x7FC0).astype(pool.keys.dtype)
        if pool.scales is not None:
            pool.scales[:] = np.nan
    assert (decoder.logits([Row(tokens, 0, [1, 2], None)], [0]) == fresh).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_guesses_change_no_token(folders, form, temperature):
    """Steps with right and wrong guesses, beside others, bring the tokens of steps without; wrong ones leave nothing behind."""
    runner = LeanRunner(make_decoder(folders["qwen3"], form))
    prompt, params = text(6, 30), SamplingParams(seed=3, temperature=temperature)
    stream = Stream(prompt, 12, params)
    drive(runner, [stream])
    tokens, table = stream.tokens, [7, 3, 11]
    runner.run([Row(prompt[:-1], 0, table, None)])
    found, known = [], list(prompt)
    while len(found) < 8:
        guesses = tokens[len(found) : len(found) + 3]
        guesses[len(found) % 3] ^= 1 + len(found) % 2
        draws = [Draw(params, 0, len(found) + i) for i in range(4)]
        row = Row(
            known[-1:], len(known) - 1, table, draws[0], guesses=guesses, later_draws=draws[1:]
        )
        mate = Row(text(7, 5), 0, [20], None)
        _, result = runner.run([mate, row])
        assert isinstance(result, Checked)
        found += [one.token_id for one in result.drawn]
        known = [*prompt, *found]
    assert found == tokens[: len(found)]


def test_an_injected_nan_fails_one_row(folders):
    """The row fails as NUMERIC, its neighbours draw what they would have drawn."""
    runner = LeanRunner(make_decoder(folders["llama"]))
    rows = [Row([5, 6, n], 0, [n], Draw(SamplingParams(seed=n), 0, 0)) for n in range(4)]
    sound = runner.run(rows)
    rows[1] = dataclasses.replace(rows[1], inject_nan=True)
    results = runner.run(rows)
    assert isinstance(results[1], RowFailed)
    assert [results[i] for i in (0, 2, 3)] == [sound[i] for i in (0, 2, 3)]


def test_rows_without_a_draw_and_no_rows(folders):
    """Nothing is drawn for a row that does not ask; a step without rows does nothing."""
    runner = LeanRunner(make_decoder(folders["llama"]))
    assert runner.run([Row([5, 6], 0, [0], None)]) == [None]
    assert runner.run([]) == []


def test_int8_is_what_bitsandbytes_stores():
    """Weights and scales equal those of bitsandbytes bit for bit, rows of zeros included."""
    bnb = pytest.importorskip("bitsandbytes")
    weight = torch.randn((64, 96), generator=torch.Generator().manual_seed(0))
    weight[3] = 0
    steps, largest, _ = bnb.functional.int8_vectorwise_quant(weight.clone())
    found, scales = quantize_rows(weight)
    sound = [i for i in range(64) if i != 3]
    assert torch.equal(found[sound], steps[sound])
    assert not found[3].any()
    assert torch.equal(scales, largest / 127)


def test_auto_takes_the_lean_decoder_and_falls_back(folders, tmp_path):
    """Llama in int8 runs lean; other dtypes and families run on the generic runner, and it says why, once."""
    said = []

    def load(folder, **changes):
        said.clear()
        base = ModelSettings(model=str(folder), quantization=Quantization.INT8, kv_blocks=64)
        return load_model(dataclasses.replace(base, **changes), said.append)

    lean, generic = load(folders["llama"]), load(folders["llama"], runner=RunnerKind.GENERIC)
    assert isinstance(lean.runner, LeanRunner)
    assert isinstance(generic.runner, TorchRunner)
    assert lean.card.revision == generic.card.revision
    assert lean.card.fingerprint != generic.card.fingerprint
    assert load(folders["mistral"]).card.sliding_window == 24
    gpt2 = make_tiny_model("gpt2", tmp_path / "gpt2")
    for folder, changes in (
        (folders["llama"], {"quantization": Quantization.NF4, "dtype": "float32"}),
        (folders["llama"], {"dtype": "float32"}),
        (folders["llama"], {"block_size": 8}),
        (gpt2, {}),
    ):
        assert isinstance(load(folder, **changes).runner, TorchRunner)
        assert sum("lean" in line for line in said) == 1
    with pytest.raises(ModelRefused, match="gpt2"):
        load(gpt2, runner=RunnerKind.LEAN)


def test_what_only_the_lean_decoder_knows(folders, tmp_path):
    """Blocks of 4 bits run on the lean decoder, and are refused where it cannot run."""
    base = ModelSettings(
        model=str(folders["llama"]),
        quantization=Quantization.Q4,
        kv_dtype=KvDtype.INT8,
        kv_blocks=64,
    )
    loaded = load_model(base, lambda _: None)
    assert isinstance(loaded.runner, LeanRunner)
    assert loaded.runner.decoder.kv is KvFormat.INT8
    by_default, other = (
        load_model(dataclasses.replace(base, kv_dtype=kv), lambda _: None)
        for kv in (KvDtype.AUTO, KvDtype.MODEL)
    )
    assert by_default.card.fingerprint == loaded.card.fingerprint != other.card.fingerprint
    gpt2 = make_tiny_model("gpt2", tmp_path / "gpt2")
    for changes in (
        {"model": str(gpt2)},
        {"runner": RunnerKind.GENERIC},
    ):
        with pytest.raises(ModelRefused, match=r"gpt2|q4"):
            load_model(dataclasses.replace(base, **changes), lambda _: None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_act": "gelu"}, "gelu"),
        ({"mlp_bias": True}, "MLP"),
        ({"attention_bias": True}, "bias"),
        ({"head_dim": 15}, "15"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "dynamic",
        ),
    ],
)
def test_what_is_not_covered_is_named(changes, reason):
    """A field that would change numbers in a way that the kernels do not know refuses the model."""
    config = tiny_config("llama")
    for name, value in changes.items():
        setattr(config, name, value)
    with pytest.raises(NotLean, match=reason):
        read_spec(config, 16)


def test_a_tensor_that_nobody_would_use_refuses_the_checkpoint(folders, tmp_path):
    """A checkpoint that holds more than its configuration says is another model."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folders["llama"] / "model.safetensors")
    tensors["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(64)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    spec = read_spec(tiny_config("llama"), 16)
    with pytest.raises(NotLean, match=r"q_proj\.bias"):
        load_weights(Checkpoint(tmp_path), spec)


def test_llama3_frequencies_are_transformers_own():
    """Scaled rotary embeddings take their frequencies from transformers."""
    config = tiny_config("llama")
    config.rope_parameters = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    }
    rotary = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
    found = read_spec(config, 16).inverse_frequencies
    torch.testing.assert_close(torch.tensor(found), rotary.inv_freq)
