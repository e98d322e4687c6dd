"""Text of the default model's own vocabulary: every language, every cut, any ids."""

# ruff: noqa: RUF001 - letters of many scripts are what this is about

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from common.domain import OutputOptions, StopConditions
from tests.support.engines import make_job
from worker.engine.job import Job
from worker.engine.model_settings import ModelSettings
from worker.model.checkpoint import find_checkpoint
from worker.text.texts import Texts

pytestmark = pytest.mark.timeout(600)

LANGUAGES = {
    "German": "Die Mühle größtenteils über dem Fluß – „schön“!",
    "Chinese": "水車在河邊轉動，磨坊主人微笑。",
    "Japanese": "水車は川のそばで回っている。ｶﾀｶﾅ",
    "Korean": "물레방아가 강가에서 돌고 있습니다",
    "Hebrew": "טחנת המים מסתובבת ליד הנהר",
    "Arabic": "تدور طاحونة الماء بجانب النهر",
    "Hindi": "पनचक्की नदी के किनारे घूमती है",
    "Thai": "กังหันน้ำหมุนอยู่ริมแม่น้ำ",
    "families": "👨‍👩‍👧‍👦 🏳️‍🌈 👩🏽‍🚒 🇩🇪",
    "marks": "e\u0301\u0302 Z͑ͫ̓ͪ̂ͫ̽͏̴̙ 𝔐𝔦𝔩𝔩",
    "code": "\tif x:\r\n\n    return [i**2 for i in y]  # ∀x∈ℝ",
    "odd": "\x00\x7f\u200f\ufeff\uffff",
}
NUM_TOKENS = 49152


@pytest.fixture(scope="module")
def document() -> bytes:
    return (find_checkpoint(ModelSettings(), lambda _: None) / "tokenizer.json").read_bytes()


@pytest.fixture(scope="module")
def tokenizer(document: bytes) -> Tokenizer:
    return Tokenizer.from_str(document.decode())


@pytest.fixture(scope="module")
def texts(document: bytes) -> Texts:
    return Texts(document)


def job_of(prompt: list[int], *stops: str, echo: bool = False) -> Job:
    base = make_job(stop=StopConditions(max_tokens=9999, stop=stops))
    output = OutputOptions(echo=echo)
    return dataclasses.replace(base, prompt_token_ids=tuple(prompt), output=output)


def told(texts: Texts, job: Job, ids: list[int]) -> tuple[str, str, str | None]:
    """What is told token by token, what the end adds, and the stop string that was met."""
    stream, text = texts.text_of(job), ""
    for token_id in ids:
        delta = stream.push(token_id, may_stop=True)
        text += delta.text
        if delta.matched_stop is not None:
            return text, stream.flush(), delta.matched_stop
    return text, stream.flush(), None


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_cut_of_every_language(texts: Texts, tokenizer: Tokenizer, language: str) -> None:
    """Deltas are the decoding of all ids; a cut inside a character leaves one U+FFFD, at the end and not before."""
    text = LANGUAGES[language]
    ids = tokenizer.encode(text).ids
    for cut in range(len(ids) + 1):
        deltas, rest, _ = told(texts, job_of([5]), ids[:cut])
        assert deltas + rest == tokenizer.decode(ids[:cut])
        assert "\ufffd" not in deltas
        assert rest in ("", "\ufffd")
        assert text.startswith(deltas)
    assert told(texts, job_of([5]), ids)[0] == text


@settings(deadline=None, max_examples=150)
@given(ids=st.lists(st.integers(0, NUM_TOKENS - 1), max_size=25))
def test_any_ids(texts: Texts, tokenizer: Tokenizer, ids: list[int]) -> None:
    """Whatever a model draws, special tokens too, the text is that of all ids at once."""
    deltas, rest, _ = told(texts, job_of([5]), ids)
    assert deltas + rest == tokenizer.decode(ids)


@settings(deadline=None, max_examples=100)
@given(ids=st.lists(st.integers(0, 300), min_size=1, max_size=25), cut=st.integers(0, 24))
def test_an_echoed_prompt_and_its_answer_are_one_text(
    texts: Texts, tokenizer: Tokenizer, ids: list[int], cut: int
) -> None:
    """Cut anywhere between the two, single bytes included, nothing differs."""
    deltas, rest, _ = told(texts, job_of(ids[:cut], echo=True), ids[cut:])
    assert deltas + rest == tokenizer.decode(ids)


@pytest.mark.parametrize("language", LANGUAGES)
def test_stop_strings_of_every_language(texts: Texts, tokenizer: Tokenizer, language: str) -> None:
    """One to five characters from anywhere: met where they first stand, no part of them told, at no cut."""
    text = LANGUAGES[language]
    ids = tokenizer.encode(text).ids
    for start in range(len(text)):
        for length in (1, 2, 5):
            stop = text[start : start + length]
            expected = text[: text.index(stop)]
            assert told(texts, job_of([5], stop, "never met"), ids) == (expected, "", stop)
            for cut in range(len(ids)):
                deltas, _, _ = told(texts, job_of([5], stop), ids[:cut])
                assert expected.startswith(deltas)


def test_a_token_is_the_bytes_that_it_adds(texts: Texts, tokenizer: Tokenizer) -> None:
    """Joined, the bytes of a text's tokens are the text."""
    for text in LANGUAGES.values():
        assert b"".join(map(texts.bytes_of, tokenizer.encode(text).ids)).decode() == text
