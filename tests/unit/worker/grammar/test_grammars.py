"""Grammars of every kind: what may follow, when nothing may, what is refused, and what a vocabulary has to do with it."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from common.domain import ConstraintKind, OutputConstraint, SamplingParams
from common.grammars import BadGrammar, check_grammar
from tests.support.tiny_models import tiny_tokenizer
from worker.engine.model_settings import ModelSettings
from worker.engine.runner import DEAD_END, Draw, Drawn, RowFailed
from worker.grammar.compiler import GrammarCompiler
from worker.grammar.matcher import CompiledGrammar, GrammarConstraint
from worker.grammar.vocabulary import GrammarVocabulary
from worker.model.checkpoint import find_checkpoint
from worker.sampling.sampler import sample
from worker.simulated.card import simulated_card
from worker.simulated.settings import SimulatedSettings
from worker.simulated.vocabulary import EOS_ID, IM_END_ID, VOCAB_SIZE

CARD = simulated_card(SimulatedSettings())
VOCABULARY = GrammarVocabulary(CARD)
KIND = ConstraintKind
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def start(kind: ConstraintKind, text: str = "", *options: str) -> GrammarConstraint:
    return CompiledGrammar(VOCABULARY, OutputConstraint(kind, text, options)).start()


def allowed(constraint: GrammarConstraint) -> set[int]:
    bits = np.unpackbits(np.frombuffer(constraint.allowed(), np.uint8), bitorder="little")
    return set(bits[:VOCAB_SIZE].nonzero()[0].tolist())


def follows(constraint: GrammarConstraint, text: str) -> bool:
    """Whether the text may be the whole output."""
    for byte in text.encode():
        if constraint.is_over or byte not in allowed(constraint):
            return False
        constraint.accept(byte)
    return constraint.is_over or EOS_ID in allowed(constraint)


CASES = [
    (KIND.REGEX, "a(b|ü)+", (), ["ab", "aüb", "abbb"], ["a", "b", "abc", "aũ"]),
    (KIND.CHOICE, "", ("yes", "no", 'q"\\ü\n'), ["yes", "no", 'q"\\ü\n'], ["y", "yesno", ""]),
    (KIND.GRAMMAR, 'root ::= "(" root ")" | "x"', (), ["x", "((x))"], ["(x", "xx"]),
    (KIND.GRAMMAR, 'start: "a" start | "b"', (), ["b", "aab"], ["a", "ba"]),
    (KIND.JSON_OBJECT, "", (), ["{}", '{"a": [1, {"b": null}]}', '{\n  "a": 1\n}'], ["[]", "{,}"]),
    (
        KIND.JSON_SCHEMA,
        json.dumps(SCHEMA),
        (),
        ['{"name": "ü", "age": 3}', '{"name":"","age":-1}'],
        ["{}", '{"name": "a", "age": 1.5}', '{"name": "a", "age": 1, "b": 2}', '{   "name": ""'],
    ),
]


@pytest.mark.parametrize(("kind", "text", "options", "good", "bad"), CASES)
def test_exactly_the_language(kind, text, options, good, bad):
    """What the constraint describes may be written, and nothing else, byte by byte."""
    for one in good:
        assert follows(start(kind, text, *options), one), one
    for one in bad:
        assert not follows(start(kind, text, *options), one), one


def test_an_end_is_allowed_where_the_output_may_end():
    """By each token that ends a choice; special tokens never are text."""
    constraint = start(KIND.REGEX, "ab+")
    assert allowed(constraint) == {ord("a")}
    constraint.accept(ord("a"))
    constraint.accept(ord("b"))
    assert allowed(constraint) == {ord("b"), EOS_ID, IM_END_ID}
    assert not constraint.is_over
    constraint.accept(IM_END_ID)
    assert constraint.is_over


def test_a_token_that_may_not_follow_is_a_failure_for_good():
    """And the reason does not show the text."""
    constraint = start(KIND.REGEX, "ab+")
    constraint.accept(ord("x"))
    assert constraint.failure
    assert not constraint.is_over
    constraint.accept(ord("a"))
    assert constraint.failure


BAD = [
    (KIND.REGEX, "(a"),
    (KIND.REGEX, "a(?=b)"),
    (KIND.GRAMMAR, "no grammar"),
    (KIND.GRAMMAR, 'start: "a" other'),
    (KIND.GRAMMAR, "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000),
    (KIND.JSON_SCHEMA, '{"type": "nonsense"}'),
    (KIND.JSON_SCHEMA, '{"not": {"type": "string"}}'),
    (KIND.JSON_SCHEMA, '{"$ref": "https://example.org/schema"}'),
    (KIND.JSON_SCHEMA, "[]"),
    (KIND.JSON_SCHEMA, '{"items":' * 3000 + "{}" + "}" * 3000),
]


@pytest.mark.parametrize(("kind", "text"), BAD)
def test_what_cannot_be_read_is_refused_with_a_short_reason(kind, text):
    """Without a vocabulary, as a gateway does, and with one."""
    constraint = OutputConstraint(kind, text)
    with pytest.raises(BadGrammar) as by_form:
        check_grammar(constraint)
    assert 0 < len(str(by_form.value)) <= 300
    with pytest.raises(BadGrammar):
        CompiledGrammar(VOCABULARY, constraint)


@pytest.mark.timeout(600)
def test_what_costs_too_much_at_a_step_is_a_failure():
    """A small expression that stands for a huge one runs out of what a step may cost, over a real vocabulary."""
    folder = find_checkpoint(ModelSettings(), lambda _: None)
    tokenizer = (folder / "tokenizer.json").read_bytes()
    card = replace(CARD, tokenizer_json=tokenizer, vocab_size=49152, eos_token_ids=(2,))
    vocabulary = GrammarVocabulary(card)
    huge = OutputConstraint(KIND.REGEX, "((a{100}){100}){100}")
    constraint = CompiledGrammar(vocabulary, huge).start()
    (token_id,) = vocabulary.tokenizer.tokenize_str("aaaa")
    constraint.accept(token_id)
    constraint.allowed()
    assert "too many" in constraint.failure
    assert follows_tokens(vocabulary, OutputConstraint(KIND.JSON_SCHEMA, json.dumps(SCHEMA)))


def follows_tokens(vocabulary: GrammarVocabulary, constraint: OutputConstraint) -> bool:
    """Whether a valid document may be written token by token."""
    place = CompiledGrammar(vocabulary, constraint).start()
    for token_id in vocabulary.tokenizer.tokenize_str('{"name": "Größe", "age": 42}'):
        bits = np.unpackbits(np.frombuffer(place.allowed(), np.uint8), bitorder="little")
        if not bits[token_id]:
            return False
        place.accept(token_id)
    return place.is_over


def test_a_grammar_is_compiled_once():
    """Equal constraints share it; sequences do not share where they stand; bad ones stay bad."""
    compiler = GrammarCompiler(CARD)
    one = OutputConstraint(KIND.CHOICE, options=("ab", "ac"))
    first = compiler.compiled(one)
    assert compiler.compiled(OutputConstraint(KIND.CHOICE, options=("ab", "ac"))) is first
    left, right = first.result().start(), first.result().start()
    left.accept(ord("a"))
    assert left.allowed() != right.allowed()
    bad = OutputConstraint(KIND.REGEX, "(")
    for _ in range(2):
        with pytest.raises(BadGrammar):
            compiler.compiled(bad).result()


def test_other_tokenizers_work():
    """Of transformers, with special tokens at the beginning of the vocabulary."""
    fast = tiny_tokenizer()
    card = replace(
        CARD,
        tokenizer_json=fast.backend_tokenizer.to_str().encode(),
        vocab_size=384,  # larger than the tokenizer's
        eos_token_ids=(2,),
    )
    grammar = CompiledGrammar(GrammarVocabulary(card), OutputConstraint(KIND.REGEX, "[0-9]{2}"))
    constraint = grammar.start()
    for token_id in fast.encode("42", add_special_tokens=False):
        constraint.accept(token_id)
    assert constraint.is_over


def test_masks_hold_in_a_batch_and_a_dead_end_fails_alone():
    """Only allowed tokens are drawn; a row whose grammar is stuck ends with its reason, its mates draw what they would."""
    logits = torch.randn(4, VOCAB_SIZE, generator=torch.Generator().manual_seed(3)) * 4
    digits = start(KIND.REGEX, "[0-9]+")
    stuck = start(KIND.REGEX, "ab")
    stuck.accept(ord("z"))

    def draws(*constraints):
        params = [SamplingParams(i, temperature=float(i % 2)) for i in range(4)]
        return [Draw(p, 0, 7, constraint=c) for p, c in zip(params, constraints, strict=True)]

    free = sample(logits.clone(), draws(None, None, None, None))
    found = sample(logits.clone(), draws(None, digits, stuck, digits))
    assert found[0] == free[0]
    assert isinstance(found[2], RowFailed)
    assert found[2].reason == DEAD_END
    for one in (found[1], found[3]):
        assert isinstance(one, Drawn)
        assert chr(one.token_id).isdigit()
    assert sample(logits[1:2].clone(), draws(None, digits, None, None)[1:2]) == [found[1]]


def test_an_end_that_is_put_off_gives_way_where_nothing_else_may_follow():
    """A least length never makes an output break its grammar."""
    logits = torch.zeros(1, VOCAB_SIZE)
    logits[0, EOS_ID] = 9.0
    greedy = SamplingParams(0, temperature=0.0)
    open_end, closed = start(KIND.REGEX, "ab*"), start(KIND.REGEX, "ab?")
    for constraint in (open_end, closed):
        constraint.accept(ord("a"))
    closed.accept(ord("b"))
    later = (EOS_ID, IM_END_ID)
    (first,) = sample(logits.clone(), [Draw(greedy, 0, 0, forbidden=later, constraint=open_end)])
    (second,) = sample(logits.clone(), [Draw(greedy, 0, 0, forbidden=later, constraint=closed)])
    assert first == Drawn(ord("b"))
    assert second == Drawn(EOS_ID)


def test_reasons_do_not_leak_the_library():
    """No state dump in what callers see."""
    constraint = start(KIND.JSON_OBJECT)
    constraint.accept(ord("x"))
    assert not re.search(r"state|Tokens", constraint.failure)
