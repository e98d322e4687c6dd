"""Following a grammar with llguidance."""

from llguidance import LLMatcher

from common.domain import OutputConstraint
from common.grammars import BadGrammar, grammar_text, limits
from worker.grammar.vocabulary import GrammarVocabulary


class CompiledGrammar:
    """A grammar over one vocabulary. Copies of it are cheap and share what was worked out."""

    def __init__(self, vocabulary: GrammarVocabulary, constraint: OutputConstraint) -> None:
        """Compiles, and works out what may come first, which may take a second.

        Raises:
            BadGrammar: it cannot be compiled within the limits.
        """
        self._first = LLMatcher(
            vocabulary.tokenizer, grammar_text(constraint), log_level=0, limits=limits()
        )
        if not self._first.is_error():
            self._first.compute_bitmask()
        if self._first.is_error():
            raise BadGrammar(" ".join(self._first.get_error().split())[:300])

    def start(self) -> "GrammarConstraint":
        """At its beginning."""
        return GrammarConstraint(self._first.deep_copy())


class GrammarConstraint:
    """Where one sequence stands; see ``worker.engine.constraint``."""

    def __init__(self, matcher: LLMatcher) -> None:
        """Nobody else may use ``matcher``."""
        self._matcher = matcher

    @property
    def is_over(self) -> bool:
        """Whether the output is complete and nothing but an end may follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def failure(self) -> str:
        """Why the sequence cannot go on."""
        if not self._matcher.is_error():
            return ""
        # Behind this the library shows its state, with the text so far.
        return self._matcher.get_error().partition("<state>")[0].strip()[:300] or "unknown"

    def accept(self, token_id: int) -> None:
        """Add a token."""
        if not self._matcher.is_error():
            self._matcher.consume_token(token_id)

    def allowed(self) -> bytes:
        """One bit for each token."""
        return self._matcher.compute_bitmask()
