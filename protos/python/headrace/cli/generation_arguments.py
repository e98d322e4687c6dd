"""The flags of a generation: how tokens are drawn, when the answer ends; each is the option of the same name."""

import argparse
from collections.abc import Callable, Sequence

from headrace.cli.constraint_arguments import add_constraint
from headrace.cli.flag_values import seconds, whole
from headrace.v1 import generation_pb2 as gen

Kind = Callable[[str], int | float]

_COUNT = whole(0, 32)
_NUMBERS: tuple[tuple[str, Kind, str], ...] = (
    ("max-tokens", _COUNT, "most tokens of the answer"),
    ("min-tokens", _COUNT, "no end before so many tokens"),
    ("temperature", float, "0 to 2; 0 is greedy"),
    ("top-p", float, "above 0, at most 1"),
    ("top-k", whole(-1, 31), "at least 1, or -1 for off"),
    ("min-p", float, "0 to 1, relative to the likeliest token"),
    ("typical-p", float, "above 0, at most 1: locally typical sampling"),
    ("repetition-penalty", float, "above 0, at most 10; 1 is off"),
    ("presence-penalty", float, "-2 to 2, for tokens that the answer has"),
    ("frequency-penalty", float, "-2 to 2, for each time that the answer has a token"),
    ("seed", whole(0, 64), "fixes the random stream"),
)
OPTION_NAMES = (
    *(name.replace("-", "_") for name, _, _ in _NUMBERS),
    "logit_bias",
    "stop",
    "stop_token_ids",
    "include_stop_in_output",
    "ignore_eos",
    "priority",
    "n",
    "idempotency_key",
    "resumable",
    "hold",
)
"""Of options that an argument gives as they are."""


def add_generation(parser: argparse.ArgumentParser) -> None:
    """What ``generate`` and ``chat`` have in common."""
    parser.add_argument("--model", help="the model (default: the only one that is served)")
    for name, kind, text in _NUMBERS:
        metavar = "X" if kind is float else "N"
        parser.add_argument(f"--{name}", type=kind, metavar=metavar, help=text)
    parser.add_argument(
        "--logit-bias",
        type=_bias,
        action=_Merge,
        metavar="TOKEN=X",
        help="adds -100 to 100 to the logit of a token id; may be given again",
    )
    parser.add_argument(
        "--stop", action="append", metavar="TEXT", help="ends the answer; may be given again"
    )
    parser.add_argument(
        "--stop-token-id",
        dest="stop_token_ids",
        type=_COUNT,
        action="append",
        metavar="N",
        help="ends the answer; may be given again",
    )
    parser.add_argument(
        "--include-stop",
        dest="include_stop_in_output",
        action="store_true",
        default=None,
        help="keep the stop string that ended it",
    )
    parser.add_argument(
        "--ignore-eos", action="store_true", default=None, help="go on behind the model's own end"
    )
    add_output(parser)
    add_constraint(parser)
    parser.add_argument("--priority", choices=["batch", "normal", "high", "critical"])
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="longest time from acceptance to the end",
    )


def add_request(parser: argparse.ArgumentParser) -> None:
    """What only a single request has, and no conversation."""
    parser.add_argument(
        "--n",
        type=_COUNT,
        metavar="N",
        help="choices; the first comes as it is generated, the others whole behind it",
    )
    parser.add_argument(
        "--idempotency-key",
        metavar="KEY",
        help="the same key and request again are answered by the first run, and not run twice",
    )
    parser.add_argument(
        "--resumable",
        action="store_true",
        default=None,
        help="go on for a while when the connection is gone (headrace attach)",
    )
    parser.add_argument(
        "--hold",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="wait for a worker where none serves the model (the default), or be refused at once",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """What the answer carries beside text."""
    parser.add_argument(
        "--top-logprobs",
        type=_COUNT,
        metavar="N",
        help="log probabilities with so many alternatives, in the facts that --json prints",
    )
    parser.add_argument(
        "--logprobs", action="store_true", default=None, help="log probabilities, for --json"
    )
    parser.add_argument(
        "--prompt-logprobs",
        action="store_true",
        default=None,
        help="log probabilities of the prompt, for --json",
    )
    parser.add_argument(
        "--echo", action="store_true", default=None, help="repeat the prompt before the answer"
    )


def output_of(arguments: argparse.Namespace) -> gen.OutputOptions | None:
    """The output options that were asked for; None for none."""
    names = ("logprobs", "top_logprobs", "prompt_logprobs", "echo")
    given = {name: getattr(arguments, name) for name in names}
    wanted = {name: value for name, value in given.items() if value is not None}
    return gen.OutputOptions(**wanted) if wanted else None


class _Merge(argparse.Action):
    """Collects pairs into one mapping."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        """Add a pair to those that were given before."""
        assert isinstance(values, tuple)
        known: dict[int, float] = getattr(namespace, self.dest) or {}
        setattr(namespace, self.dest, {**known, values[0]: values[1]})


def _bias(text: str) -> tuple[int, float]:
    token_id, _, value = text.partition("=")
    try:
        return int(token_id), float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not TOKEN=NUMBER") from None
