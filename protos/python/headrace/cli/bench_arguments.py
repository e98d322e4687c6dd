"""The flags of ``headrace bench``."""

import argparse
from pathlib import Path

from headrace.cli.flag_values import seconds, whole

_NAMED_BY_DEFAULT = "1,8,32"


def add_bench(parser: argparse.ArgumentParser) -> None:
    """All of them."""
    parser.add_argument("--model", metavar="NAME", help="default: the only one that is served")
    load = parser.add_mutually_exclusive_group()
    load.add_argument(
        "--concurrency",
        type=levels_of,
        default=levels_of(_NAMED_BY_DEFAULT),
        metavar="LEVELS",
        help=f"requests at once, level after level: 1,8,32 or 1..64 for doubling (default: {_NAMED_BY_DEFAULT})",
    )
    load.add_argument(
        "--rate",
        type=rates_of,
        metavar="LEVELS",
        help="requests a second instead, whatever becomes of those before: 0.5,1,2",
    )
    parser.add_argument(
        "--requests",
        type=whole(1, 31),
        default=64,
        metavar="N",
        help="of each level (default: 64)",
    )
    parser.add_argument(
        "--workload",
        type=Path,
        metavar="FILE",
        help="JSON lines with prompt or messages, and max_tokens; default: made-up prompts",
    )
    parser.add_argument(
        "--prompt-words",
        type=whole(1, 20),
        default=128,
        metavar="N",
        help="of made-up prompts, about (default: 128)",
    )
    parser.add_argument(
        "--max-tokens",
        type=whole(1, 31),
        default=64,
        metavar="N",
        help="of an answer (default: 64)",
    )
    parser.add_argument(
        "--seed", type=whole(0, 31), default=7, metavar="N", help="of prompts and arrivals"
    )
    parser.add_argument(
        "--ttft-ms",
        type=seconds,
        metavar="MS",
        help="a good answer begins within this; GOOD/S counts those",
    )
    parser.add_argument(
        "--tpot-ms",
        type=seconds,
        metavar="MS",
        help="and takes no longer than this for each further token",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results there")
    parser.add_argument(
        "--plot",
        type=plot_path,
        metavar="FILE",
        help="draw them: .png or .html (needs headrace[bench])",
    )
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", help="show the change from results that were kept"
    )
    parser.add_argument(
        "--load", type=Path, metavar="FILE", help="take results from there instead of running"
    )


def levels_of(text: str) -> list[int]:
    """``1,8,32``, or ``1..64`` for doubling."""
    first, is_ramp, last = text.partition("..")
    try:
        if not is_ramp:
            found = [int(part) for part in text.split(",")]
        else:
            found, top = [int(first)], int(last)
            while found[0] > 0 and found[-1] * 2 <= top:
                found.append(found[-1] * 2)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: numbers like 1,8,32 or 1..64") from None
    if min(found) < 1:
        raise argparse.ArgumentTypeError("must be above 0")
    return found


def rates_of(text: str) -> list[float]:
    """``0.5,1,2``: requests a second."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: numbers like 0.5,1,2") from None
    if not min(found) > 0 or max(found) == float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return found


def plot_path(text: str) -> Path:
    """A file whose ending says what is drawn."""
    path = Path(text)
    if path.suffix.lower() not in (".png", ".html"):
        raise argparse.ArgumentTypeError("must end in .png or .html")
    return path
