"""The simulated model's "logits": which token follows, as a pure function of a hash and the last tokens.

Most tokens are letters and spaces. Now and then a character of two to four bytes begins, and then its bytes follow
one token at a time, so that whoever turns tokens into text is put to work.
"""

from collections.abc import Sequence

from worker.engine.runner import Draw
from worker.simulated.vocabulary import EOS_ID, IM_END_ID, VOCAB_SIZE

_LETTERS = b"etaoinshrdlucmfwypvbgkjqxz"
_CLOSE_EVERY = 5
_CLOSING = frozenset(b'"]}0') | {EOS_ID, IM_END_ID}
_PLAIN = frozenset(b'"[]{}:,.-0123456789') | frozenset(_LETTERS) | {EOS_ID, IM_END_ID}
_MULTI_BYTE_EVERY = 24
_SPACE_EVERY = 6
_NEWLINE_EVERY = 97
# First byte -> the ranges of the bytes after it: à to ÿ, Hiragana and Katakana, faces.
_FOLLOWERS: dict[int, tuple[tuple[int, int], ...]] = {
    0xC3: ((0xA0, 0xBF),),
    0xE3: ((0x81, 0x82), (0x81, 0xBF)),
    0xF0: ((0x9F, 0x9F), (0x98, 0x98), (0x80, 0xBF)),
}
_FIRST_BYTES = tuple(_FOLLOWERS)
LOOK_BACK_TOKENS = max(len(followers) for followers in _FOLLOWERS.values())


def choose_token(value: int, last_tokens: Sequence[int], *, eos_every: int) -> int:
    """The token that a hash ``value`` chooses behind ``last_tokens`` (``LOOK_BACK_TOKENS`` of them suffice)."""
    expected = _expected_range(last_tokens)
    if expected is not None:
        low, high = expected
        return low + value % (high - low + 1)
    value, eos_lot = divmod(value, max(eos_every, 1))
    if eos_every and eos_lot == 0:
        return EOS_ID
    for every, tokens in (
        (_MULTI_BYTE_EVERY, _FIRST_BYTES),
        (_NEWLINE_EVERY, b"\n"),
        (_SPACE_EVERY, b" "),
    ):
        value, lot = divmod(value, every)
        if lot == 0:
            return tokens[value % len(tokens)]
    return _LETTERS[value % len(_LETTERS)]


def choose_allowed(value: int, draw: Draw) -> int | None:
    """A token that the draw's grammar allows; now and then one that closes what is open, so that outputs end."""
    assert draw.constraint is not None
    if draw.constraint.failure:
        return None
    bits = int.from_bytes(draw.constraint.allowed(), "little")
    allowed = [token_id for token_id in range(VOCAB_SIZE) if bits >> token_id & 1]
    later = [token_id for token_id in allowed if token_id not in draw.forbidden]
    allowed = later or allowed
    value, lot = divmod(value, _CLOSE_EVERY)
    if lot == 0:
        closing = [token_id for token_id in allowed if token_id in _CLOSING]
        allowed = closing or allowed
    plain = [token_id for token_id in allowed if token_id in _PLAIN]
    allowed = plain or allowed
    return allowed[value % len(allowed)] if allowed else None


def _expected_range(last_tokens: Sequence[int]) -> tuple[int, int] | None:
    """The bytes that may come next, if the tokens end inside one of our characters."""
    for length in range(1, min(LOOK_BACK_TOKENS, len(last_tokens)) + 1):
        followers = _FOLLOWERS.get(last_tokens[-length])
        if followers is not None:
            return followers[length - 1] if length <= len(followers) else None
    return None
