import pytest

from wdspec.base.errors import UsageError
from wdspec.planning.topology import Seat, find_seat


def test_a_process_is_alone_by_default():
    assert find_seat(environ={}) == Seat(0, 1)


def test_arguments_win_over_the_environment():
    assert find_seat(1, 2, environ={"RANK": "5", "WORLD_SIZE": "8"}) == Seat(1, 2)


def test_the_environment_of_torchrun_comes_before_slurm():
    slurm = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}
    assert find_seat(environ={"RANK": "5", "WORLD_SIZE": "8", **slurm}) == Seat(5, 8)
    assert find_seat(environ=slurm) == Seat(3, 4)
    assert find_seat(environ={"SLURM_NTASKS": "4"}) == Seat(0, 1)


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"RANK": "1"}, "RANK=1 but no WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2 but no RANK"),
        (
            {"RANK": "x", "WORLD_SIZE": "2"},
            "these are not a rank and a world size: RANK=x, WORLD_SIZE=2; set both",
        ),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "rank 2 is not in 0..1"),
    ],
)
def test_incomplete_or_wrong_ranks_are_rejected(environ, says):
    with pytest.raises(UsageError, match=says):
        find_seat(environ=environ)


def test_one_argument_of_two_is_rejected():
    with pytest.raises(UsageError, match="`rank` was given without `world_size`"):
        find_seat(rank=0)
    with pytest.raises(UsageError, match="`world_size` was given without `rank`"):
        find_seat(world_size=2)


def test_torch_distributed_is_used_and_contradictions_are_errors(tmp_path):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert find_seat(environ={}) == Seat(0, 1)
        assert find_seat(environ={"WORLD_SIZE": "1"}) == Seat(0, 1), "half a pair, as Lightning sets it"
        with pytest.raises(UsageError, match=r"torch.distributed says rank 0 of 1, but .* rank 1 of 2"):
            find_seat(environ={"RANK": "1", "WORLD_SIZE": "2"})
    finally:
        dist.destroy_process_group()


def test_a_default_seat_is_marked_as_assumed():
    assumed, stated = find_seat(environ={}), find_seat(0, 1)
    assert assumed == stated
    assert (assumed.is_assumed, stated.is_assumed) == (True, False)


def test_processes_of_lightning_are_recognized():
    with pytest.raises(UsageError, match=r"as in a process of Lightning.*datamodule="):
        find_seat(environ={"WORLD_SIZE": "2", "LOCAL_RANK": "1"})
