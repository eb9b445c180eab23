"""The text of a rank's slots: exact for any numbers, short if slots are similar, refused if damaged."""

import base64
import random
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.planning.order import Stretch
from wdspec.read.source import StreamState
from wdspec.run.state import decode, encode

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
def test_it_round_trips(case):
    sources, slots = case
    assert decode(encode(slots), len(slots), sources) == slots


def test_equal_slots_take_almost_no_space():
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
def test_any_text_is_read_or_a_value_error(hostile):
    with pytest.raises((ValueError, TypeError)):
        decode(hostile, 2, 1)


def slot_at(rng, given, sources, per_shard, sizes, lanes=2):
    """A slot after about `given` samples of each source, in shards of this many samples."""
    states = []
    for _ in range(sources):
        ordinal = (given + rng.randrange(64)) // 16 * 16
        done, left = divmod(ordinal, per_shard * lanes)
        turn = done * lanes
        index = left // lanes
        open_ = tuple(
            (turn + lane, sum(sizes(rng) for _ in range(index)) * 512, index) for lane in range(lanes)
        )
        states.append(StreamState(turn + lanes, ordinal, ordinal + rng.randrange(100), lanes=open_))
    return states


def test_late_in_a_run_a_slot_takes_about_four_bytes_per_source():
    """Without guides it took seven: every number on its own."""
    rng = random.Random(0)
    slots = [
        slot_at(rng, 1_000_000 + 200_000 * (k % 2), 50, 500, lambda rng: rng.randrange(150, 250), 1)
        for k in range(8)
    ]
    written = encode(slots)
    assert decode(written, 8, 50) == slots
    assert len(written) / (8 * 50) < 5


def test_shards_of_all_sizes_are_exact():
    rng = random.Random(1)
    for _ in range(100):
        sources, per_shard = rng.randrange(1, 6), rng.randrange(1, 300)
        slots = [
            None
            if rng.random() < 0.2
            else slot_at(
                rng,
                rng.randrange(5000),
                sources,
                per_shard,
                lambda rng: rng.randrange(1, 9),
                rng.randrange(1, 9),
            )
            for _ in range(rng.randrange(1, 9))
        ]
        assert decode(encode(slots), len(slots), sources) == slots


def test_a_text_of_version_4_is_still_read():
    slots = [slot_at(random.Random(k), 1000, 3, 100, lambda rng: 3) for k in range(4)]
    rows = [state.numbers() for source in zip(*slots, strict=True) for state in source]
    columns = [[1] * 4, [len(row) for row in rows], *map(list, zip(*rows, strict=True))]
    old = text(*(column(0, 1, 63, len(each), pack(each)) for each in columns))
    assert decode(old, 4, 3) == slots


def pack(values):
    """Values in 63 bits each, the lowest bit first."""
    bits = [value >> bit & 1 for value in values for bit in range(63)]
    return np.packbits(bits).tobytes()
