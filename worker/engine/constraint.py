"""What the engine asks of a grammar (`worker.grammar` has them): which tokens may follow, and when nothing may."""

from typing import Protocol


class Constraint(Protocol):
    """Where one sequence stands in its grammar; a pure function of the tokens accepted."""

    @property
    def is_over(self) -> bool:
        """Whether the output is complete and nothing but an end may follow."""
        ...

    @property
    def failure(self) -> str:
        """Why the sequence cannot go on; '' while it can."""
        ...

    def accept(self, token_id: int) -> None:
        """Add a token. One that may not follow is a failure, and stays one."""
        ...

    def allowed(self) -> bytes:
        """One bit for each token of the vocabulary, the lowest first: whether it may follow."""
        ...


class Grammar(Protocol):
    """A compiled grammar, shared by all sequences that follow it."""

    def start(self) -> Constraint:
        """At its beginning."""
        ...
