"""A draft model beside a model, both as they are loaded: the same tokens, refusals by name, memory."""

import dataclasses
import json
from pathlib import Path

import pytest

from common.clock import monotonic_s
from common.domain import Quantization, SamplingParams, StopConditions
from common.server import CannotServe
from tests.support.tiny_models import make_tiny_model
from worker.engine.draft import DraftProposer
from worker.engine.engine import Engine
from worker.engine.job import Job, Ticket
from worker.engine.limits import EngineLimits
from worker.engine.model_settings import RunnerKind
from worker.engine.speculation import Speculation
from worker.engine.step_times import StepTimes
from worker.loading import Loaded, load
from worker.settings import SpeculationKind, WorkerSettings
from worker.text.texts import Texts

pytestmark = pytest.mark.timeout(600)

PROMPTS = ("the mill ", "a wheel turns and turns and turns", "water")
MAX_TOKENS = 24
EXACT: dict[str, object] = {"quantization": Quantization.NONE, "runner": RunnerKind.GENERIC}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model, and one of another mind."""
    base = tmp_path_factory.mktemp("draft")
    model = make_tiny_model("llama", base / "model")
    return model, make_tiny_model("llama", base / "other", seed=1)


def loaded(model: Path, draft: Path | None, **changes: object) -> Loaded:
    settings = WorkerSettings(
        schedulers=("127.0.0.1:1",),
        model=str(model),
        quantization=Quantization.INT8,
        kv_memory_mb=2,
        context_tokens=256,
        max_seqs=2,
        threads=1,
    )
    if draft is not None:
        settings = dataclasses.replace(
            settings,
            speculation=SpeculationKind.DRAFT,
            draft_model=str(draft),
            draft_quantization=Quantization.INT8,
            draft_kv_memory_mb=1,
        )
    return load(dataclasses.replace(settings, **changes), lambda _: None)  # type: ignore[arg-type]


def tokens_of(found: Loaded, temperature: float) -> tuple[list[list[int]], int, int]:
    """What each prompt is answered with, tokens guessed and of these right. Guessing is free here."""
    speculation = None
    if found.speculation is not None:
        speculation = Speculation(found.speculation.proposer, StepTimes.flat(1000.0))
    limits = EngineLimits(2, 64, 16, 256, frozenset({2}))
    texts = Texts(found.card.tokenizer_json, ())
    engine = Engine(
        found.runner, limits, texts.text_of, monotonic_s, found.costs, speculation=speculation
    )
    answers: dict[str, list[int]] = {}
    for i, prompt in enumerate(PROMPTS):
        answers[f"r{i}"] = []
        stop = StopConditions(MAX_TOKENS, ignore_eos=True)
        sampling = SamplingParams(i, temperature)
        engine.submit(Job(Ticket(f"r{i}", 1, 1), tuple(prompt.encode()), sampling, stop))
    guessed = right = 0
    while engine.has_work:
        report = engine.step()
        for output in report.outputs:
            answers[output.ticket.request_id] += output.token_ids
        guessed += report.guessed_tokens
        right += report.accepted_tokens
    return list(answers.values()), guessed, right


@pytest.mark.parametrize(
    ("changes", "least_right"),
    [({}, 0.9), (EXACT | {"draft_quantization": Quantization.NONE}, 0.9), (EXACT, 0.1)],
    ids=["lean", "generic", "generic and lean"],
)
def test_no_token_differs(
    folders: tuple[Path, Path], changes: dict[str, object], least_right: float
) -> None:
    """Whatever the draft thinks; it is right as often as it thinks alike, also where tokens are drawn by chance."""
    alone = {name: value for name, value in changes.items() if name != "draft_quantization"}
    plain = loaded(folders[0], None, **alone)
    same, different = (loaded(folders[0], draft, **changes) for draft in folders)
    for temperature in (0.0, 1.0):
        expected, _, _ = tokens_of(plain, temperature)
        tokens, guessed, right = tokens_of(same, temperature)
        assert tokens == expected
        assert right >= least_right * guessed > 0
        tokens, guessed, right = tokens_of(different, temperature)
        assert tokens == expected
        assert right < 0.5 * guessed


def test_another_tokenizer_is_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """By the names of both models."""
    model, _ = folders
    draft = make_tiny_model("llama", tmp_path / "strange")
    path = draft / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocab = tokenizer["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(
        CannotServe, match="--draft-model: strange has another tokenizer than model"
    ):
        loaded(model, draft)


def test_a_draft_that_is_not_there_is_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """As any model is, with the setting that named it."""
    with pytest.raises(CannotServe, match=r"--draft-model: .*nowhere"):
        loaded(folders[0], tmp_path / "nowhere")


def test_its_memory_is_beside_the_models(folders: tuple[Path, Path]) -> None:
    """It has the blocks that its setting pays for, and more than there is is refused though no page is taken yet."""
    model, _ = folders
    proposer = loaded(model, model).speculation.proposer  # type: ignore[union-attr]
    assert isinstance(proposer, DraftProposer)
    assert proposer.pool.num_blocks > 0
    larger = loaded(model, model, draft_kv_memory_mb=2).speculation
    assert larger is not None
    assert larger.pool is not None
    assert larger.pool.num_blocks // 2 == proposer.pool.num_blocks
    with pytest.raises(CannotServe, match=r"--draft-model: .*KV blocks .* take"):
        loaded(model, model, draft_kv_memory_mb=1 << 30)
