"""Fields of OpenAI's that this API does not have: refused, unless what they ask for changes nothing."""

from collections.abc import Mapping
from typing import Any

NEUTRAL_CHAT: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "function_call": ("none",),
    "functions": ([],),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True,),
    "prediction": (),
    "prompt_cache_key": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "reasoning_effort": ("none",),
    "safety_identifier": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "tool_choice": ("none",),
    "tools": ([],),
    "verbosity": ("medium",),
    "web_search_options": (),
}
NEUTRAL_COMPLETION: dict[str, tuple[Any, ...]] = {"best_of": (1,), "suffix": ("",)}
# A client sends a message that it got as it came, with what is null in it, or an empty list.
NEUTRAL_MESSAGE: dict[str, tuple[Any, ...]] = {
    "annotations": ([],),
    "audio": (),
    "function_call": (),
    "refusal": (),
    "tool_call_id": (),
    "tool_calls": ([],),
}
NEUTRAL_STREAM_OPTIONS: dict[str, tuple[Any, ...]] = {"include_obfuscation": (False,)}
INSTEAD_NATIVE = {
    "max_completion_tokens": "max_tokens",
    "metadata": "labels",
    "response_format": "json_schema or json_object",
    "user": "labels",
}
"""What ``/api/generate`` has for fields of OpenAI's."""


def neutral_schemas(fields: Mapping[str, tuple[Any, ...]]) -> dict[str, dict[str, Any]]:
    """The schema of each: the values that change nothing."""
    return {
        name: {"enum": [None, *values], "description": "passes only where it changes nothing"}
        for name, values in fields.items()
    }
