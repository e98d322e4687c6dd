"""What quantization costs: ``headrace-worker --check-quality`` in every format, on a text that every interpreter has.

python -m tests.bench.quality [--model MODEL] [--text FILE] [--formats float16,int8,…]
"""

import argparse
import pydoc_data.topics
import sys
import tempfile
from pathlib import Path
from typing import Any

import transformers

from worker.engine.model_settings import DEFAULT_MODEL, ModelSettings
from worker.quality.check import EVERY_FORMAT, check_quality


def reference() -> str:
    """The Python reference, from the middle on, so that pieces of it are of different topics."""
    whole = "\n".join(text for _, text in sorted(pydoc_data.topics.topics.items()))
    return whole[200_000:500_000]


def texts(folder: Path, count: int, tokens: int) -> list[list[int]]:
    """Pieces of the reference, evenly spread."""
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(reference(), verbose=False)["input_ids"]
    step = len(ids) // count
    return [ids[i * step : i * step + tokens] for i in range(count)]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--text", help="a file; default the Python reference")
    parser.add_argument("--formats", default=",".join(EVERY_FORMAT))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "python-reference.txt"
        file.write_text(reference(), encoding="utf-8")
        settings = ModelSettings(model=options.model, context_tokens=512)
        return check_quality(settings, options.text or str(file), options.formats.split(","))


if __name__ == "__main__":
    sys.exit(main())
