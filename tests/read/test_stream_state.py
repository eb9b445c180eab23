import json

import pytest

from wdspec.planning.order import Delays, Stretch
from wdspec.read.source import SIZE, StreamState, pack_slot, unpack_slot, write_last

LANES = tuple((7 + i, (1 << 36) + i, 1_000_000 + i) for i in range(31))
STATES = [
    StreamState(),
    StreamState(7, 1 << 40, 1 << 40),
    StreamState(40, 1 << 36, (1 << 36) - 5, 0, LANES),
    StreamState(1, 512, 600, 0, ((0, 1024, 2),)),
    StreamState(3, 10, 14, 30, ((1, 0, 0), (2, 512, 1)), (Stretch(40, 16, 2), Stretch(60, 20, 4))),
    StreamState(3, 0, 0),
    StreamState(3, 7, 0, 7),
]


def test_a_slot_packs_and_unpacks():
    assert len(pack_slot(STATES[:2])) == 2 * SIZE
    assert unpack_slot(pack_slot(STATES)) == STATES
    assert [unpack_slot(state.pack()) for state in STATES] == [[state] for state in STATES]


def test_a_packed_state_is_advanced_to_the_next_sample():
    packed = bytearray(STATES[4].pack())
    write_last(packed, 77)
    assert unpack_slot(packed) == [STATES[4]._replace(last=77)]


def test_a_state_in_json_has_small_nonnegative_numbers():
    assert [StreamState.from_numbers(state.numbers()) for state in STATES] == STATES
    assert StreamState().numbers() == [0, 0, 0, 0, 0]
    assert STATES[3].numbers() == [1, 512, 178, 0, 1, 1, 1024, 2]
    assert STATES[4].numbers()[3:] == [21, 2, 2, 0, 0, 1, 512, 1, 40, 16, 2, 60, 20, 4]
    assert min(number for state in STATES for number in state.numbers()) >= 0


@pytest.mark.parametrize(
    "numbers",
    [
        [],
        [0, 0, 0],
        [0, 0, 0, 0, -1],
        [0, 0, 0, 0, 1],
        [0, 0, 0, 0, 0, 1],
        [0, 0, 0.5, 0, 0],
        [1 << 63, 0, 0, 0, 0],
    ],
)
def test_invalid_numbers_are_rejected(numbers):
    with pytest.raises(ValueError, match=r"lanes|place|shorter|longer"):
        StreamState.from_numbers(numbers)


def test_a_state_of_thirty_two_open_shards_is_under_a_kilobyte():
    assert len(json.dumps(STATES[2].numbers())) < 1024


def test_a_started_shard_continues_with_the_numbers_it_started_with():
    delays = Delays(1, "a", 100)
    state = StreamState(3, 1000, 1050, 0, ((2, 512, 1),))
    until = delays.next_free(delays.key(0), 1050)
    once = state.for_plan_with_other_sizes(0, delays, 4)
    assert until > 1050
    assert once.stretches == (Stretch(until, 100, 4),)
    # Changed again before a sample was yielded: only the newest numbers apply after it.
    assert once.for_plan_with_other_sizes(0, Delays(1, "a", 30), 2).stretches == once.stretches
    later = once._replace(last=until + 50)
    after = Delays(1, "a", 30).next_free(delays.key(0), until + 50)
    assert later.for_plan_with_other_sizes(0, Delays(1, "a", 30), 2).stretches == (
        *once.stretches,
        Stretch(after, 30, 2),
    )


def test_new_numbers_apply_immediately_before_the_first_sample():
    delays = Delays(1, "a", 100)
    assert StreamState().for_plan_with_other_sizes(0, delays, 4) == StreamState()
    assert StreamState(4, 7, -1, 0, ((2, 0, 0), (3, 0, 0))).for_plan_with_other_sizes(
        0, delays, 2
    ) == StreamState(2, 7)
    under_way = StreamState(4, 7, -1, 0, ((2, 512, 1), (3, 0, 0)))
    assert under_way.for_plan_with_other_sizes(0, delays, 2) == under_way
