import pytest

from wdspec.errors import UsageError
from wdspec.planning.topology import Seat, Topology, slot_of_batch


def test_slots_are_numbered_rank_by_rank():
    topology = Topology(4, 3)
    assert [topology.slot(c, k) for c in range(4) for k in range(3)] == list(range(topology.slots))


def test_batches_go_round_the_canonical_workers_through_epochs():
    assert [slot_of_batch(j, Topology(1, 3)) for j in range(5)] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)]


def test_ranks_share_the_canonical_ranks():
    assert list(Seat(1, 2).canonical_ranks(Topology(8, 1))) == [4, 5, 6, 7]
    with pytest.raises(UsageError, match=r"world size of 1, 2, 4, 8"):
        Seat(0, 3).canonical_ranks(Topology(8, 1))


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_must_be_in_its_world(rank, size):
    with pytest.raises(UsageError, match="rank"):
        Seat(rank, size)


def test_a_topology_is_not_empty():
    with pytest.raises(UsageError, match="at least one"):
        Topology(0, 1)
