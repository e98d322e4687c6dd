"""What a request may ask for besides a length, in one to three choices: drawn so that each feature meets every fault before long."""

import random
from typing import Any

from headrace.v1 import generation_pb2 as gen

_REGEXES = ("([a-z]{2,5} ){1,40}end", "[0-9]{60}", "(mill|race|weir)+")
_SCHEMA = (
    '{"type": "object", "properties": {"mill": {"type": "string", "maxLength": 40},'
    ' "wheels": {"type": "array", "items": {"type": "integer"}, "maxItems": 20}},'
    ' "required": ["mill", "wheels"], "additionalProperties": false}'
)


def random_features(rng: random.Random) -> dict[str, Any]:
    """Options; often none."""
    options: dict[str, Any] = {}
    if rng.random() < 0.25:
        options["n"] = rng.choice([2, 3])
    if rng.random() < 0.4:
        options |= _penalties(rng)
    if rng.random() < 0.2:
        options |= {"min_p": rng.choice([0.01, 0.2]), "typical_p": rng.choice([0.5, 0.95])}
    if rng.random() < 0.3:
        options["min_tokens"] = 1
        options["stop_token_ids"] = rng.sample(range(97, 122), 2)
    if rng.random() < 0.4:
        options["output"] = _output(rng)
    if rng.random() < 0.25:
        options["constraint"] = _constraint(rng)
    if rng.random() < 0.2:
        options |= {"cache_salt": rng.choice(["flour", "bran"]), "labels": {"mill": "lower"}}
    return options


def _penalties(rng: random.Random) -> dict[str, Any]:
    return {
        "repetition_penalty": rng.choice([0.9, 1.0, 1.2]),
        "presence_penalty": rng.choice([-0.5, 0.0, 1.0]),
        "frequency_penalty": rng.choice([-0.1, 0.0, 0.5]),
        "logit_bias": {rng.randrange(97, 122): rng.choice([-100.0, 2.5])},
    }


def _output(rng: random.Random) -> gen.OutputOptions:
    return gen.OutputOptions(
        logprobs=rng.random() < 0.5,
        top_logprobs=rng.choice([0, 0, 3]),
        prompt_logprobs=rng.random() < 0.5,
        echo=rng.random() < 0.5,
    )


def _constraint(rng: random.Random) -> gen.OutputConstraint:
    return rng.choice(
        [
            gen.OutputConstraint(json_object=True),
            gen.OutputConstraint(json_schema=_SCHEMA),
            gen.OutputConstraint(regex=rng.choice(_REGEXES)),
            gen.OutputConstraint(grammar='root ::= "(" root ")" | [a-z]+'),
            gen.OutputConstraint(choice=gen.ChoiceList(options=["to mill", "to race", "Mühle"])),
        ]
    )
