"""When a choice ends by itself: the rule of stop tokens, stop strings and limits."""

from dataclasses import dataclass

from common.domain import FinishReason, MatchedStop, StopConditions


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a choice ended by itself."""

    reason: FinishReason
    matched_stop: MatchedStop | None = None


@dataclass(frozen=True, slots=True)
class EndRule:
    """Stop conditions of a request, and what the model adds to them.

    ``max_generated`` is the smaller of ``max_tokens`` and what the context leaves.
    """

    stop: StopConditions
    eos_token_ids: frozenset[int]
    max_generated: int

    def may_stop(self, num_generated: int) -> bool:
        """Whether anything but a limit may end the choice at its ``num_generated``-th token."""
        return num_generated >= self.stop.min_tokens

    def forbidden(self, num_generated: int) -> tuple[int, ...]:
        """Tokens that must not be drawn behind ``num_generated`` ones, because they would end the choice too early."""
        if self.may_stop(num_generated + 1):
            return ()
        eos = () if self.stop.ignore_eos else tuple(sorted(self.eos_token_ids))
        return (*self.stop.stop_token_ids, *eos)

    def of_token(self, token_id: int, num_generated: int) -> Ending | None:
        """The end that the token itself brings. A token that the request names wins over the model's own."""
        if not self.may_stop(num_generated):
            return None
        if token_id in self.stop.stop_token_ids:
            return Ending(FinishReason.STOP, MatchedStop(stop_token_id=token_id))
        if token_id in self.eos_token_ids and not self.stop.ignore_eos:
            return Ending(FinishReason.STOP, MatchedStop(eos_token_id=token_id))
        return None

    def of_text(
        self, matched_stop: str | None, num_generated: int, *, is_complete: bool = False
    ) -> Ending | None:
        """The end that the text brings, or the limit. A stop wins over a limit reached with it.

        ``is_complete``: by its grammar nothing may follow, whatever the least length is.
        """
        if matched_stop is not None:
            return Ending(FinishReason.STOP, MatchedStop(stop_string=matched_stop))
        if is_complete:
            return Ending(FinishReason.STOP)
        if num_generated >= self.max_generated:
            return Ending(FinishReason.LENGTH)
        return None
