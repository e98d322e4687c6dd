"""`headrace bench`: workloads, figures, comparisons and plots, without a server."""

import argparse
import dataclasses
import io
import itertools
import json
import math

import pytest

from headrace.bench.plots import write_plot
from headrace.bench.results import HEAD, Results, ResultsError, comparison, row
from headrace.bench.samples import Level, Objective, Sample, percentile_ms
from headrace.bench.workload import WorkloadError, from_file, made_up
from headrace.cli.arguments import build_parser
from headrace.cli.bench import bench
from headrace.cli.bench_arguments import levels_of, plot_path, rates_of
from headrace.cli.terminal import Terminal
from headrace.client import Client

GOOD = Sample(took_s=1.1, first_s=0.1, tokens=11)
SLOW = Sample(took_s=4.0, first_s=3.0, tokens=11)
FAILED = Sample(took_s=0.2, first_s=None, tokens=0, error="QUEUE_FULL")


def level(load: float = 8, samples=(GOOD, SLOW, FAILED), **fields) -> Level:
    objective = Objective(first_s=0.5, per_token_s=0.2)
    made = Level.of(load, list(samples), 2.0, objective, is_open=False)
    return dataclasses.replace(made, **fields)


def test_made_up_prompts_are_the_same_for_a_seed_and_share_no_prefix():
    """Two runs are comparable; a prefix cache helps neither."""
    one, two = (
        list(itertools.islice(made_up(3, prompt_words=20, max_tokens=5), 50)) for _ in "ab"
    )
    assert one == two
    starts = {str(asked.prompt).split()[0] for asked in one}
    assert len(starts) == 50
    assert {asked.max_tokens for asked in one} == {5}


def test_a_workload_file_goes_round(tmp_path):
    """Prompts and conversations, each with its own length where it says one."""
    file = tmp_path / "work.jsonl"
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    file.write_text(json.dumps({"prompt": "a"}) + "\n\n" + json.dumps(chat) + "\n")
    first, second, third = itertools.islice(from_file(file, 9), 3)
    assert (first.prompt, first.max_tokens) == ("a", 9)
    assert (second.prompt, second.max_tokens) == ([("user", "hi")], 3)
    assert third == first


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "not json",
        '{"prompt": 5}',
        '{"prompt": "a", "messages": []}',
        '{"prompt": "a", "max_tokens": 0}',
        '{"prompt": "a", "temperature": 1}',
        '{"messages": [{"role": "user"}]}',
    ],
)
def test_a_wrong_workload_is_named(tmp_path, text):
    """File and line, before anything is sent."""
    file = tmp_path / "work.jsonl"
    file.write_text(text)
    with pytest.raises(WorkloadError, match=r"work\.jsonl"):
        from_file(file, 1)


def test_figures_of_a_level():
    """Rates over its time, percentiles of what was answered, good ones by both objectives."""
    made = level()
    assert (made.requests, made.errors) == (3, 1)
    assert made.requests_per_s == 1.0
    assert made.tokens_per_s == 11.0
    assert made.goodput_per_s == 0.5
    assert made.first_p50_ms == pytest.approx(100)
    assert made.first_p99_ms == pytest.approx(3000)
    assert made.per_token_p50_ms == pytest.approx(100)


def test_percentiles_are_measured_values():
    """By rank, nothing in between; nothing measured is no number."""
    assert percentile_ms([0.003, 0.001, 0.002], 50) == 2.0
    assert percentile_ms([0.001] * 99 + [5.0], 99) == 1.0
    assert math.isnan(percentile_ms([], 50))


def test_results_survive_a_file(tmp_path):
    """Also where nothing was answered."""
    results = Results("m", "w", [level(), level(16, samples=[FAILED])])
    results.write(tmp_path / "r.json")
    again = Results.read(tmp_path / "r.json")
    assert [row(one) for one in again.levels] == [row(one) for one in results.levels]
    assert len(row(again.levels[1])) == len(HEAD)
    assert "-" in row(again.levels[1])
    (tmp_path / "other.json").write_text("{}")
    for name in ("other.json", "missing.json"):
        with pytest.raises(ResultsError, match=name):
            Results.read(tmp_path / name)


def test_a_comparison_pairs_equal_levels():
    """What only one run has is left out; changes are relative."""
    before = Results("m", "w", [level(8, tokens_per_s=100.0), level(4)])
    after = Results("m", "w", [level(8, tokens_per_s=150.0), level(16)])
    ((load, tokens, *_),) = comparison(before, after)
    assert load == "8"
    assert tokens == "150.0 (+50.0%)"


def test_runs_without_a_common_level_are_not_compared_in_silence(tmp_path):
    """An empty table would look like no difference."""
    Results("m", "w", [level(8), level(2, is_open=True)]).write(tmp_path / "before.json")
    Results("m", "w", [level(16)]).write(tmp_path / "after.json")
    words = ["bench", "--load", f"{tmp_path}/after.json", "--compare", f"{tmp_path}/before.json"]
    terminal = Terminal(io.StringIO(), io.StringIO(), io.StringIO())
    arguments = build_parser("localhost:1").parse_args(words)
    with Client("localhost:1") as client:
        bench(client, arguments, terminal)
    assert "before.json has the levels 8, 2/s" in terminal.error.getvalue()
    assert terminal.output.getvalue().count("LOAD") == 1


def test_plots_are_files_that_need_nothing_else(tmp_path):
    """A picture, or a page with the picture and the table inside it, escaped."""
    runs = [
        ("before", Results("<m>", "w", [level(8), level(16)])),
        ("now", Results("m", "w", [level(8)])),
    ]
    write_plot(runs, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    write_plot(runs, tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert "data:image/png;base64," in page
    assert "&lt;m&gt;" in page
    assert "<m>" not in page


def test_levels_are_a_list_or_a_ramp():
    """Doubling up to the last; anything else is refused by its flag."""
    assert levels_of("1,8,32") == [1, 8, 32]
    assert levels_of("3..20") == [3, 6, 12]
    assert rates_of("0.5,2") == [0.5, 2.0]
    for parse, text in (
        (levels_of, "0"),
        (levels_of, "a..b"),
        (levels_of, "0..8"),
        (rates_of, "-1"),
        (rates_of, "inf"),
        (plot_path, "x.gif"),
    ):
        with pytest.raises(argparse.ArgumentTypeError):
            parse(text)
