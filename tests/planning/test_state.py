import json

from wdspec.planning.stream_state import SIZE, StreamState, pack_slot, unpack_slot

LANES = tuple((7 + i, (1 << 36) + i, 1_000_000 + i) for i in range(31))
STATES = [
    StreamState(),
    StreamState(7, 1 << 40, 3, 9, 1 << 50, 1000, 12),
    StreamState(9, 1 << 36, 1_000_000, 4, 1 << 40, 1000, 3, LANES),
    StreamState(1, 512, 1, lanes=((0, 1024, 2),)),
]


def test_a_slot_packs_and_unpacks():
    assert len(pack_slot(STATES[:2])) == 2 * SIZE < 200
    assert unpack_slot(pack_slot(STATES)) == STATES
    assert [StreamState.unpack(state.pack()) for state in STATES] == STATES


def test_json_has_the_numbers_of_a_state_and_of_its_lanes():
    assert [StreamState.from_numbers(state.numbers()) for state in STATES] == STATES
    assert STATES[1].numbers() == list(STATES[1][:7])
    assert STATES[3].numbers() == [1, 512, 1, 0, 0, -1, 0, -1, 1024, 2]


def test_a_state_of_thirty_two_open_shards_is_under_a_kilobyte():
    assert len(json.dumps(STATES[2].numbers())) < 1024
