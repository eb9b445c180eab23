import pytest

from wdspec.base.errors import UsageError
from wdspec.planning.topology import Seat, Topology, legal_world_sizes


def test_slots_are_numbered_rank_by_rank():
    topology = Topology(4, 3)
    assert [topology.slot(c, k) for c in range(4) for k in range(3)] == list(range(topology.slots))


def test_ranks_share_the_canonical_ranks():
    assert list(Seat(1, 2).canonical_ranks(Topology(8, 1))) == [4, 5, 6, 7]
    with pytest.raises(UsageError, match=r"world size of 2 or 4 \(of 1, 2, 4, 8\)"):
        Seat(0, 3).canonical_ranks(Topology(8, 1))
    with pytest.raises(UsageError, match=r"9 ranks .* run with a world size of 8 \(of 1, 2, 4, 8\)"):
        Seat(0, 9).canonical_ranks(Topology(8, 1))


@pytest.mark.parametrize("ranks", range(1, 9))
@pytest.mark.parametrize("per_slot", range(1, 7))
def test_ranks_divide_the_positions_of_a_batch_evenly(ranks, per_slot):
    topology, places = Topology(ranks, 1), ranks * per_slot
    for world_size in range(1, places + 1):
        if places % world_size:
            with pytest.raises(UsageError, match="cannot share"):
                Seat(0, world_size).canonical_ranks(topology, per_slot)
            continue
        shares = [Seat(rank, world_size).places(topology, per_slot) for rank in range(world_size)]
        assert [place for share in shares for place in share] == list(range(places))
        for rank, share in enumerate(shares):
            read = Seat(rank, world_size).canonical_ranks(topology, per_slot)
            assert set(read) == {place // per_slot for place in share}


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_must_be_in_its_world(rank, size):
    with pytest.raises(UsageError, match="rank"):
        Seat(rank, size)


def test_a_topology_is_not_empty():
    with pytest.raises(UsageError, match="at least one"):
        Topology(0, 1)


def test_the_maximum_that_a_rank_reads_is_that_of_the_worst_rank():
    for ranks, per_slot in ((1, 1), (4, 3), (6, 4), (5, 12), (64, 24)):
        topology = Topology(ranks, 1)
        for world in legal_world_sizes(ranks, per_slot):
            read = [len(Seat(rank, world).canonical_ranks(topology, per_slot)) for rank in range(world)]
            assert topology.most_read(world, per_slot) == max(read)
