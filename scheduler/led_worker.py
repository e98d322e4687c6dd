"""A connected worker as the loop sees it: what it runs, and what it can still take.

A worker's credit is as old as its message. An assignment that it had not seen when it counted has to be subtracted
here, and one that it had seen must not be. Its first output shows that it was seen; so does the second credit after
it (a step that was under way when the assignment came counts without it, the next one with it). Credits that come
while that step still goes on are as old as its beginning.

A worker that has not been heard for longer than it takes, or whose step goes on and on, gets nothing more: it would wait
there and not here, where another worker may have it.

What runs will grow: the blocks that it probably still needs are held back for it, or newcomers would take them and the
worker would have to give one of them back.
"""

from dataclasses import dataclass

from common.kv_need import may_roll, rolling_blocks
from common.wire.session import Credit
from scheduler.led_request import LedRequest
from scheduler.planning.fit import WorkerView
from scheduler.planning.output_lengths import OutputLengths
from scheduler.worker_need import Kind
from scheduler.worker_registry.session import WorkerSession

# Credits come with every step; two steps faster than this may both have been on their way already.
_MIN_UNSEEN_S = 0.05

# In life signs. Half of one is for a busy network; a step may be long, but what joins behind it starts no sooner.
_SILENT_BEATS = 1.5
_LONG_STEP_BEATS = 2


@dataclass(slots=True)
class _Unseen:
    tokens: int
    cached_tokens: int
    sent_s: float
    num_credits: int = 0


class LedWorker:
    """State of one session; only the loop's task changes it."""

    def __init__(self, session: WorkerSession, beat_s: float) -> None:
        """Nothing runs yet, and it gets nothing until its first credit. It gives a life sign each ``beat_s``."""
        self.session = session
        self._beat_s = beat_s
        self._heard_s = float("-inf")
        self.running: dict[str, LedRequest] = {}
        self.is_draining = False
        self.last_step_age_ms = 0
        # No place, though all memory is free: nobody is to see a full pool where nothing runs.
        self.credit = Credit(0, session.hello.kv_blocks, 0)
        self._unseen: dict[str, _Unseen] = {}
        self._alone = ""
        self._view: WorkerView | None = None
        self._was_stuck = False

    @property
    def worker_id(self) -> str:
        """The worker's id."""
        return self.session.worker_id

    @property
    def kind(self) -> Kind:
        """What decides which requests it may run."""
        hello = self.session.hello
        return Kind(hello.fingerprint, hello.model_revision)

    def add(self, request: LedRequest, now_s: float, cached_tokens: int = 0) -> None:
        """A request is going to this worker, which probably has some of its tokens."""
        self.changed()
        self.running[request.key] = request
        if request.is_suspect:
            self._alone = request.key
        known = request.header.prompt_tokens + request.progress.next_seq
        self._unseen[request.key] = _Unseen(known, cached_tokens, now_s)

    def remove(self, key: str) -> None:
        """A request has ended or left."""
        self.changed()
        self.running.pop(key, None)
        self._unseen.pop(key, None)

    def saw(self, key: str) -> None:
        """The worker has put out something for a request: its credits count it."""
        if self._unseen.pop(key, None) is not None:
            self.changed()

    def changed(self) -> None:
        """What planning sees of it is not up to date."""
        self._view = None

    def heard(self, now_s: float, *, step_age_ms: int) -> None:
        """The worker said something, while a step had been going on for so long (0: none, or it has just ended)."""
        self._heard_s = now_s
        self.last_step_age_ms = step_age_ms

    def is_stuck(self, now_s: float) -> bool:
        """Whether it is silent, or in a step that does not end."""
        is_silent = now_s - self._heard_s > _SILENT_BEATS * self._beat_s
        return is_silent or self.last_step_age_ms > _LONG_STEP_BEATS * self._beat_s * 1000

    def credited(self, credit: Credit, now_s: float) -> None:
        """The worker said what it can take."""
        self.credit = credit
        self.changed()
        counted_s = now_s - self.last_step_age_ms / 1000
        for key, unseen in list(self._unseen.items()):
            if self.last_step_age_ms and counted_s <= unseen.sent_s:
                continue
            unseen.num_credits += 1
            if unseen.num_credits >= 2 and now_s - unseen.sent_s >= _MIN_UNSEEN_S:
                del self._unseen[key]

    def view(self, lengths: OutputLengths, now_s: float) -> WorkerView:
        """As the planner sees it. Made again when it has changed: a plan looks at all workers, and few have."""
        draining, is_stuck = self.is_draining or self.session.is_closed, self.is_stuck(now_s)
        if (
            self._view is None
            or self._view.draining != draining
            or self._was_stuck is not is_stuck
        ):
            self._view = self._look(lengths, draining=draining, is_stuck=is_stuck)
            self._was_stuck = is_stuck
        return self._view

    def _look(self, lengths: OutputLengths, *, draining: bool, is_stuck: bool) -> WorkerView:
        hello, credit = self.session.hello, self.credit
        num_running = sum(one.num_seqs for one in self.running.values())
        free_seqs = hello.max_seqs - num_running
        if not self._unseen:
            free_seqs = min(free_seqs, credit.free_seqs)
        if is_stuck:
            free_seqs = 0
        # As the worker will count it: however long a prompt is, it takes a step at most from those behind it.
        tokens = sum(
            min(unseen.tokens - unseen.cached_tokens, hello.max_batch_tokens)
            for unseen in self._unseen.values()
        )
        held_back = sum(self._growth_blocks(one, lengths) for one in self.running.values())
        # Nobody is asked to make room where nobody listens.
        here = () if is_stuck else tuple(r for r in self.running.values() if not r.is_taking)
        return WorkerView(
            worker_id=self.worker_id,
            free_seqs=max(0, free_seqs),
            free_blocks=max(0, credit.free_blocks - held_back),
            block_size=hello.block_size,
            pending_prefill_tokens=credit.pending_prefill_tokens + tokens,
            max_batch_tokens=hello.max_batch_tokens,
            num_running=num_running,
            fingerprint=hello.fingerprint,
            draining=draining,
            kv_blocks=hello.kv_blocks,
            window_tokens=hello.window_tokens,
            model_revision=hello.model_revision,
            runs_alone=self._alone in self.running,
            running=here,
            lowest_running=min((one.priority for one in here), default=None),
            num_leaving=sum(one.is_leaving for one in here),
        )

    def _growth_blocks(self, request: LedRequest, lengths: OutputLengths) -> int:
        """Blocks that a request will take beyond those that the worker's credit counts as taken."""
        header, generated, hello = request.header, request.next_seq, self.session.hello
        size = hello.block_size
        remaining = max(0, header.max_tokens - generated)
        left = lengths.left(header.tenant, generated, remaining, request.num_choices)
        unseen = self._unseen.get(request.key)
        counted = request.known_tokens if unseen is None else 0
        # Choices share what is full of their prompt; each has a last block of its own.
        own = 0 if counted else request.num_seqs - 1
        blocks = -(-(request.known_tokens + left) // size)
        may = may_roll(request.num_seqs, hello.kv_blocks, size, hello.window_tokens)
        if may and blocks > hello.kv_blocks:  # it holds the same wherever it is
            return 0 if counted else rolling_blocks(hello.window_tokens, size)
        return blocks - -(-counted // size) + own
