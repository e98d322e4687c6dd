"""The arithmetic behind a comparison with peers, and the line that drivers speak."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.measure import Answer, Figures, figures_of
from tests.bench.peers import in_process
from tests.bench.peers.contender import Contender
from tests.bench.peers.contenders import CONTENDERS
from tests.bench.peers.in_process import driven
from tests.bench.peers.report import OURS, Result, ratios, table, write

ECHO_DRIVER = """
import time
from driver_lines import own_output, serve

lines = own_output()
print("what a library prints is no answer")
serve("1.2", lambda prompts, concurrency, count: [(1.0, [(1.5, count)]) for _ in prompts], lines)
"""


def test_figures_count_each_token_once():
    """Two tokens in one arrival share its gap; the first token of a request has none."""
    answers = [
        Answer(10.0, [(10.5, 1), (10.9, 2), (11.0, 1)]),
        Answer(10.0, [(11.0, 2), (12.0, 2)]),
    ]
    figures = figures_of(answers, 2, 4)
    assert figures.output_tokens_per_s == pytest.approx(8 / 2.0)
    assert figures.ttft_p50_ms == pytest.approx(750)
    # Gaps: 0.2, 0.2, 0.1 and 0, 0.5, 0.5.
    assert figures.itl_p50_ms == pytest.approx(200)


def test_figures_refuse_an_answer_of_another_length():
    """An engine that stops early would look fast."""
    with pytest.raises(AssertionError, match="3 tokens came where 4"):
        figures_of([Answer(0.0, [(1.0, 3)])], 1, 4)


def result(engine: str, bits: int, rate: float, itl_p99_ms: float) -> Result:
    """One contender, one round at concurrency 8."""
    contender = Contender(f"{engine} {bits}", engine, str(bits), bits, CONTENDERS[0].bring_up)
    figures = Figures(8, 64, rate, 1.0, 1.0, 1.0, itl_p99_ms)
    return Result(contender, "1", [1.0], [100.0], {8: [figures]})


def test_what_failed_is_kept_and_compared_with_nothing(tmp_path: Path) -> None:
    """A peer that broke off at its second level: its figures are in the file, beside ratios of the others alone."""
    broken = result("a", 8, 900.0, 1.0)
    broken.peak_mb.clear()
    broken.failures.append("round 1: gone")
    results = [result(OURS, 8, 300.0, 20.0), broken, result("b", 8, 150.0, 40.0)]
    whole = [each for each in results if each.is_whole([8])]
    write(tmp_path, "name", "model", 7, results, whole)
    found = json.loads((tmp_path / "name.json").read_text())
    assert [ratio["fastest_peer"] for ratio in found["ratios"]] == ["b 8"]
    assert [contender["failures"] for contender in found["contenders"]] == [
        [],
        ["round 1: gone"],
        [],
    ]
    assert found["contenders"][1]["rounds"]["8"][0]["output_tokens_per_s"] == 900.0
    assert (tmp_path / "name.png").exists()


def test_ratios_are_against_the_best_peer_of_as_many_bits():
    """Int8 is not measured by a 4-bit peer; each figure has its own best peer."""
    results = [
        result(OURS, 8, 300.0, 20.0),
        result("a", 8, 100.0, 80.0),
        result("b", 16, 150.0, 40.0),
        result("c", 4, 900.0, 1.0),
    ]
    (ratio,) = ratios(results)
    assert ratio["fastest_peer"] == "b 16"
    assert ratio["throughput_ratio"] == pytest.approx(2.0)
    assert ratio["itl_p99_ratio"] == pytest.approx(0.5)
    assert table(results).count("\n") == 1 + len(results)


@pytest.mark.parametrize("engine", sorted({contender.engine for contender in CONTENDERS} - {OURS}))
def test_every_peer_can_be_installed(engine):
    """The script has a case for it."""
    script = Path(in_process.__file__).with_name("install.sh").read_text()
    assert f"\n  {engine})\n" in script


def test_the_script_refuses_a_peer_that_it_does_not_know(tmp_path):
    """Nothing is installed for a name that is misspelt."""
    script = Path(in_process.__file__).with_name("install.sh")
    copy = tmp_path / "tests/bench/peers/install.sh"
    copy.parent.mkdir(parents=True)
    copy.write_text(script.read_text())
    done = subprocess.run(
        ["bash", copy, "tgi"], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 2
    assert "unknown peer: tgi" in done.stderr
    assert not (tmp_path / ".venv/peers/tgi/installed").exists()


async def test_a_driver_answers_each_job_with_one_line(tmp_path, monkeypatch):
    """What its libraries print goes elsewhere."""
    folder = Path(in_process.__file__).parent
    (tmp_path / "driver_lines.py").write_text((folder / "driver_lines.py").read_text())
    (tmp_path / "echo_driver.py").write_text(ECHO_DRIVER)
    monkeypatch.setattr(in_process, "__file__", str(tmp_path / "in_process.py"))
    async with driven(Path(sys.executable), "echo_driver.py") as running:
        assert running.version == "1.2"
        for _ in range(2):
            answers = await running.run([[1], [2]], 1, 7)
            assert answers == [Answer(1.0, [[1.5, 7]])] * 2
        assert running.peak_mb() > 1
