"""Loads a draft model beside the model that it guesses for."""

from collections.abc import Callable
from dataclasses import replace

import torch
from tokenizers import Tokenizer

from common.model_card import ModelCard
from worker.engine.block_store import PagedRunner
from worker.engine.model_settings import ModelSettings
from worker.model.errors import TokenizerRefused
from worker.model.lean.runner import LeanRunner
from worker.model.load import LoadedModel, load_model
from worker.model.placement import choose_device


def load_draft(
    settings: ModelSettings, target: LoadedModel, progress: Callable[[str], None]
) -> LoadedModel:
    """Load the model of ``settings``, to guess for ``target``, which is loaded and has not used its blocks yet.

    Raises:
        ModelLoadError: as for any model; or its tokenizer is another one.
    """
    threads = settings.threads or _num_threads(target.runner)
    is_cpu = choose_device(settings.device).type == "cpu"
    # A page of the pool is given when it is first written: nobody sees yet that it is taken.
    promised = target.runner.num_blocks * len(target.runner.blocks.read(0)) if is_cpu else 0
    draft = load_model(replace(settings, threads=threads, promised_bytes=promised), progress)
    if not all(isinstance(one.runner, LeanRunner) for one in (target, draft)):
        torch.set_num_threads(threads)  # a lean runner leaves torch one, which the other needs
    if _vocabulary(draft.card) != _vocabulary(target.card):
        raise TokenizerRefused(
            f"{draft.card.model} has another tokenizer than {target.card.model}"
        )
    return draft


def _vocabulary(card: ModelCard) -> dict[str, int]:
    """What each token id stands for: all that two models must agree on for one to guess for the other."""
    return Tokenizer.from_str(card.tokenizer_json.decode()).get_vocab(with_added_tokens=True)


def _num_threads(runner: PagedRunner) -> int:
    if isinstance(runner, LeanRunner):
        return runner.decoder.num_threads
    return torch.get_num_threads()
