"""What a request may ask for: one table of all of it, in shares by which each meets every fault before long.

`ASKED` decides the answer, and is drawn once for each ask. `STOPPED` needs an answer to stop in. `VARIED` changes nothing
of the answer, and is drawn for each call. What only one way of calling uses (a key, a time limit) is in `ways`.
`test_features` fails for a field of the contract that is in no table.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.chaos.settings import ChaosSettings
from tests.support.outcomes import Outcome

_WORDS = (
    *("mill", "wheel", "water", "race", "stone", "grain", "sluice", "weir"),
    *("Mühle", "水車", "🌾"),
)
_REGEXES = ("([a-z]{2,5} ){1,40}end", "[0-9]{60}", "(mill|race|weir)+")
_SCHEMA = (
    '{"type": "object", "properties": {"mill": {"type": "string", "maxLength": 40},'
    ' "wheels": {"type": "array", "items": {"type": "integer"}, "maxItems": 20}},'
    ' "required": ["mill", "wheels"], "additionalProperties": false}'
)
# Below every special token's id, in both models.
_LETTERS = range(97, 122)
_CLASSES = (gen.PRIORITY_BATCH, gen.PRIORITY_NORMAL, gen.PRIORITY_HIGH, gen.PRIORITY_CRITICAL)


@dataclass(frozen=True)
class Feature:
    """Fields of a request that are set together: in what share of requests, and how."""

    fields: tuple[str, ...]
    """All that it may set; it need not set each of them every time."""
    share: float
    draw: Callable[[random.Random, pb.GenerateRequest, ChaosSettings], None]


def ask(rng: random.Random, settings: ChaosSettings) -> pb.GenerateRequest:
    """A request with whatever decides its answer."""
    return _with(ASKED, rng, pb.GenerateRequest(), settings)


def varied(
    rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings
) -> pb.GenerateRequest:
    """The same request as one of many callers may send it: it has the same answer."""
    return _with(VARIED, rng, request, settings)


def stopped(
    rng: random.Random, request: pb.GenerateRequest, answer: Outcome
) -> pb.GenerateRequest:
    """The same request, stopped by a piece of its own answer: a string across tokens, or a token id."""
    again = pb.GenerateRequest()
    again.CopyFrom(request)
    part = rng.choice([*answer.choices.values()])
    middle = len(part.text) // 2
    piece = part.text[middle : middle + rng.randint(2, 6)]
    if rng.random() < 0.7 and piece.strip() and "\ufffd" not in piece:
        again.stop.stop[:] = [piece, "never to be met"]
        again.stop.include_stop_in_output = rng.random() < 0.3
    elif part.token_ids:
        again.stop.stop_token_ids[:] = [part.token_ids[len(part.token_ids) // 2]]
    return again


def _with(
    features: Mapping[str, Feature],
    rng: random.Random,
    request: pb.GenerateRequest,
    settings: ChaosSettings,
) -> pb.GenerateRequest:
    made = pb.GenerateRequest()
    made.CopyFrom(request)
    for feature in features.values():
        if rng.random() < feature.share:
            feature.draw(rng, made, settings)
    return made


def _model(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    request.model = rng.choice([*settings.workers])


def _prompt(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    # The number keeps most prompts apart.
    words = f"{rng.randrange(1000)} " + " ".join(rng.choices(_WORDS, k=rng.choice([1, 5, 20, 60])))
    form = rng.random()
    if form < 0.2:
        request.prompt.token_ids.ids[:] = rng.choices(_LETTERS, k=rng.choice([1, 16, 17, 100]))
    elif form < 0.4:
        _conversation(rng, request.prompt.chat, words)
    else:
        # Half of them begin alike, for prefixes that are shared.
        request.prompt.text = f"Tell of the mill and its race. {words}" if form < 0.7 else words


def _conversation(rng: random.Random, chat: gen.ChatPrompt, words: str) -> None:
    chat.messages.add(role=gen.ROLE_SYSTEM, content="You mill.")
    if rng.random() < 0.3:
        chat.messages.add(role=gen.ROLE_USER, content="Whose mill?", name="miller")
        chat.messages.add(role=gen.ROLE_ASSISTANT, content="The miller's.")
    chat.messages.add(role=gen.ROLE_USER, content=words)
    if rng.random() < 0.3:
        chat.add_generation_prompt = rng.random() < 0.5


def _truncated(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    request.prompt.truncate_to_tokens = rng.choice([1, 7, 16, 40, 1000])


def _length(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    """Mostly answers of a second or two, now and then one that lives through several faults."""
    if settings.is_real:
        length = rng.choice([1, 8, 24, 48, 96])
    else:
        length = rng.choice([1, 5, 20, 60, 100, 150, 200, 300, 1500])
    request.stop.max_tokens = min(length, settings.longest_answer_tokens)


def _sampled(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    """Greedy or seeded: anything else has no answer to be compared with."""
    sampling = request.sampling
    if rng.random() < 0.5:
        sampling.temperature = 0.0
        return
    sampling.temperature, sampling.seed = rng.choice([0.4, 1.0, 1.5]), rng.getrandbits(63)
    sampling.top_p, sampling.top_k = rng.choice([0.8, 0.95, 1.0]), rng.choice([-1, 20, 200])


def _ignore_eos(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    request.stop.ignore_eos = True


def _choices(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    request.sampling.n = rng.choice([2, 3])


def _penalties(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    sampling = request.sampling
    sampling.repetition_penalty = rng.choice([0.9, 1.0, 1.2])
    sampling.presence_penalty = rng.choice([-0.5, 0.0, 1.0])
    sampling.frequency_penalty = rng.choice([-0.1, 0.0, 0.5])
    sampling.logit_bias[rng.choice(_LETTERS)] = rng.choice([-100.0, 2.5])


def _filters(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    request.sampling.min_p = rng.choice([0.01, 0.2])
    request.sampling.typical_p = rng.choice([0.5, 0.95])


def _not_before(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    request.stop.min_tokens = 1
    request.stop.stop_token_ids[:] = rng.sample(_LETTERS, 2)


def _scores(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    output = request.output
    output.logprobs, output.prompt_logprobs = rng.random() < 0.5, rng.random() < 0.5
    output.top_logprobs, output.echo = rng.choice([0, 0, 3]), rng.random() < 0.5


def _constraint(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    request.constraint.CopyFrom(
        rng.choice(
            [
                gen.OutputConstraint(json_object=True),
                gen.OutputConstraint(json_schema=_SCHEMA),
                gen.OutputConstraint(regex=rng.choice(_REGEXES)),
                gen.OutputConstraint(grammar='root ::= "(" root ")" | [a-z]+'),
                gen.OutputConstraint(
                    choice=gen.ChoiceList(options=["to mill", "to race", "Mühle"])
                ),
            ]
        )
    )


def _no_output(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    """The prompt alone, scored or echoed."""
    request.stop.max_tokens = 0
    request.stop.ClearField("min_tokens")
    request.output.prompt_logprobs = rng.random() < 0.5
    request.output.echo = not request.output.prompt_logprobs or rng.random() < 0.5


def _alias(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    request.model = settings.alias(request.model)


def _priority(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    request.priority = rng.choice(_CLASSES)


def _resumable(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    request.resumable = True


def _without_ids(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    request.output.token_ids = False


def _logged(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    request.client_request_id = rng.choice(["sack-1", "sack-2"])
    request.labels["mill"] = rng.choice(["lower", "upper"])


def _salted(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    request.cache_salt = rng.choice(["flour", "bran"])


def _bypass(rng: random.Random, request: pb.GenerateRequest, settings: ChaosSettings) -> None:
    request.bypass_prefix_cache = True


ASKED: Mapping[str, Feature] = {
    "model": Feature(("model",), 1.0, _model),
    "prompt": Feature(
        (
            "prompt.text",
            "prompt.token_ids.ids",
            "prompt.chat.messages.role",
            "prompt.chat.messages.content",
            "prompt.chat.messages.name",
            "prompt.chat.add_generation_prompt",
        ),
        1.0,
        _prompt,
    ),
    "end of the prompt": Feature(("prompt.truncate_to_tokens",), 0.2, _truncated),
    "length": Feature(("stop.max_tokens",), 1.0, _length),
    "draws": Feature(
        ("sampling.temperature", "sampling.seed", "sampling.top_p", "sampling.top_k"),
        1.0,
        _sampled,
    ),
    "end ignored": Feature(("stop.ignore_eos",), 0.5, _ignore_eos),
    "choices": Feature(("sampling.n",), 0.25, _choices),
    "penalties": Feature(
        (
            "sampling.repetition_penalty",
            "sampling.presence_penalty",
            "sampling.frequency_penalty",
            "sampling.logit_bias",
        ),
        0.4,
        _penalties,
    ),
    "filters": Feature(("sampling.min_p", "sampling.typical_p"), 0.2, _filters),
    "no end before": Feature(("stop.min_tokens", "stop.stop_token_ids"), 0.3, _not_before),
    "scores and echo": Feature(
        ("output.logprobs", "output.top_logprobs", "output.prompt_logprobs", "output.echo"),
        0.4,
        _scores,
    ),
    "constraint": Feature(
        (
            "constraint.json_object",
            "constraint.json_schema",
            "constraint.regex",
            "constraint.grammar",
            "constraint.choice.options",
        ),
        0.25,
        _constraint,
    ),
    "no output": Feature(
        ("stop.max_tokens", "output.prompt_logprobs", "output.echo"), 0.06, _no_output
    ),
}
"""In this order: the last changes what others have set."""

STOPPED: tuple[str, ...] = ("stop.stop", "stop.include_stop_in_output", "stop.stop_token_ids")
"""What `stopped` sets, in half of all asks."""

VARIED: Mapping[str, Feature] = {
    "alias": Feature(("model",), 0.3, _alias),
    "priority": Feature(("priority",), 1.0, _priority),
    "resumable": Feature(("resumable",), 0.5, _resumable),
    "text alone": Feature(("output.token_ids",), 0.25, _without_ids),
    "for logs": Feature(("client_request_id", "labels"), 0.2, _logged),
    "salt": Feature(("cache_salt",), 0.2, _salted),
    "no prefix cache": Feature(("bypass_prefix_cache",), 0.2, _bypass),
}
