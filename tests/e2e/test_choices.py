"""Several choices of one prompt over the wire: complete, distinct, repeatable, ended together, restored one by one (B44)."""

import asyncio
import re
from dataclasses import dataclass, field

import pytest

from headrace.client import AsyncClient, AsyncTokenStream, HeadraceError
from headrace.v1 import generation_pb2 as gen
from tests.support.outcomes import TokenCount
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

N = 4
MAX_TOKENS = 80
FLAGS = [*SIMULATED, "--step-ms", "10", "--kv-blocks", "128", "--max-seqs", "16"]
PROMPT = "Tell four stories about a mill and its river. " * 3


@dataclass
class Choice:
    """What a stream brought of one choice."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[gen.Logprobs] = field(default_factory=list)
    finish: gen.ChoiceFinished | None = None

    @property
    def answer(self) -> tuple[list[int], str, int]:
        assert self.finish is not None
        return self.token_ids, self.text, self.finish.finish_reason


@dataclass
class Told:
    """Everything a stream brought."""

    choices: dict[int, Choice] = field(default_factory=dict)
    usage: gen.Usage = field(default_factory=gen.Usage)
    next_seq: int = 0
    error: HeadraceError | None = None


async def listen(
    stream: AsyncTokenStream,
    told: Told,
    until_tokens: int | None = None,
    count: TokenCount | None = None,
) -> None:
    """Take events; seq runs over all choices without gap or repeat, and exactly the last finish is the last."""
    try:
        async for event in stream:
            match event.WhichOneof("event"):
                case "delta":
                    choice = told.choices.setdefault(event.delta.index, Choice())
                    assert choice.finish is None
                    assert event.seq == told.next_seq
                    told.next_seq += event.count
                    choice.token_ids += event.delta.token_ids
                    choice.text += event.delta.text
                    choice.logprobs += event.delta.logprobs
                    assert event.usage.completion_tokens == told.next_seq
                case "finish":
                    choice = told.choices.setdefault(event.finish.index, Choice())
                    assert choice.finish is None
                    choice.finish = event.finish
                    ended = [c for c in told.choices.values() if c.finish is not None]
                    assert event.finish.last == (len(ended) == N)
                    told.usage.CopyFrom(event.usage)
            if count is not None:
                count.add(event.count)
            if until_tokens is not None and told.next_seq >= until_tokens:
                return
    except HeadraceError as error:
        told.error = error


async def ask(client: AsyncClient, count: TokenCount | None = None, **options) -> tuple[Told, str]:
    told = Told()
    options = {
        "max_tokens": MAX_TOKENS,
        "seed": 7,
        "temperature": 1.0,
        "ignore_eos": True,
    } | options
    async with client.stream(PROMPT, model="sim", n=N, **options) as stream:
        await listen(stream, told, count=count)
    return told, stream.request_id or ""


def answers(told: Told) -> list[tuple[list[int], str, int]]:
    assert told.error is None, told.error
    assert sorted(told.choices) == list(range(N))
    return [told.choices[index].answer for index in range(N)]


async def test_choices_are_complete_distinct_and_repeatable():
    """Stream, unary call and record say the same; usage counts the prompt once and every token of every choice."""
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            told, request_id = await ask(client)
            first = answers(told)
            assert len({tuple(tokens) for tokens, _, _ in first}) == N
            assert told.usage.prompt_tokens == len(PROMPT)
            assert told.usage.completion_tokens == N * MAX_TOKENS == told.next_seq
            again, _ = await ask(client, bypass_prefix_cache=True)
            assert answers(again) == first
            unary = await client.generate(
                PROMPT, model="sim", n=N, max_tokens=MAX_TOKENS, seed=7, temperature=1.0,
                ignore_eos=True,
            )  # fmt: skip
            assert [c.index for c in unary.choices] == list(range(N))
            assert [(list(c.token_ids), c.text, c.finish_reason) for c in unary.choices] == first
            record = await client.get_request(request_id)
            assert record.usage == told.usage
            assert [list(c.token_ids) for c in record.result.choices] == [t for t, _, _ in first]
            stopped, _ = await ask(client, stop=["a "])
            for (_, text, reason), (_, whole, _) in zip(answers(stopped), first, strict=True):
                at = whole.find("a ")
                assert text == (whole if at < 0 else whole[:at])
                assert (reason == gen.FINISH_REASON_STOP) == (at >= 0)
        eventually(lambda: stack.metric(stack.workers[0], "headrace_kv_cache_usage_ratio") == 0)
        eventually(lambda: stack.pending_entries() == 0)


async def test_choices_have_their_own_grammar_and_scores():
    """Each keeps to the constraint by itself, with a score and alternatives for each of its tokens; unary says the same."""
    options = {
        "constraint": gen.OutputConstraint(regex="([a-f]{3}-){8}end"),
        "output": gen.OutputOptions(logprobs=True, top_logprobs=2),
        "ignore_eos": False,
    }
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            told, _ = await ask(client, **options)
            streamed = answers(told)
            unary = await client.generate(
                PROMPT, model="sim", n=N, max_tokens=MAX_TOKENS, seed=7, temperature=1.0, **options
            )
    assert len({text for _, text, _ in streamed}) == N
    for choice, (token_ids, text, reason) in zip(unary.choices, streamed, strict=True):
        assert re.fullmatch("([a-f]{3}-){8}end", text)
        assert reason == gen.FINISH_REASON_STOP
        assert (list(choice.token_ids), choice.text) == (token_ids, text)
        scores = told.choices[choice.index].logprobs
        assert [one.chosen.token_id for one in scores] == token_ids
        assert all(len(one.top) == 2 for one in scores)
        assert list(choice.logprobs) == scores


async def test_cancel_midway_stops_all():
    """One finish for each choice, exact usage in the record, nothing held; a request that can never fit is refused."""
    with running_stack(worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            told = Told()
            async with client.stream(
                PROMPT, model="sim", n=N, max_tokens=300, temperature=1.0, ignore_eos=True
            ) as stream:
                await listen(stream, told, until_tokens=30)
                await client.cancel(stream.request_id or "")
                await listen(stream, told)
            assert told.error is not None
            assert told.error.code == "CANCELLED"
            assert sorted(told.choices) == list(range(N))
            reasons = {choice.finish.finish_reason for choice in told.choices.values()}
            assert reasons == {gen.FINISH_REASON_CANCELLED}
            record = await client.get_request(stream.request_id or "")
            assert record.usage == told.usage
            assert told.usage.completion_tokens == told.next_seq
            worker = stack.workers[0]
            eventually(lambda: stack.metric(worker, "headrace_kv_cache_usage_ratio") == 0)
            eventually(lambda: stack.metric(worker, "headrace_num_requests_running") == 0)
            for options in ({"n": 4, "max_tokens": 600}, {"n": 16, "max_tokens": 200}):
                with pytest.raises(HeadraceError) as refused:
                    await client.generate(PROMPT, model="sim", **options)
                assert refused.value.code == "INVALID_ARGUMENT"
            one = await client.generate(PROMPT, model="sim", n=1, max_tokens=600, ignore_eos=True)
            assert one.usage.completion_tokens == 600


async def test_every_unfinished_choice_is_restored():
    """Worker, leading scheduler and gateway die while choices are at different places, some of them over."""
    with running_stack(schedulers=2, gateways=2, workers=2, worker_flags=FLAGS) as stack:
        async with AsyncClient(stack.targets) as client:
            options = {"stop": ["b"], "resumable": True}
            undisturbed = [answers((await ask(client, seed=s, **options))[0]) for s in range(6)]
            assert len({len(t) for choices in undisturbed for t, _, _ in choices}) > 4
            count, expected = TokenCount(), sum(len(t) for c in undisturbed for t, _, _ in c)
            load = [asyncio.create_task(ask(client, count, seed=s, **options)) for s in range(6)]
            for victim in (stack.workers[0], stack.leading_scheduler(), stack.gateways[0]):
                await count.more(expected // 6)
                victim.kill()
            disturbed = [await one for one in load]
            for (told, _), expected in zip(disturbed, undisturbed, strict=True):
                assert answers(told) == expected
                assert told.usage.completion_tokens == sum(len(t) for t, _, _ in expected)
                assert told.usage.prompt_tokens == len(PROMPT)
        eventually(lambda: stack.pending_entries() == 0)
