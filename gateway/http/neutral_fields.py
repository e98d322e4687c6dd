"""Fields of OpenAI's that this API does not have: refused, unless what they ask for changes nothing."""

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
