"""What may be said where on the command line."""

import io
from typing import TYPE_CHECKING, cast

import pytest

from headrace.cli.arguments import build_parser
from headrace.cli.exits import UsageError
from headrace.cli.options import generation_options, only_model
from headrace.cli.tenants import forget
from headrace.cli.terminal import Terminal
from headrace.client.requests import build_request
from headrace.v1 import inference_service_pb2 as pb

if TYPE_CHECKING:
    from headrace.client import Client


class Serving:
    """A client of a server with models, named with the numbers of their workers."""

    def __init__(self, **workers: int) -> None:
        self._workers = workers

    def models(self) -> list[pb.Model]:
        return [pb.Model(name=name, workers=count) for name, count in self._workers.items()]


@pytest.mark.parametrize("workers", [{"a": 1}, {"a": 2, "gone": 0}, {"a": 0}])
def test_the_only_model_that_is_served_needs_no_name(workers: dict[str, int]):
    """One whose workers have left does not stand beside it, unless there is nothing else."""
    assert only_model(cast("Client", Serving(**workers))).name == "a"


@pytest.mark.parametrize("workers", [{"a": 1, "b": 1}, {"a": 0, "b": 0}])
def test_of_several_models_one_is_named(workers: dict[str, int]):
    """Both are told."""
    with pytest.raises(UsageError, match="--model: a, b"):
        only_model(cast("Client", Serving(**workers)))


@pytest.mark.parametrize(
    "words",
    [
        ("--target", "there:1", "dead", "list"),
        ("dead", "--target", "there:1", "list"),
        ("dead", "list", "--target", "there:1"),
        ("dead", "show", "ID", "--target", "there:1"),
        ("status", "--target", "there:1"),
    ],
)
def test_the_server_may_be_named_anywhere(words: tuple[str, ...]):
    """Before the command, behind it and behind its action; what is not repeated stays as it was said."""
    assert build_parser("here:1").parse_args(words).target == "there:1"


def test_without_a_server_the_default_counts():
    """Nothing behind the command undoes the default."""
    assert build_parser("here:1").parse_args(["dead", "list"]).target == "here:1"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["generate", "x", "--seed", "-1"],
            "--seed: must be from 0 to 18446744073709551615, is -1",
        ),
        (
            ["generate", "x", "--max-tokens", "5000000000"],
            "--max-tokens: must be from 0 to 4294967295",
        ),
        (["chat", "--top-k", "-2"], "--top-k: must be from -1 to 2147483647, is -2"),
        (["chat", "--top-k", "few"], "--top-k: 'few' is not a whole number"),
        (["generate", "x", "--timeout", "1e12"], "--timeout: must be from 0.0 to 31536000.0"),
        (["generate", "x", "--timeout", "nan"], "--timeout: must be above 0, is nan"),
        (["generate", "x", "--timeout", "soon"], "--timeout: 'soon' is not a number"),
        (["attach", "ID", "--timeout", "0"], "--timeout: must be above 0, is 0"),
        (["attach", "ID", "--from-seq", "-1"], "--from-seq: must be from 0 to"),
        (["drain", "W", "--grace", "-1"], "--grace: must be from 0.0 to 31536000.0, is -1.0"),
    ],
)
def test_a_value_that_no_request_can_hold_is_refused_by_flag(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
):
    """Wrong usage like any other: status 2, and the flag is named."""
    with pytest.raises(SystemExit) as ended:
        build_parser("here:1").parse_args(words)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_drain_may_leave_no_time():
    """Whatever runs moves at once."""
    assert build_parser("here:1").parse_args(["drain", "W", "--grace", "0"]).grace == 0


@pytest.mark.parametrize("command", ["models", "status", "cancel", "attach", "drain", "generate"])
def test_each_command_says_what_it_does(command: str, capsys: pytest.CaptureFixture[str]):
    """In its own help, above its arguments."""
    with pytest.raises(SystemExit):
        build_parser("here:1").parse_args([command, "--help"])
    paragraphs = capsys.readouterr().out.split("\n\n")
    assert paragraphs[1].endswith(".")


def test_every_flag_of_a_generation_reaches_its_field():
    """A request holds what was said, and leaves unset what was not."""
    words = (
        "generate hi --min-p 0.1 --typical-p 0.9 --repetition-penalty 1.2 --presence-penalty -1"
    )
    words += " --frequency-penalty 0.5 --min-tokens 3 --max-tokens 9 --seed 4 --stop-token-id 5"
    words += " --echo --top-logprobs 2 --logprobs --prompt-logprobs"
    words += " --stop-token-id 6 --include-stop --ignore-eos --logit-bias 7=-3 --logit-bias 8=2.5"
    arguments = build_parser("here:1").parse_args(words.split())
    request = build_request("hi", **generation_options(arguments, "m"))
    sampling, stop = request.sampling, request.stop
    assert (sampling.min_p, sampling.typical_p, sampling.repetition_penalty) == (0.1, 0.9, 1.2)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (-1, 0.5)
    assert dict(sampling.logit_bias) == {7: -3, 8: 2.5}
    assert (stop.min_tokens, stop.max_tokens, [*stop.stop_token_ids]) == (3, 9, [5, 6])
    assert stop.include_stop_in_output
    assert stop.ignore_eos
    assert not sampling.HasField("temperature")
    output = request.output
    assert (output.echo, output.logprobs, output.top_logprobs, output.prompt_logprobs) == (
        True, True, 2, True,
    )  # fmt: skip


def test_flags_of_a_single_request_reach_their_fields():
    """Of `generate`; a conversation has none of them, and what is not said stays unset."""
    words = "generate hi --n 3 --idempotency-key k --resumable --no-hold"
    arguments = build_parser("here:1").parse_args(words.split())
    request = build_request("hi", **generation_options(arguments, "m"))
    assert (request.sampling.n, request.idempotency_key, request.resumable) == (3, "k", True)
    assert request.HasField("hold")
    assert not request.hold
    for words in ("generate hi", "chat"):
        plain = build_parser("here:1").parse_args(words.split())
        request = build_request("hi", **generation_options(plain, "m"))
        assert not request.HasField("hold")
        assert not request.sampling.HasField("n")


@pytest.mark.parametrize("bias", ["7", "x=1", "7=much"])
def test_a_bias_that_is_none_is_a_usage_error(bias: str):
    """Told by the parser, before anything is sent."""
    with pytest.raises(SystemExit) as exit_info:
        build_parser("here:1").parse_args(["generate", "hi", "--logit-bias", bias])
    assert exit_info.value.code == 2


def test_what_an_answer_must_look_like(tmp_path):
    """Each kind by its flag, texts from files too, and never two kinds at once."""
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    kinds = {
        ("--regex", "a+"): ("regex", "a+"),
        ("--json-schema", f"@{schema}"): ("json_schema", '{"type": "object"}'),
        ("--json-object",): ("json_object", True),
        ("--grammar", 'root ::= "x"'): ("grammar", 'root ::= "x"'),
    }
    for words, (kind, value) in kinds.items():
        arguments = build_parser("here:1").parse_args(["generate", "hi", *words])
        constraint = build_request("hi", **generation_options(arguments, "m")).constraint
        assert constraint.WhichOneof("kind") == kind
        assert getattr(constraint, kind) == value
    words = ["generate", "hi", "--choice", "yes", "--choice", "no"]
    options = generation_options(build_parser("here:1").parse_args(words), "m")
    assert [*build_request("hi", **options).constraint.choice.options] == ["yes", "no"]
    with pytest.raises(SystemExit):
        build_parser("here:1").parse_args([*words, "--json-object"])
    missing = build_parser("here:1").parse_args(["generate", "hi", "--grammar", "@/none"])
    with pytest.raises(UsageError):
        generation_options(missing, "m")


class Forgetful:
    """A client that keeps what it is to forget."""

    def __init__(self) -> None:
        self.admin = self
        self.asked: dict[str, str] = {}

    def forget(self, **asked: str) -> int:
        self.asked = asked
        return 1


@pytest.mark.parametrize(
    ("said", "request_id", "tenant"),
    [(["r"], "r", ""), (["--request", "r"], "r", ""), (["--tenant", "t"], "", "t")],
)
def test_what_is_forgotten_is_named_in_one_way(said: list[str], request_id: str, tenant: str):
    """A request in its place or by name, or a tenant."""
    client, streams = Forgetful(), [io.StringIO() for _ in range(3)]
    arguments = build_parser("host:1").parse_args(["forget", *said])
    assert forget(cast("Client", client), arguments, Terminal(*streams)) == 0
    assert client.asked == {"request_id": request_id, "tenant": tenant}


@pytest.mark.parametrize(
    "said", [[], ["r", "--request", "s"], ["--request", "r", "--tenant", "t"]]
)
def test_what_is_forgotten_is_one_thing(said: list[str], capsys: pytest.CaptureFixture[str]):
    """Neither nothing nor two."""
    with pytest.raises(SystemExit):
        build_parser("host:1").parse_args(["forget", *said])
    assert "--request" in capsys.readouterr().err
