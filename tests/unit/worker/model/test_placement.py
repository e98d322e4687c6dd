"""``--device-map``: what may be said, and that a layer's keys and values are where the layer is."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from accelerate.hooks import AlignDevicesHook, add_hook_to_module

from common.domain import Quantization
from tests.support.drive_runner import Stream, drive
from tests.support.tiny_models import VOCAB_SIZE, make_tiny_model
from worker.engine.model_settings import ModelSettings
from worker.engine.runner import Row
from worker.kv.cache import PagedCache
from worker.model import attention
from worker.model.decoder import Decoder
from worker.model.errors import DeviceMissing, ModelRefused
from worker.model.layout import StepLayout
from worker.model.load import load_model
from worker.model.placement import device_map
from worker.model.quantize import PlainLayers, replace_linears

CPU, META = torch.device("cpu"), torch.device("meta")
MODULES = ("model.embed_tokens", "model.layers", "model.norm", "model.rotary_emb", "lm_head")

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        ("nowhere.json", ModelRefused, "neither auto, balanced, .* nor JSON nor a file of it"),
        ("[1]", ModelRefused, "neither"),
        ("{}", ModelRefused, "must be an object"),
        ('{"model": "cuda:99"}', DeviceMissing, "no 'cuda:99' here"),
        ('{"model": "cpu", "lm_head": "disk"}', ModelRefused, "copied in every step"),
        ('{"model": "cpu", "lm_head": "meta"}', ModelRefused, "copied in every step"),
    ],
)
def test_what_cannot_be_is_refused_by_name(text: str, error: type[Exception], reason: str) -> None:
    """No JSON, no device, and what would be brought to its accelerator in every step."""
    with pytest.raises(error, match=reason):
        device_map(text, CPU)


def test_a_model_is_placed_as_its_map_says(tmp_path: Path) -> None:
    """By module from a file, or by a strategy of transformers: the same tokens as without."""
    folder = make_tiny_model("llama", tmp_path / "m")
    file = tmp_path / "map.json"
    file.write_text(json.dumps(dict.fromkeys(MODULES, "cpu")))
    found = []
    for text in (None, str(file), "auto"):
        settings = ModelSettings(
            model=str(folder),
            quantization=Quantization.NONE,
            dtype="float32",
            kv_blocks=64,
            device_map=text,
        )
        stream = Stream([5, 6, 7], 8)
        drive(load_model(settings, lambda _: None).runner, [stream])
        found.append(stream.tokens)
    assert found[0] == found[1] == found[2]


def test_each_layers_keys_are_where_the_layer_is() -> None:
    """A last layer elsewhere, brought its inputs by a hook: its store, slots and masks are there, and its output arrives.

    The other place holds shapes and no numbers, so nothing on the way may have stayed behind.
    """
    attention.register()
    config = transformers.LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    for module in (model.model.layers[2], model.model.norm, model.lm_head):
        add_hook_to_module(module, AlignDevicesHook(META, place_submodules=True))
    model.hf_device_map = {"model": 0, "model.layers.2": 1}
    replace_linears(model, Quantization.NONE, double_quant=False, plain=PlainLayers(torch.float32))
    decoder = Decoder(model)
    layers = decoder.discover()
    assert [layer.device for layer in layers] == [CPU, CPU, META]
    cache = PagedCache(layers, num_blocks=8, block_size=4, dtype=torch.float32, stored=torch.int8)
    assert [store.device for store in cache.stores] == 2 * [CPU, CPU, META]
    rows = [Row([1, 2, 3], 0, [0], None), Row([4], 5, [1, 2], None)]
    logits = decoder.logits(StepLayout(rows, cache, torch.float32, decoder.device), [0, 1])
    assert (logits.device, logits.shape) == (META, (2, VOCAB_SIZE))
