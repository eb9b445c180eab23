from wdspec.planning.state import SIZE, StreamState, pack_slot, unpack_slot


def test_a_slot_packs_and_unpacks():
    states = [StreamState(), StreamState(7, 1 << 40, 3, 9, 1 << 50, 1000, 12)]
    packed = pack_slot(states)
    assert len(packed) == 2 * SIZE < 200
    assert unpack_slot(packed) == states
    assert StreamState.unpack(states[1].pack()) == states[1]
