"""How much KV memory a request can come to need: one rule for whoever admits it and for whoever runs it.

Where no layer of a model looks further back than a window, a text that is longer than memory *rolls*: it is computed a
window at a time, and what no token to come can see is given back meanwhile. Only a text that goes on alone rolls: choices
share their prompt, which all of them have to find complete.
"""


def shared_blocks(prompt_tokens: int, block_size: int) -> int:
    """Blocks of a prompt that its choices share.

    The block of the prompt's last token is never among them: each choice computes that token for itself, because each
    draws its first token from it.
    """
    return (prompt_tokens - 1) // block_size


def blocks_needed(prompt_tokens: int, max_tokens: int, num_choices: int, block_size: int) -> int:
    """Blocks of all choices at their full length; the last token of each is drawn and never computed."""
    longest = prompt_tokens + max_tokens
    each = -(-longest // block_size)
    shared = shared_blocks(prompt_tokens, block_size) if num_choices > 1 else 0
    return shared + num_choices * (each - shared)


def rolling_blocks(window_tokens: int, block_size: int) -> int:
    """Blocks at most of a text that rolls: a window behind the tokens that are computed, and one of those."""
    return -(-2 * window_tokens // block_size) + 1


def may_roll(num_choices: int, num_blocks: int, block_size: int, window_tokens: int) -> bool:
    """Whether texts of any length fit ``num_blocks``; ``window_tokens`` 0 is a model that sees everything."""
    if num_choices > 1 or not window_tokens:
        return False
    return rolling_blocks(window_tokens, block_size) <= num_blocks


def most_tokens(prompt_tokens: int, num_choices: int, num_blocks: int, block_size: int) -> int:
    """The largest ``max_tokens`` with which the request fits ``num_blocks``; 0 or less when none does."""
    shared = shared_blocks(prompt_tokens, block_size) if num_choices > 1 else 0
    each = shared + (num_blocks - shared) // num_choices
    return each * block_size - prompt_tokens
