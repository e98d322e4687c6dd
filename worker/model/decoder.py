"""A loaded causal model as a function from a step's layout to logits."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from worker.kv.cache import LayerShape
from worker.model.attention import DISCOVER, PAGED, FoundLayers
from worker.model.layout import StepLayout


class Decoder:
    """Runs a transformers model without its cache: keys and values live in the layout's paged cache."""

    def __init__(self, model: Any) -> None:
        """``model`` must have passed ``check_model``."""
        self.model = model.eval()
        self.is_compiled = False
        self.dtype: torch.dtype = model.get_input_embeddings().weight.dtype
        self.device: torch.device = model.get_input_embeddings().weight.device
        self._is_split = len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1

    @torch.inference_mode()
    def discover(self, num_tokens: int = 8) -> list[LayerShape]:
        """The attention layers' shapes, seen by running ``num_tokens`` through the model.

        Raises:
            ModelRefused: a layer cannot be run over a paged cache.
        """
        self.model.set_attn_implementation(DISCOVER)
        found = FoundLayers()
        tokens = torch.zeros((1, num_tokens), dtype=torch.int64, device=self.device)
        self.model(input_ids=tokens, use_cache=False, headrace_layers=found)
        return [shape for _, shape in sorted(found.shapes.items())]

    @torch.inference_mode()
    def reference(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Logits of one sequence [tokens, vocabulary] by the model's own attention, nothing of it compiled."""
        self.model.set_attn_implementation("eager")
        tokens = torch.tensor([list(token_ids)], device=self.device)
        as_it_is = torch.compiler.set_stance("force_eager") if self.is_compiled else nullcontext()
        with as_it_is:
            return self.model(input_ids=tokens, use_cache=False).logits[0]

    def logits(self, layout: StepLayout, rows: Sequence[int]) -> torch.Tensor:
        """Run the step; logits [rows, vocabulary] after the last token of each of ``rows``."""
        last = layout.last_tokens()
        return self.logits_after(layout, [last[row] for row in rows])

    @torch.inference_mode()
    def logits_after(self, layout: StepLayout, places: Sequence[int]) -> torch.Tensor:
        """Run the step; logits [places, vocabulary] behind the tokens at these ``places`` of the flat batch."""
        self.model.set_attn_implementation(PAGED)
        inputs = {
            "input_ids": layout.token_ids.unsqueeze(0),
            "position_ids": layout.positions.unsqueeze(0),
            "use_cache": False,
            "headrace_step": layout,
        }
        if (
            not places
        ):  # nobody asks for a token, so the head, a good part of the work, is left out
            self.model.base_model(**inputs)
            return torch.empty((0, 0), dtype=self.dtype, device=self.device)
        keep = layout.index_of(places)
        if (
            not self._is_split
        ):  # else the hidden states may be anywhere, where an index in host memory will do
            keep = keep.to(self.device)
        return self.model(**inputs, logits_to_keep=keep).logits[0, : len(places)]
