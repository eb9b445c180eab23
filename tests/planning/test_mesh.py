"""`mesh=` and `dim=`: the data-parallel place in a DeviceMesh, the same for peers along the other dimensions."""

import itertools
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from shardmaking import keys, write_source

import wdspec
from wdspec.base.errors import UsageError
from wdspec.planning.topology import Seat, find_seat_in_mesh


def mesh(names, shape, coordinate):
    return SimpleNamespace(
        mesh_dim_names=names, get_coordinate=lambda: coordinate, size=lambda number: shape[number]
    )


@pytest.mark.parametrize(
    ("dim", "coordinate", "seat"),
    [
        ("dp", [1, 0, 2], Seat(1, 2)),
        ("dp", [1, 1, 0], Seat(1, 2)),
        (("dp", "shard"), [1, 0, 2], Seat(2, 4)),
        (["dp", "shard"], [1, 1, 0], Seat(3, 4)),
        (("dp", "shard", "tp"), [1, 0, 2], Seat(8, 12)),
    ],
)
def test_the_rank_is_counted_along_the_named_dimensions(dim, coordinate, seat):
    assert find_seat_in_mesh(mesh(("dp", "shard", "tp"), (2, 2, 3), coordinate), dim) == seat


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((mesh(("fsdp", "tp"), (2, 2), [0, 0]), "dp"), r"no dimension 'dp'; its dimensions are 'fsdp', 'tp'"),
        ((mesh(None, (4,), [0]), "dp"), "its dimensions are without names"),
        ((mesh(("dp",), (4,), [0]), ()), "no dimension that is named"),
        ((mesh(("dp",), (4,), None), "dp"), "not in the mesh"),
    ],
)
def test_a_mesh_without_these_dimensions_is_rejected(given, says):
    with pytest.raises(UsageError, match=says):
        find_seat_in_mesh(*given)


def test_mesh_and_rank_cannot_be_combined(tmp_path):
    spec = {"dataset": [{"shards": write_source(tmp_path, "a", 1, 4)}], "batch": 2}
    for make in (wdspec.loader, wdspec.compile):
        with pytest.raises(UsageError, match="given twice"):
            make(spec, mesh=mesh(("dp",), (1,), [0]), rank=0, world_size=1)


SCRIPT = """
import json, sys
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
import wdspec
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
with wdspec.loader(json.loads(sys.argv[1]), mesh=mesh, dim="dp") as loader:
    found = [batch["__key__"] for _, batch in zip(range(3), loader)]
    state = wdspec.gather_state(loader)
    with open(f"{sys.argv[2]}/{dist.get_rank()}.json", "w") as file:
        json.dump([found, list(state["ranks"])], file)
dist.destroy_process_group()
"""


@pytest.mark.long  # four processes that import torch
def test_peers_along_other_dimensions_read_the_same_data_and_count_once(tmp_path):
    script = tmp_path / "mesh.py"
    script.write_text(SCRIPT)
    spec = {
        "dataset": [{"shards": write_source(tmp_path, "a", 4, 20)}],
        "batch": 4,
        "elastic": {"ranks": 2, "workers": 1},
    }
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    done = subprocess.run(
        [*launch, script, json.dumps(spec), tmp_path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        found, ranks = json.loads((tmp_path / f"{rank}.json").read_text())
        with wdspec.loader(spec, rank=rank // 2, world_size=2) as loader:
            assert found == keys(itertools.islice(loader, 3))
        assert ranks == ["0", "1"]
