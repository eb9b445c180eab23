"""The text of a rank's slots: exact for any numbers, short if they are equal, refused if damaged."""

import base64
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.planning.order import Stretch
from wdspec.read.source import StreamState
from wdspec.run.state_text import decode, encode

COUNT = st.integers(0, 2**62)
SMALL = st.integers(0, 2**40)
NUMBERS = st.tuples(COUNT, SMALL, st.integers(-1, 2**41))
LANES = st.lists(st.tuples(SMALL, COUNT, COUNT), max_size=3)
STRETCHES = st.lists(st.builds(Stretch, COUNT, COUNT, COUNT), max_size=2).map(tuple)


def state_of(numbers, lanes, stretches):
    """A state whose lanes began before its next turn."""
    turn, *rest = numbers
    lanes = tuple((max(turn - back, 0), offset, sample) for back, offset, sample in lanes)
    return StreamState(turn, *rest, rest[0] % 3 and rest[0] + 5, lanes, stretches)


@st.composite
def slots_of_a_rank(draw):
    sources = draw(st.integers(1, 4))
    state = st.builds(state_of, NUMBERS, LANES, STRETCHES)
    slot = st.none() | st.lists(state, min_size=sources, max_size=sources)
    return sources, draw(st.lists(slot, min_size=1, max_size=5))


@given(slots_of_a_rank())
@settings(deadline=None)
def test_it_reads_back_what_it_wrote(case):
    sources, slots = case
    assert decode(encode(slots), len(slots), sources) == slots


def test_equal_slots_take_next_to_nothing():
    fresh = [[StreamState()] * 50] * 8
    assert len(encode(fresh)) < 200
    assert len(encode([None] * 1000)) < 100


def column(least, divisor, bits, values, data=b""):
    return struct.pack("<qqBI", least, divisor, bits, values) + data


def text(*columns):
    return base64.b64encode(zlib.compress(b"".join(columns))).decode()


@pytest.mark.parametrize(
    "hostile",
    [
        "",
        "?",
        "AAAA",
        text(),
        text(column(0, 1, 0, 2**32 - 1)),
        text(column(1, 1, 0, 2), column(2**62, 1, 0, 2)),
        text(column(1, 1, 0, 2), column(2, 1, 0, 2), column(0, 1, 0, 2), column(0, 1, 0, 2)),
        text(column(1, 1, 255, 2, bytes(64)), column(0, 1, 0, 0)),
        text(column(0, 1, 0, 2), column(0, 1, 0, 0), b"more"),
        base64.b64encode(zlib.compress(bytes(1 << 29), 1)).decode(),
    ],
)
def test_any_text_is_read_or_is_a_value_error(hostile):
    with pytest.raises((ValueError, TypeError)):
        decode(hostile, 2, 1)
