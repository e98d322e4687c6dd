"""Any order of operations leaves the engine's books balanced, and everything that is open gets done."""

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common.domain import FinishReason
from common.prefix_keys import root_key
from tests.support.engines import make_engine, make_job
from tests.support.fake_clock import FakeClock
from worker.engine.costs import StepCosts
from worker.engine.draft import DraftLimits, DraftProposer
from worker.engine.speculation import Speculation
from worker.engine.step_times import StepTimes
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings

if TYPE_CHECKING:
    from worker.engine.job import Job

BLOCKS = 14
DRAFT_BLOCKS = 10
WINDOW_TOKENS = 9
PROMPTS = ["x", "xxxx", "xxxxx", "xxxxxxxxxxxx", "xxxxxxxxxxxxyyyyyyyy", "zzzzzzzz"]


class EngineMachine(RuleBasedStateMachine):
    """Submits, cancels, returns, sessions and time around steps, on blocks for little more than one request."""

    window_tokens = 0
    has_draft = False

    def __init__(self) -> None:
        super().__init__()
        draft = SimulatedRunner(SimulatedSettings(kv_blocks=DRAFT_BLOCKS, block_size=4))
        times = StepTimes.flat(0.01)
        self.proposer = DraftProposer(draft, DraftLimits(512, 512, 8), times)
        self.clock = FakeClock()
        self.engine = make_engine(
            clock=self.clock,
            kv_blocks=BLOCKS,
            block_size=4,
            max_seqs=4,
            swap_blocks=8,
            park_s=20.0,
            window_tokens=self.window_tokens,
            cache_ttl_s=50.0,
            costs=StepCosts(token_s=1.0, block_copy_s=6.0),
            speculation=Speculation(self.proposer) if self.has_draft else None,
        )
        self.open: dict[str, Job] = {}
        self.left: dict[str, int] = {}
        self.number = 0

    @rule(
        prompt=st.sampled_from(PROMPTS),
        n=st.sampled_from([1, 1, 2, 3]),
        max_tokens=st.sampled_from([1, 6, 30]),
        is_cached=st.booleans(),
        patience_s=st.sampled_from([3.0, 1000.0]),
    )
    def submit(
        self, prompt: str, n: int, max_tokens: int, is_cached: bool, patience_s: float
    ) -> None:
        self.number += 1
        job = make_job(
            f"r{self.number}",
            prompt,
            n=n,
            max_tokens=max_tokens,
            temperature=1.0,
            deadline_s=self.clock() + patience_s,
            prefix_root=root_key(tenant="t") if is_cached else None,
        )
        self.open[job.ticket.request_id] = job
        self.left[job.ticket.request_id] = n
        self.engine.submit(job)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), returns=st.booleans())
    def stop_one(self, data: st.DataObject, returns: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        if returns:
            self.engine.give_back(name, 1, "preempted")
        else:
            self.engine.cancel(name, 1, FinishReason.CANCELLED)

    @rule()
    def new_session(self) -> None:
        self.engine.reset()
        self.open.clear()
        self.left.clear()

    @rule(seconds=st.sampled_from([1, 30]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(count=st.integers(1, 12))
    def step(self, count: int) -> None:
        for _ in range(count):
            report = self.engine.step()
            for output in report.outputs:
                name = output.ticket.request_id
                if output.finish is not None:
                    self.left[name] -= 1
                    if not self.left[name]:
                        del self.open[name]
            for returned in report.returned:
                del self.open[returned.ticket.request_id]

    @invariant()
    def balanced(self) -> None:
        self.engine.check_integrity()
        self.proposer.check_integrity()
        credit = self.engine.credit
        assert 0 <= credit.free_seqs <= 4
        assert 0 <= credit.free_blocks <= BLOCKS
        assert self.engine.num_running <= 4

    def teardown(self) -> None:
        """Whatever is open is done in a bounded number of steps, and holds nothing then."""
        for _ in range(len(self.open) * 120 + 2):
            if not self.engine.has_work:
                break
            self.step(1)
        assert not self.engine.has_work
        assert not self.open
        assert self.engine.pool.num_used == 0
        assert self.proposer.pool.num_used == 0


class WindowMachine(EngineMachine):
    """The same where the model looks back only so far: what it cannot see is free."""

    window_tokens = WINDOW_TOKENS


class DraftMachine(EngineMachine):
    """The same beside a draft model with fewer blocks."""

    has_draft = True


class WindowDraftMachine(WindowMachine):
    """Both: guesses behind texts whose beginnings are given back."""

    has_draft = True


HOW = settings(max_examples=40, stateful_step_count=30, deadline=None)
EngineMachine.TestCase.settings = HOW
WindowMachine.TestCase.settings = settings(HOW, max_examples=20)
DraftMachine.TestCase.settings = settings(HOW, max_examples=20)
WindowDraftMachine.TestCase.settings = settings(HOW, max_examples=20)
TestEngine = EngineMachine.TestCase
TestEngineWithWindow = WindowMachine.TestCase
TestEngineWithDraft = DraftMachine.TestCase
TestEngineWithWindowAndDraft = WindowDraftMachine.TestCase
