"""What a large body holds is counted before it is parsed; signs within texts do not count."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import InvalidRequest
from gateway.http import json_size
from gateway.http.json_size import (
    MAX_CONTAINERS,
    MAX_NAMES,
    MAX_VALUES,
    JsonSizes,
    check_in_pieces,
)

TEXTS = st.text(st.sampled_from('ab"\\,:[]{}\n\u00e9'), max_size=12)
VALUES = st.recursive(
    st.integers(0, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)


def fits(body: bytes) -> bool:
    """Whether it may be parsed."""
    try:
        list(check_in_pieces(body))
    except InvalidRequest:
        return False
    return True


def counts(value: object) -> tuple[int, int, int]:
    """Commas, colons and brackets that it is written with."""
    inner = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(inner, list):
        return 0, 0, 0
    rows = [counts(one) for one in inner]
    commas, colons, brackets = (sum(row[place] for row in rows) for place in range(3))
    own = len(inner) if isinstance(value, dict) else 0
    return commas + max(0, len(inner) - 1), colons + own, brackets + 1


@pytest.mark.parametrize("ascii_only", [True, False])
@given(value=VALUES)
def test_it_counts_what_the_parser_finds(ascii_only: bool, value: object) -> None:
    """Whatever stands in texts, however it is escaped, and wherever a piece ends."""
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    commas, colons, brackets = counts(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_size, "_BYTES_AT_ONCE", 7)
        for name, number, least in (
            ("MAX_VALUES", commas, 1),
            ("MAX_NAMES", colons, 0),
            ("MAX_CONTAINERS", brackets, 0),
        ):
            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(json_size, name, number + least)
                assert fits(body)
                inner.setattr(json_size, name, number + least - 1)
                assert not fits(body)


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b",".join([b"1"] * (MAX_VALUES + 1)) + b"]",
        b"[" + b", ".join([b"[]"] * (2 * MAX_CONTAINERS)) + b"]",
        b"[" * (5 * MAX_CONTAINERS),
        b"{" + b",".join(b'"%d":1' % n for n in range(MAX_NAMES + 1)) + b"}",
    ],
)
async def test_more_than_any_request_holds_is_refused(body: bytes) -> None:
    """By all that counts."""
    with pytest.raises(InvalidRequest, match="must hold at most"):
        await JsonSizes().check(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt":"' + b"a,b:[c]{d}" * 400_000 + b'"}',
        b'{"prompt":"' + b'\\"\\\\,[' * 500_000 + b'"}',
        b'{"prompt":[' + b",".join([b"1"] * MAX_VALUES)[:-2] + b"]}",
        b'"' * 4_000_000,
        b'"' + b"\\" * 4_000_001,
    ],
)
async def test_texts_and_what_fits_pass(body: bytes) -> None:
    """And what is no JSON, which the parser says."""
    await JsonSizes().check(body)
