"""What each feature of a request, and of the engine, costs in tokens/s: the default model, many sequences that decode side by side.

python -m tests.bench.features [--seqs 64] [--tokens 48] [--repeats 3] [--only NAME,…]

Tokens a second of CPU time of one thread, so that other work on the machine counts only for the caches that it takes. Each
feature is measured between two runs without any, and compared with those.
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

from common.domain import (
    ConstraintKind,
    OutputConstraint,
    OutputOptions,
    SamplingParams,
    StopConditions,
)
from common.prefix_keys import root_key
from tests.bench.quality import texts
from worker.engine.engine import Engine
from worker.engine.job import Job, Ticket
from worker.engine.limits import EngineLimits
from worker.engine.model_settings import KvDtype, ModelSettings, RunnerKind
from worker.engine.speculation import Speculation
from worker.grammar.compiler import GrammarCompiler
from worker.model.checkpoint import find_checkpoint
from worker.model.load import LoadedModel, load_model
from worker.text.texts import Texts

PROMPT_TOKENS = 128
BLOCK_SIZE = 16
PENALTIES: dict[str, Any] = {
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.2,
    "presence_penalty": 0.1,
}
SCHEMA = '{"type": "array", "minItems": 100, "items": {"type": "string", "minLength": 20}}'

Change = Callable[[Job], Job]


def drawn(**params: Any) -> Change:
    """Jobs that draw so."""
    return lambda job: dataclasses.replace(
        job, sampling=dataclasses.replace(job.sampling, **params)
    )


def told(**options: Any) -> Change:
    """Jobs that are told so much."""
    return lambda job: dataclasses.replace(job, output=OutputOptions(**options))


def stopped(*stop: str) -> Change:
    """Jobs that look for these."""
    return lambda job: dataclasses.replace(job, stop=dataclasses.replace(job.stop, stop=stop))


REQUESTS: dict[str, Change] = {
    "greedy": drawn(temperature=0.0),
    "three penalties": drawn(**PENALTIES),
    "logit bias, 100 tokens": drawn(logit_bias=dict.fromkeys(range(100), -1.0)),
    "top-k 50, top-p 0.9": drawn(top_k=50, top_p=0.9),
    "min-p 0.05": drawn(min_p=0.05),
    "typical 0.9": drawn(typical_p=0.9),
    "all filters and penalties": drawn(
        top_k=50, top_p=0.9, min_p=0.01, typical_p=0.95, **PENALTIES
    ),
    "logprobs": told(logprobs=True),
    "20 top logprobs": told(logprobs=True, top_logprobs=20),
    "16 stop strings": stopped(*(f"never {n} met" for n in range(16))),
    "prefix cache": lambda job: dataclasses.replace(job, prefix_root=root_key(tenant="t")),
    "4 choices of a prompt": drawn(n=4),
}
GRAMMARS = {
    "grammar: JSON schema": OutputConstraint(ConstraintKind.JSON_SCHEMA, SCHEMA),
    "grammar: regex": OutputConstraint(ConstraintKind.REGEX, "([a-z]{3,9} ){1000}"),
}
ENGINES: dict[str, dict[str, Any]] = {
    "quality of every answer": {"limits": {"quality_sample": 1.0}},
    "speculation by lookup": {"speculation": True},
}


class Bench:
    """A model, and requests of so many sequences to run through it."""

    def __init__(
        self, model: LoadedModel, seqs: int, tokens: int, prompts: list[list[int]]
    ) -> None:
        """Nothing runs yet."""
        self.model = model
        self._texts = Texts(model.card.tokenizer_json)
        self._compiler = GrammarCompiler(model.card)
        self._seqs, self._tokens, self._prompts = seqs, tokens, prompts

    def with_grammar(self, constraint: OutputConstraint) -> Change:
        """Jobs that follow it."""
        grammar = self._compiler.compiled(constraint).result()
        return lambda job: dataclasses.replace(job, constraint=constraint, grammar=grammar)

    def tokens_per_s(
        self,
        change: Change = lambda job: job,
        limits: dict[str, Any] | None = None,
        *,
        speculation: bool = False,
    ) -> float:
        """Run the requests; tokens per second of CPU time in steps that only decode."""
        engine = Engine(
            self.model.runner,
            EngineLimits(self._seqs, 512, 512, 1024, frozenset(), **(limits or {})),
            self._texts.text_of,
            time.monotonic,
            speculation=Speculation() if speculation else None,
        )
        jobs = [change(self._job(number)) for number in range(self._seqs)]
        for job in jobs[: self._seqs // jobs[0].sampling.n]:
            engine.submit(job)
        num_tokens, spent_s = 0, 0.0
        while engine.has_work:
            began_s = time.process_time()
            report = engine.step()
            if not report.prefill_tokens and report.decode_seqs == self._seqs:
                spent_s += time.process_time() - began_s
                num_tokens += sum(len(output.token_ids) for output in report.outputs)
        return num_tokens / spent_s

    def _job(self, number: int) -> Job:
        stop = StopConditions(max_tokens=self._tokens, ignore_eos=True)
        prompt = tuple(self._prompts[number])
        return Job(Ticket(f"r{number}", 1, 1), prompt, SamplingParams(seed=number), stop)


def main() -> None:
    """Print a line for each feature."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seqs", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    each = -(-(PROMPT_TOKENS + options.tokens + 1) // BLOCK_SIZE)
    settings = ModelSettings(
        kv_blocks=options.seqs * (each + 1),
        runner=RunnerKind.LEAN,
        context_tokens=1024,
        threads=1,
        max_seqs=options.seqs,
    )
    prompts = texts(find_checkpoint(settings, lambda _: None), options.seqs, PROMPT_TOKENS)

    def bench(**changes: Any) -> Bench:
        model = load_model(dataclasses.replace(settings, **changes), lambda _: None)
        return Bench(model, options.seqs, options.tokens, prompts)

    plain, large_kv = bench(), bench(kv_dtype=KvDtype.MODEL)
    runs: dict[str, Callable[[], float]] = {
        name: lambda change=change: plain.tokens_per_s(change)  # type: ignore[misc]
        for name, change in REQUESTS.items()
    }
    runs |= {
        name: lambda one=one: plain.tokens_per_s(plain.with_grammar(one))  # type: ignore[misc]
        for name, one in GRAMMARS.items()
    }
    runs |= {name: lambda how=how: plain.tokens_per_s(**how) for name, how in ENGINES.items()}  # type: ignore[misc]
    runs["keys and values in 16 bits"] = large_kv.tokens_per_s
    wanted = [name for name in runs if name in options.only.split(",") or not options.only]
    plain.tokens_per_s()
    for name in wanted:
        ratios, rates = [], []
        for _ in range(options.repeats):
            before, rate, after = plain.tokens_per_s(), runs[name](), plain.tokens_per_s()
            rates.append(rate)
            ratios.append(rate / ((before + after) / 2) - 1)
        print(
            f"{name:28} {statistics.median(rates):7.0f} tokens/s {statistics.median(ratios):+7.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
