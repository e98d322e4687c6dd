"""Settings: what is read, what is refused, and that everything wrong is said at once."""

import json
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass
from enum import StrEnum
from pathlib import Path

import pytest

from common.service_settings import ServiceSettings, metrics_port_setting
from common.setting_fields import at_least, between, each, host_and_port, port, setting
from common.settings import (
    SettingsError,
    describe_settings,
    read_and_check,
    read_settings,
    settings_or_exit,
)


class Colour(StrEnum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Inner:
    """A group used by composition."""

    depth: int = setting(1, help="how deep", check=at_least(0))


@dataclass(frozen=True, kw_only=True)
class Sample(ServiceSettings):
    """Every kind of field."""

    metrics_port: int = metrics_port_setting(9999)
    queue_limit: int = setting(help="requests that may wait", check=at_least(1))
    ratio: float = setting(0.5, help="a share, 100% at most", check=between(0, 1))
    eager: bool = setting(False, help="at once")
    colour: Colour = setting(Colour.RED, help="paint")
    names: tuple[str, ...] = setting((), help="who")
    home: Path | None = setting(None, help="where")
    api_key: str = setting("", help="a secret", secret=True)
    inner: Inner = Inner()

    def problems(self) -> Iterator[str]:
        """Fields that do not go together."""
        if self.eager and self.queue_limit > 100:
            yield "--eager goes with a queue of at most 100"


def read(argv: list[str], environ: dict[str, str] | None = None) -> Sample:
    return read_settings(Sample, argv, environ or {}, prog="sample")


def problems_of(argv: list[str], environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(argv, environ)
    return list(caught.value.problems)


def test_every_kind_is_read_from_the_environment():
    """Text becomes the field's type, inherited and nested fields included."""
    settings = read(
        [],
        {
            "HEADRACE_QUEUE_LIMIT": "7",
            "HEADRACE_RATIO": "0.25",
            "HEADRACE_EAGER": "Yes",
            "HEADRACE_COLOUR": "Blue",
            "HEADRACE_NAMES": "a, b,,c",
            "HEADRACE_HOME": "/srv",
            "HEADRACE_DEPTH": "3",
            "HEADRACE_LOG_LEVEL": "debug",
        },
    )
    assert (settings.queue_limit, settings.ratio, settings.eager) == (7, 0.25, True)
    assert (settings.colour, settings.names) == (Colour.BLUE, ("a", "b", "c"))
    assert (settings.home, settings.inner.depth) == (Path("/srv"), 3)
    assert settings.log_level == "debug"


def test_flags_win_over_environment_and_environment_over_defaults():
    """One order of precedence, and a default of the subclass over its base's."""
    settings = read(
        ["--queue-limit", "2", "--names", "x", "--names=y,z"],
        {"HEADRACE_QUEUE_LIMIT": "1", "HEADRACE_RATIO": "1"},
    )
    assert (settings.queue_limit, settings.ratio, settings.metrics_port) == (2, 1.0, 9999)
    assert settings.names == ("x", "y", "z")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--eager"], True),
        (["--eager=false"], False),
        (["--no-eager"], False),
        (["--eager", "--no-eager"], False),
    ],
)
def test_a_switch_stands_alone_or_takes_a_value(argv, expected):
    """The last word counts."""
    assert read(["--queue-limit=1", *argv]).eager is expected


def test_everything_wrong_is_reported_together():
    """One attempt is enough to see all mistakes, whatever their kind and source."""
    problems = problems_of(
        ["--metrics-port=70000", "--eager=perhaps", "--names", "--colour", "green", "--bogus"],
        {
            "HEADRACE_RATIO": "nan",
            "HEADRACE_DEPTH": "-1",
            "HEADRACE_QEUE_LIMIT": "5",
            "HEADRACE_NONSENSE": "1",
        },
    )
    text = "\n".join(problems)
    assert len(problems) == 10, text
    assert "HEADRACE_NONSENSE: no service knows this name" in problems, "nothing is near"
    for part in (
        "--metrics-port: must be between 0 and 65535",
        "--eager: 'perhaps' is neither",
        "--names: needs a value",
        "--colour: 'green' is not one of red, blue",
        "--bogus: unknown",
        "HEADRACE_RATIO: 'nan' is not a finite number",
        "HEADRACE_DEPTH: must be at least 0",
        "HEADRACE_QEUE_LIMIT: no service knows this name; HEADRACE_QUEUE_LIMIT?",
        "--queue-limit or HEADRACE_QUEUE_LIMIT must be given",
    ):
        assert part in text


def test_fields_that_do_not_go_together_are_refused():
    """The class has the last word on the whole."""
    assert problems_of(["--eager", "--queue-limit=101"]) == [
        "--eager goes with a queue of at most 100"
    ]


def test_a_name_of_another_service_is_fine():
    """Services share one environment."""
    environ = {"HEADRACE_TEST_TIME_SCALE": "2", "HEADRACE_QUEUE_LIMIT": "1", "PATH": "/bin"}
    assert read([], environ).queue_limit == 1


def test_an_empty_variable_counts_as_unset_and_an_empty_flag_does_not():
    """Compose files and charts leave variables empty; a person who types `--ratio=` means something."""
    assert read(["--queue-limit=1"], {"HEADRACE_RATIO": ""}).ratio == 0.5
    assert problems_of(["--queue-limit=1", "--ratio="]) == ["--ratio: '' is not a number"]


def test_flags_are_never_abbreviated():
    """A new flag must not change what an old command line means."""
    assert problems_of(["--queue-limit=1", "--rat=1"]) == ["--rat=1: unknown argument"]


def test_secrets_stay_out_of_descriptions_and_problems():
    """What is logged at the start may be read by anyone."""
    described = describe_settings(read(["--queue-limit=1", "--api-key=hunter2"]))
    assert "hunter2" not in str(described)
    assert described["queue_limit"] == 1
    assert described["depth"] == 1


def test_descriptions_are_values_that_json_has():
    """Numbers, switches, lists and nothing stay what they are; the rest is text."""
    described = describe_settings(
        read(["--queue-limit=1", "--names=a,b", "--home=/srv", "--eager"])
    )
    assert json.loads(json.dumps(described)) == described
    wanted = {"ratio": 0.5, "eager": True, "colour": "red", "names": ["a", "b"], "home": "/srv"}
    assert {name: described[name] for name in wanted} == wanted
    assert described["ready_file"] is None


@pytest.mark.parametrize("text", ["a:1", "10.0.0.1:65535", "[::1]:50052", "node-1.svc:50052"])
def test_an_address_to_dial(text):
    """A machine and a port."""
    assert host_and_port(text) is None


@pytest.mark.parametrize(
    "text", ["a", "a:", ":1", "a:0", "a:65536", "a:x", "::1:50052", "[::1]", "a:-1"]
)
def test_an_address_that_leads_nowhere_is_refused(text):
    """It is named in the complaint, in a list too."""
    assert each(host_and_port)(("fine:1", text)) == f"{text!r} is not host:port"


def test_settings_never_change():
    """Frozen, as everything that takes them relies on."""
    with pytest.raises(FrozenInstanceError):
        read(["--queue-limit=1"]).ratio = 0.1  # type: ignore[misc]


def test_help_names_every_flag_variable_and_default(capsys):
    """Nothing has to be looked up in the source."""
    with pytest.raises(SystemExit) as caught:
        read(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert caught.value.code == 0
    for part in ("--queue-limit", "HEADRACE_RATIO", "red|blue", "default 0.5", "100% at most"):
        assert part in text


def test_a_command_ends_with_code_2_and_one_line_for_each_problem(capsys):
    """What a shell and its user expect of a usage error."""
    with pytest.raises(SystemExit) as caught:
        settings_or_exit(Sample, ["--ratio=x"], {}, prog="sample")
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("sample: ") == 3


def test_a_setting_declared_twice_is_a_bug():
    """Two fields must not fight over one name."""

    @dataclass(frozen=True, kw_only=True)
    class Twice(Inner):
        inner: Inner = Inner()
        other_port: int = setting(1, help="unused", check=port)

    with pytest.raises(AssertionError, match="twice"):
        read_settings(Twice, [], {}, prog="twice")


def test_settings_can_be_checked_without_starting(capsys):
    """Status 0 and no word for good ones; bad ones as always."""
    for argv, status in ((["--queue-limit=1"], 0), (["--queue-limit=0"], 2)):
        with pytest.raises(SystemExit) as caught:
            settings_or_exit(Sample, [*argv, "--check-settings"], {}, prog="sample")
        assert caught.value.code == status
        assert bool(capsys.readouterr().err) == bool(status)


def test_what_cannot_be_read_has_its_default():
    """So that the rest can be judged, too."""
    found, problems = read_and_check(Sample, ["--queue-limit=5", "--ratio=x"], {}, prog="sample")
    assert (found.queue_limit, found.ratio) == (5, 0.5)
    assert problems == ["--ratio: 'x' is not a number"]
