"""JSON reads the same whether orjson is installed or not."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdspec.fields.codecs.text import FastReader, read_json_with_stdlib

TEXTS = [
    b"123456789012345678901234567890",
    b"[18446744073709551615, 18446744073709551616, -9223372036854775809]",
    b"-0",
    b"-0.0",
    b"[1e400, -1e400]",
    b"Infinity",
    b'"\\ud800"',
    b"\xef\xbb\xbf1",
    b'"\xed\xa0\x80"',
    '"é"'.encode("utf-16"),
    '{"a": 1}'.encode("utf-16-le"),
    b'{"a": 1, "a": 2}',
    b"0.1234567890123456789012",
    b'"\x7f"',
    b"1e-400",
    b" [] ",
    b"",
    b"[1,]",
    b'"\x01"',
    b"nul",
    b'"\xff"',
]


def outcome(read: Any, text: bytes) -> str:
    """The value to the last bit, or that there is none."""
    try:
        return repr(read(text))
    except ValueError:
        return "error"


def orjson_like(text: bytes) -> Any:
    """What orjson does, for machines without it: strict, and floats for integers beyond 64 bits."""

    def integer(digits: str) -> float:
        value = int(digits)
        return value if -(2**63) <= value < 2**64 else float(value)

    def refuse(constant: str) -> float:
        raise ValueError(constant)

    value = json.loads(text.decode(), parse_int=integer, parse_constant=refuse)
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    return value


def readers() -> list[Any]:
    fast = [FastReader(orjson_like)]
    try:
        import orjson
    except ImportError:
        return fast
    return [*fast, FastReader(orjson.loads)]


@pytest.mark.parametrize("text", TEXTS)
def test_json_reads_as_in_the_standard_library(text: bytes) -> None:
    for read in (read_json_with_stdlib, *readers()):
        assert outcome(read, text) == outcome(json.loads, text)


def test_nan_is_a_float() -> None:
    for read in (read_json_with_stdlib, *readers()):
        assert math.isnan(read(b"[NaN]")[0])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=10,
)


@given(VALUES, st.booleans())
def test_both_read_any_value_the_same(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    for read in (read_json_with_stdlib, *readers()):
        assert repr(read(text)) == repr(json.loads(text))
