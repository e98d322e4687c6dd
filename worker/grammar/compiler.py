"""Compiles grammars beside the step loop, one after the other, and keeps those that are asked for again."""

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

from common.domain import OutputConstraint
from common.grammars import BadGrammar
from common.model_card import ModelCard
from worker.engine.constraint import Grammar
from worker.grammar.matcher import CompiledGrammar
from worker.grammar.vocabulary import GrammarVocabulary

MAX_KEPT = 256


class GrammarCompiler:
    """The grammars of one worker, by what they ask for. One thread asks; another compiles."""

    def __init__(self, card: ModelCard) -> None:
        """Nothing is built before it is asked for."""
        self._card = card
        self._vocabulary: GrammarVocabulary | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        self._known: OrderedDict[OutputConstraint, Future[Grammar]] = OrderedDict()

    def compiled(self, constraint: OutputConstraint) -> Future[Grammar]:
        """The compiled grammar, now or soon; BadGrammar where there is none."""
        known = self._known.get(constraint)
        if known is None:
            known = self._known[constraint] = self._thread.submit(self._compile, constraint)
            if len(self._known) > MAX_KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(constraint)
        return known

    def _compile(self, constraint: OutputConstraint) -> Grammar:
        if self._vocabulary is None:
            try:
                self._vocabulary = GrammarVocabulary(self._card)
            except ValueError as error:
                raise BadGrammar(f"the model's tokenizer cannot be used: {error}") from error
        return CompiledGrammar(self._vocabulary, constraint)
