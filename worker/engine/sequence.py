"""One choice of one request while the engine works on it: two numbers, and everything else derived from them.

    token_ids   │ prompt ............... │ generated ......│
    positions   0            num_computed ▲                ▲ num_known
                             in the cache │ pending: to be computed

There are no phases. A fresh prompt, a chunked prompt, a decode and a resumed answer differ in one thing only: how many
known tokens are pending. When nothing is pending behind a step, the step draws the next token.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Keys

from common.domain import FinishReason
from common.logprobs import Logprobs, TokenLogprob
from common.records import Failure
from worker.engine.answer_quality import QualityTally
from worker.engine.ending import Ending, EndRule
from worker.engine.job import Job
from worker.engine.report import Finish
from worker.engine.runner import Draw, TokenScores
from worker.engine.seen_tokens import SeenTokens
from worker.engine.text_stream import TextStream
from worker.kv.block_table import BlockTable
from worker.kv.prefix_chain import PrefixChain


class Sequence:
    """Known tokens, of which the first ``num_computed`` are in the cache."""

    def __init__(
        self,
        job: Job,
        index: int,
        rule: EndRule,
        text: TextStream,
        blocks: BlockTable,
        chain: PrefixChain | None = None,
        tally: QualityTally | None = None,
        roll_tokens: int = 0,
    ) -> None:
        """Choice ``index`` of ``job``; generated tokens are replayed, so that all state is as if never interrupted.

        With ``roll_tokens`` no more than so many of its tokens are computed at a time (``common.kv_need``).
        """
        self.job = job
        self.index = index
        self.blocks = blocks
        self.tally = tally
        self.roll_tokens = roll_tokens
        self.token_ids = list(job.prompt_token_ids)
        self.num_computed = 0
        self.num_found = 0  # of these, by others
        self.num_published = 0
        self.num_reached = 0
        self.follows: Sequence | None = None
        self._chain = chain
        self.finish: Finish | None = None
        self.prompt_logprobs = [Logprobs()] if job.scores_prompt else []
        self._rule = rule
        self._text = text
        self._constraint = job.grammar.start() if job.grammar is not None else None
        self._seen = SeenTokens(job.prompt_token_ids) if job.sampling.has_penalties else None
        for token_id in job.generated.get(index, ()):
            if self.finish is None:
                self.append(token_id)
        if self.num_generated:  # by an earlier dispatch, which computed all but the last
            self.num_reached = self.num_known - 1
        if 0 < rule.max_generated <= self.num_generated:
            self._end_by_itself(Ending(FinishReason.LENGTH))

    def keys(self, num_tokens: int) -> Keys[bytes]:
        """The prefix keys of the full blocks among its first ``num_tokens`` tokens; none if it shares nothing."""
        return () if self._chain is None else self._chain.keys(self.token_ids, num_tokens)

    @property
    def num_known(self) -> int:
        """Tokens of prompt and output."""
        return len(self.token_ids)

    @property
    def num_generated(self) -> int:
        """Tokens of the output, those of earlier dispatches included."""
        return len(self.token_ids) - len(self.job.prompt_token_ids)

    @property
    def num_pending(self) -> int:
        """Known tokens that are not in the cache."""
        return len(self.token_ids) - self.num_computed

    @property
    def num_ready(self) -> int:
        """Pending tokens that its blocks are to cover now: all, but for a text that rolls."""
        return min(self.num_pending, self.roll_tokens or self.num_pending)

    @property
    def num_to_cover(self) -> int:
        """Tokens, from the first on, whose blocks it has to have, or to have had, for the next step."""
        return self.num_computed + self.num_ready

    @property
    def is_decoding(self) -> bool:
        """Whether one token is all that is pending: the everyday case, served first."""
        return self.num_pending == 1

    @property
    def max_known(self) -> int:
        """Most tokens it can come to hold."""
        return len(self.job.prompt_token_ids) + self._rule.max_generated

    @property
    def has_known_draws(self) -> bool:
        """Whether how a token is drawn depends on the number of tokens before it, and not on which they are."""
        return self._seen is None and self._constraint is None

    def draw_behind(self, num_known: int) -> Draw | None:
        """How to draw the token behind so many; its position alone keys the generator, so a resume draws the same.

        None where nothing may be generated: the prompt alone is wanted.
        """
        if not self._rule.max_generated:
            return None
        output = self.job.output
        return Draw(
            self.job.sampling,
            self.index,
            num_known,
            seen=self._seen,
            forbidden=self._rule.forbidden(num_known - len(self.job.prompt_token_ids)),
            num_top=output.top_logprobs if output.logprobs else None if self.tally is None else 0,
            constraint=self._constraint,
        )

    def targets(self, start: int, end: int) -> list[int]:
        """Known tokens behind those at ``start`` to ``end`` whose log probabilities are wanted."""
        if not self.prompt_logprobs:
            return []
        return self.token_ids[start + 1 : min(end + 1, len(self.job.prompt_token_ids))]

    def num_repeated(self, num_tokens: int) -> int:
        """How many of its next tokens were computed before."""
        return max(0, min(num_tokens, self.num_reached - self.num_computed))

    def computed(self, num_tokens: int) -> None:
        """So many more known tokens are in the cache; ends it where the prompt is all that was wanted."""
        self.num_computed += num_tokens
        self.num_reached = max(self.num_reached, self.num_computed)
        if not self._rule.max_generated and not self.num_pending:
            self._end_by_itself(Ending(FinishReason.LENGTH))

    def scored(self, scores: Iterable[TokenScores]) -> None:
        """Log probabilities of the next tokens of the prompt."""
        first = len(self.prompt_logprobs)
        for token_id, found in zip(self.token_ids[first:], scores, strict=False):
            self.prompt_logprobs.append(self.logprobs_of(token_id, found))

    def logprobs_of(self, token_id: int, scores: TokenScores) -> Logprobs:
        """Scores as they are told, with the bytes of their tokens."""
        bytes_of = self._text.bytes_of
        return Logprobs(
            TokenLogprob(token_id, scores.logprob, bytes_of(token_id)),
            tuple(TokenLogprob(one, value, bytes_of(one)) for one, value in scores.top),
        )

    def append(self, token_id: int) -> str:
        """Add a generated token; the text that became certain with it. May end the sequence."""
        assert self.finish is None, self.finish
        self.token_ids.append(token_id)
        if self._seen is not None:
            self._seen.add(token_id)
        if self._constraint is not None:
            self._constraint.accept(token_id)
        count = self.num_generated
        ending = self._rule.of_token(token_id, count)
        text = ""
        if ending is None:
            delta = self._text.push(token_id, may_stop=self._rule.may_stop(count))
            text = delta.text
            ending = self._rule.of_text(delta.matched_stop, count, is_complete=self._is_complete)
        if ending is not None or self._text.is_refused:
            self._end_by_itself(ending)
        return text

    def _end_by_itself(self, ending: Ending | None) -> None:
        if self.finish is not None:
            return
        held = self._text.flush()
        # Asked behind the flush: what was held back may hold what is refused.
        if ending is None or self._text.is_refused:
            self.finish = Finish(FinishReason.CONTENT_FILTER, text=held)
        else:
            self.finish = Finish(ending.reason, ending.matched_stop, held)

    @property
    def _is_complete(self) -> bool:
        return self._constraint is not None and self._constraint.is_over

    def forget_computed(self) -> None:
        """It has left its blocks: everything known is to be computed, or found, again."""
        self.num_computed = self.num_found = self.num_published = 0
        self.follows = None
        # Once a token is generated, they are told.
        is_told = not self.job.scores_prompt or self.num_generated > 0
        self.prompt_logprobs = [] if is_told else [Logprobs()]

    def end(self, reason: FinishReason, failure: Failure | None = None) -> None:
        """End it for a reason from outside, unless it has ended."""
        if self.finish is None:
            self.finish = Finish(reason, text=self._text.flush(), failure=failure)
