"""Two real processes of torch.distributed: gathering states, and shards that differ between ranks."""

import itertools
import json
import re
import time
from multiprocessing import get_context

import pytest
import torch.distributed as distributed
from shardmaking import keys, reference, write_source

import wdspec
from wdspec.spec.load import load


class Broken:
    def state_dict(self):
        raise OSError("no space")


def run_rank(folder, rank):
    """What a rank does; it leaves a report."""
    meeting = f"file://{folder}/meeting"
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    report = {}
    spec = json.loads((folder / "spec.json").read_text())
    with wdspec.loader(spec, num_workers=1) as loader:
        report["keys"] = [batch["__key__"] for batch in itertools.islice(loader, 5)]
        report["state"] = wdspec.gather_state(loader)
        report["scale"] = wdspec.loss_scale(5 - 2 * rank)
        loader.set_shares({"a": 1})
        distributed.barrier()
        try:
            loader.set_shares({"a": 1 + rank})
            report["shares"] = ""
        except wdspec.UsageError as error:
            report["shares"] = str(error)
        # Peers that read the same part count once.
        report["same"] = wdspec.gather_state(report["state"])
        next(iter(loader))
        try:
            wdspec.gather_state(loader if rank == 0 else report["state"])
        except wdspec.UsageError as error:
            report["uneven"] = str(error)
        try:
            wdspec.gather_state(Broken() if rank == 1 else loader)
        except wdspec.UsageError as error:
            report["broken"] = str(error)
    distributed.barrier()
    spec["dataset"][0]["shards"] = f"{folder}/rank{rank}/b-*.tar"
    if rank == 1:
        while not (folder / "rank-0-has-loaded").exists():
            time.sleep(0.01)
    try:
        wdspec.loader(spec)
        report["differs"] = ""
    except wdspec.UsageError as error:
        report["differs"] = str(error)
    (folder / f"rank-{rank}-has-loaded").touch()
    (folder / f"report-{rank}.json").write_text(json.dumps(report))
    distributed.barrier()
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The spec of a job of two ranks, and what each of them reports."""
    folder = tmp_path_factory.mktemp("job")
    spec = {
        "dataset": [{"name": "a", "shards": write_source(folder, "a", 5, 12), "shuffle": 30}],
        "elastic": {"ranks": 2, "workers": 2},
        "batch": 2,
        "epoch": {"batches": 9},
    }
    write_source(folder / "rank0", "b", 3, 2)
    write_source(folder / "rank1", "b", 3, 2)
    (folder / "spec.json").write_text(json.dumps(spec))
    # Forked: new processes would import torch.
    ranks = [get_context("fork").Process(target=run_rank, args=(folder, rank)) for rank in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RANK", "WORLD_SIZE"):
            patch.delenv(name, raising=False)
        for process in ranks:
            process.start()
    for process in ranks:
        process.join(120)
        process.kill()
    assert [process.exitcode for process in ranks] == [0, 0]
    return spec, [json.loads((folder / f"report-{rank}.json").read_text()) for rank in range(2)]


def test_gathered_states_resume_exactly_in_one_process(job):
    spec, reports = job
    assert reports[0]["state"] == reports[1]["state"]
    assert [report["scale"] for report in reports] == [2 / 8, 2 / 8]
    with wdspec.loader(spec, rank=0, world_size=1) as loader:
        loader.load_state_dict(reports[0]["state"])
        rest = keys(loader)
    whole = [[*a, *b] for a, b in zip(*(report["keys"] for report in reports), strict=True)] + rest
    assert whole == reference(load(spec), 1, 2, 0, 9)


def test_peers_that_read_the_same_part_are_counted_once(job):
    for report in job[1]:
        assert report["same"] == report["state"]


def test_an_error_on_one_rank_is_raised_on_all(job):
    for report in job[1]:
        assert "canonical ranks" in report["uneven"] or "different batches" in report["uneven"]
        assert "rank 1 of the group: OSError: no space" in report["broken"]


def test_shards_that_differ_between_ranks_are_named(job):
    assert [bool(report["differs"]) for report in job[1]] == [False, True]
    said = job[1][1]["differs"]
    assert "in source 'a', shard 0 is" in said
    assert "rank1/b-000.tar on rank 1 and" in said
    assert "rank0/b-000.tar on rank 0" in said


def test_shares_that_differ_between_ranks_are_named(job):
    first, second = sorted(report["shares"] for report in job[1])
    assert first == "" or "sets other shares than rank" in first
    assert re.search(
        r"rank (\d) \('now'\) sets other shares than rank (?!\1)\d \('was'\):\n  shares.a: was", second
    )


def test_without_torch_distributed_it_is_the_state_of_this_process(job):
    spec, _ = job
    with wdspec.loader(spec, rank=0, world_size=1) as loader:
        next(iter(loader))
        assert wdspec.gather_state(loader) == loader.state_dict()
        assert wdspec.gather_state(loader.state_dict()) == loader.state_dict()
    with (
        wdspec.loader(spec, rank=0, world_size=2) as loader,
        pytest.raises(wdspec.UsageError, match=r"canonical ranks \[1\] are missing"),
    ):
        wdspec.gather_state(loader)
