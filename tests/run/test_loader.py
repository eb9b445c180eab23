"""The Loader against an uninterrupted reading in one process: nothing is lost, repeated or reordered."""

import itertools
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from shardmaking import keys, reference, write_source
from torch.utils.data import DataLoader

import wdspec
from wdspec.run import stream
from wdspec.spec.load import load


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


@pytest.fixture
def spec(tmp_path):
    return {
        "seed": 5,
        "dataset": [
            {"name": "a", "shards": write_source(tmp_path, "a", 5, 40), "probability": 0.5},
            {"name": "b", "shards": write_source(tmp_path, "b", 2, 30), "probability": 0.3},
            {"name": "c", "shards": write_source(tmp_path, "c", 1, 25), "probability": 0.2},
        ],
        "defaults": {"shuffle": 60},
        "batch": 4,
        "epoch": {"batches": 7},
    }


@pytest.mark.parametrize("workers", [0, 1, 2, 3, 4])
def test_epochs_continue_where_the_last_one_ended(spec, workers):
    expected = reference(load(spec), 1, max(1, workers), 0, 21)
    with wdspec.loader(spec, num_workers=workers) as loader:
        assert len(loader) == 7
        epochs = [keys(loader) for _ in range(3)]
    assert [len(epoch) for epoch in epochs] == [7, 7, 7]
    assert flat(epochs) == expected


@pytest.mark.parametrize(
    ("workers", "persistent", "start"),
    [
        (1, False, "fork"),
        (3, True, "fork"),
        (2, True, "spawn"),
        *(
            pytest.param(workers, persistent, "fork", marks=pytest.mark.long)
            for workers, persistent in ((1, True), (2, True), (2, False), (3, False))
        ),
        pytest.param(1, False, "spawn", marks=pytest.mark.long),
    ],
)
def test_leaving_early_loses_and_repeats_nothing(spec, workers, persistent, start):
    expected = reference(load(spec), 1, workers, 0, 14)
    seen = []
    with wdspec.loader(
        spec, num_workers=workers, persistent_workers=persistent, multiprocessing_context=start
    ) as loader:
        for stop in (2, 1, 4):
            seen += keys(itertools.islice(loader, stop))
        assert loader.epoch == 1
        seen += keys(loader)
    assert seen == expected


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_an_epoch_shorter_than_the_workers(spec, batches):
    spec["epoch"] = {"batches": batches}
    expected = reference(load(spec), 1, 4, 0, 5 * batches)
    with wdspec.loader(spec, num_workers=4) as loader:
        assert flat(keys(loader) for _ in range(5)) == expected


def test_break_and_iterate_again_with_every_batch_count(spec):
    expected = reference(load(spec), 1, 2, 0, 21)
    for stop in range(1, 7):
        with wdspec.loader(spec, num_workers=2) as loader:
            seen = keys(itertools.islice(loader, stop))
            for _ in range(2):
                seen += keys(loader)
        assert seen == expected[:14]


def test_an_endless_stream_has_no_length_and_no_end(spec):
    del spec["epoch"]
    with wdspec.loader(spec, num_workers=2) as loader:
        with pytest.raises(TypeError, match="`epoch:`"):
            len(loader)
        seen = keys(itertools.islice(loader, 50))
        seen += keys(itertools.islice(loader, 3))
    assert seen == reference(load(spec), 1, 2, 0, 53)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_rank_gets_the_same_number_of_batches(spec, workers):
    spec["epoch"] = 4 * 3 * 5 + 11
    seen = []
    for rank in range(3):
        with wdspec.loader(spec, num_workers=workers, rank=rank, world_size=3) as loader:
            assert len(loader) == 5
            batches = keys(loader)
            assert len(batches) == 5
            assert batches == reference(load(spec), 3, max(1, workers), rank, 5)
            seen.append(batches)
    assert all(len(batch) == 4 for batches in seen for batch in batches)


def test_a_pass_delivers_every_sample_once_over_ranks_and_workers(tmp_path):
    shards = write_source(tmp_path, "a", 12, 10)
    spec = {"dataset": [{"name": "a", "shards": shards, "shuffle": 30}], "batch": 5, "epoch": 120}
    seen = []
    for rank in range(2):
        with wdspec.loader(spec, num_workers=2, rank=rank, world_size=2) as loader:
            seen += flat(keys(loader))
    assert sorted(seen) == sorted(f"a{s:03d}{i:04d}" for s in range(12) for i in range(10))


def test_without_batch_it_yields_samples(spec):
    del spec["batch"]
    spec["epoch"] = 23
    with wdspec.loader(spec, num_workers=2) as loader:
        assert len(loader) == 23
        samples = list(loader)
    assert [[s["__key__"]] for s in samples] == reference(load(spec), 1, 2, 0, 23)
    assert isinstance(samples[0]["txt"], str)


def test_tuples(spec):
    spec["to_tuple"] = "txt cls __key__"
    with wdspec.loader(spec, num_workers=0) as loader:
        text, label, key = next(iter(loader))
    assert label.dtype == torch.int64
    assert len(text) == len(label) == len(key) == 4


def test_limit_caps_the_epoch(spec):
    spec["limit"] = 12
    with wdspec.loader(spec) as loader:
        assert len(loader) == len(list(loader)) == 3


@pytest.mark.parametrize(("limit", "near"), [(10, "8 or 12"), (3, "4")])
def test_a_limit_inside_a_batch_is_rejected_with_the_nearest_legal_ones(spec, limit, near):
    with pytest.raises(
        wdspec.UsageError, match=f"`limit: {limit}` ends inside .* of 4 samples.*; use {near},"
    ):
        wdspec.loader(spec | {"limit": limit})
    with wdspec.loader(spec | {"limit": 7 * 4 + 1}) as loader:  # the epoch ends before it
        assert len(loader) == 7


def test_the_current_epoch_can_always_be_set(spec):
    expected = reference(load(spec), 1, 1, 0, 21)
    with wdspec.loader(spec) as loader:
        seen = keys(itertools.islice(loader, 9)) + keys(
            itertools.islice(loader, 2)
        )  # an epoch, and two of the next
        assert loader.epoch == 1
        state = loader.state_dict()
    for resumed in (wdspec.loader(spec), wdspec.compile(spec)):
        resumed.load_state_dict(state)
        again = list(seen)
        for epoch in range(resumed.epoch, 3):
            resumed.set_epoch(epoch)
            again += keys(resumed)
        assert again == expected


def test_the_epoch_of_an_endless_stream_is_0(spec):
    del spec["epoch"]
    with wdspec.loader(spec) as loader:
        next(iter(loader))
        loader.set_epoch(0)
        with pytest.raises(wdspec.UsageError, match="endless and has no epochs"):
            loader.set_epoch(1)


def test_set_epoch_checks_and_never_seeks(spec):
    with wdspec.loader(spec) as loader:
        loader.set_epoch(0)
        with pytest.raises(wdspec.UsageError, match="does not seek: the stream is at batch 0 of epoch 0"):
            loader.set_epoch(1)
        list(loader)
        loader.set_epoch(1)
        next(iter(loader))
        for epoch in (0, 2):
            with pytest.raises(
                wdspec.UsageError, match="is at batch 1 of epoch 1; read that epoch to its end"
            ):
                loader.set_epoch(epoch)


def test_an_older_iteration_cannot_continue(spec):
    with wdspec.loader(spec) as loader:
        old = iter(loader)
        next(old)
        next(iter(loader))
        with pytest.raises(wdspec.UsageError, match="newer iteration"):
            next(old)


@pytest.mark.parametrize("argument", ["batch_size", "shuffle", "sampler", "collate_fn", "drop_last"])
def test_values_of_the_spec_are_not_arguments(spec, argument):
    with pytest.raises(wdspec.UsageError, match=f"`{argument}` is not an argument"):
        wdspec.loader(spec, **{argument: 1})


@pytest.mark.parametrize(
    ("function", "argument", "says"),
    [
        (
            wdspec.loader,
            "workers",
            r"not an argument of wdspec.loader: write num_workers=.*`loader.workers`.*`--workers`",
        ),
        (wdspec.loader, "collate_fn", "`batch: {size: …, collate: package.module:function}`"),
        (wdspec.loader, "prefech_factor", "did you mean `prefetch_factor`"),
        (wdspec.loader, "colour", "torch's DataLoader does not have it either"),
        (wdspec.plan, "num_workers", "not an argument of wdspec.plan: write workers="),
        (wdspec.plan, "splitt", "did you mean `split`"),
        (
            wdspec.compile,
            "num_workers",
            r"not an argument of wdspec.compile: .*use wdspec.loader\(spec, num_workers=…\)",
        ),
        (wdspec.compile, "workers", r"use wdspec.loader\(spec, num_workers=…\)"),
        (wdspec.compile, "colour", "it takes split, env, vars, overrides"),
    ],
)
def test_unknown_arguments_list_the_known_ones(spec, function, argument, says):
    with pytest.raises(wdspec.UsageError, match=says):
        function(spec, **{argument: 1})


def test_random_numbers_of_the_user_are_unchanged(spec):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    with wdspec.loader(spec, num_workers=1) as loader:
        list(loader)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_in_a_worker_arrives_unchanged_and_is_raised_again(tmp_path, workers):
    spec = {
        "dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 1, 20), "shuffle": 0}],
        "batch": 2,
    }
    path = tmp_path / "a-000.tar"
    data = bytearray(path.read_bytes())
    data[2 * 4 * 512 + 3] ^= 0xFF
    path.write_bytes(data)
    with wdspec.loader(spec, num_workers=workers, world_size=1, rank=0) as loader:
        for _ in range(2):
            with pytest.raises(wdspec.ShardError) as caught:
                list(itertools.islice(loader, 10))
            assert caught.value.place["source"] == "a"
            assert caught.value.place["url"].endswith("a-000.tar")
            assert caught.value.place["offset"] == 2 * 4 * 512


@pytest.mark.parametrize("build", [partial(wdspec.loader, num_workers=0), wdspec.compile])
def test_objects_built_before_ranks_are_known_are_rejected(spec, build, monkeypatch):
    # Lightning, for one, initialises torch.distributed in `fit`; each rank would read everything.
    early, whole = build(spec), build(spec, rank=0, world_size=1)
    monkeypatch.setattr(stream, "initialised_distributed", lambda: SimpleNamespace(get_world_size=lambda: 2))
    with pytest.raises(wdspec.UsageError, match=r"before torch.distributed was initialised.*datamodule="):
        next(iter(early))
    assert keys(whole) == reference(load(spec), 1, 1, 0, 7)


def test_a_loader_is_not_a_dataset(spec):
    with wdspec.loader(spec, num_workers=0) as loader, pytest.raises(wdspec.UsageError, match="SpecTrainer"):
        next(iter(DataLoader(loader, batch_size=None)))


def test_workers_end_with_the_loader(spec):
    import multiprocessing

    with wdspec.loader(spec, num_workers=2) as loader:
        next(iter(loader))
        assert len(multiprocessing.active_children()) == 2
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("impatient_torch")
class TestBareDataLoader:
    @pytest.mark.parametrize("workers", [0, 1, 2, 3])
    def test_one_epoch(self, spec, workers):
        pipeline = wdspec.compile(spec)
        assert len(pipeline) == 7
        loader = DataLoader(pipeline, batch_size=None, num_workers=workers)
        assert keys(loader) == reference(load(spec), 1, max(1, workers), 0, 7)

    def test_new_workers_cannot_read_a_second_epoch(self, spec):
        loader = DataLoader(wdspec.compile(spec), batch_size=None, num_workers=2)
        list(loader)
        with pytest.raises(wdspec.UsageError, match=r"read the previous epoch again; use wdspec.loader"):
            list(loader)

    def test_persistent_workers_continue_when_they_divide_the_epoch(self, spec):
        spec["epoch"] = {"batches": 6}
        loader = DataLoader(wdspec.compile(spec), batch_size=None, num_workers=2, persistent_workers=True)
        assert flat(keys(loader) for _ in range(3)) == reference(load(spec), 1, 2, 0, 18)

    def test_persistent_workers_are_rejected_if_they_would_break_the_order(self, spec):
        loader = DataLoader(wdspec.compile(spec), batch_size=None, num_workers=2, persistent_workers=True)
        list(loader)
        with pytest.raises(wdspec.UsageError, match="7 batches is not a multiple of 2 workers"):
            list(loader)

    @pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
    def test_unordered_batches_are_rejected(self, spec, start, monkeypatch):
        # Otherwise torch ends processes that have not started within 5 s, and others that wait for them fail.
        monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 60)
        unordered = {"batch_size": None, "in_order": False, "multiprocessing_context": start}
        batches = iter(DataLoader(wdspec.compile(spec), num_workers=2, **unordered))
        for _ in range(2):  # of both workers, or the second would still be starting when they are ended
            with pytest.raises(wdspec.UsageError, match="in_order=False yields batches in whatever order"):
                next(batches)
        alone = DataLoader(wdspec.compile(spec), num_workers=1, **unordered)
        assert keys(alone) == reference(load(spec), 1, 1, 0, 7)

    @pytest.mark.parametrize("workers", [0, 2])
    def test_batches_of_batches_are_rejected(self, spec, workers):
        loader = DataLoader(wdspec.compile(spec), num_workers=workers)
        with pytest.raises(wdspec.UsageError, match=r"batches of batches.* batch_size=None.*SpecTrainer"):
            next(iter(loader))
        samples = {**spec, "batch": None, "epoch": 20}
        batches = list(DataLoader(wdspec.compile(samples), batch_size=5, num_workers=workers))
        assert [len(batch["__key__"]) for batch in batches] == [5] * 4

    @pytest.mark.parametrize("start", [None, "fork", pytest.param("spawn", marks=pytest.mark.long)])
    def test_datasets_that_accelerate_would_split_again_are_rejected(self, spec, start):
        from accelerate.data_loader import DataLoaderShard, IterableDatasetShard

        samples = {**spec, "batch": None, "epoch": 20}
        workers = {"num_workers": 1, "multiprocessing_context": start} if start else {}

        def shared_out(world_size, rank):
            pipeline = wdspec.compile(samples, rank=rank, world_size=world_size)
            part = IterableDatasetShard(pipeline, batch_size=2, num_processes=2, process_index=1)
            return DataLoaderShard(part, batch_size=2, **workers)

        with pytest.raises(wdspec.UsageError, match=r"one rank's part of 2; do not prepare it"):
            next(iter(shared_out(2, 1)))
        # What reads everything on each rank may be shared out.
        assert len(list(shared_out(1, 0))) == 5

    def test_accelerate_is_rejected_before_its_batch_size_error(self, spec):
        from accelerate.data_loader import prepare_data_loader

        loader = DataLoader(wdspec.compile(spec, rank=1, world_size=2), batch_size=None)
        with pytest.raises(wdspec.UsageError, match=r"one rank's part of 2; do not prepare it"):
            prepare_data_loader(loader, num_processes=2, process_index=1, dispatch_batches=False)

    def test_persistent_workers_are_rejected_after_an_abandoned_epoch(self, spec):
        loader = DataLoader(wdspec.compile(spec), batch_size=None, num_workers=1, persistent_workers=True)
        next(iter(loader))
        with pytest.raises(wdspec.UsageError, match="left early"):
            next(iter(loader))

    def test_workers_continue_at_the_position_of_the_pipeline(self, spec):
        pipeline = wdspec.compile(spec)
        seen = keys(itertools.islice(pipeline, 3))
        assert seen + keys(DataLoader(pipeline, batch_size=None, num_workers=1)) == reference(
            load(spec), 1, 1, 0, 7
        )

    def test_in_one_process_iterations_continue(self, spec):
        pipeline = wdspec.compile(spec)
        seen = keys(itertools.islice(pipeline, 3)) + keys(pipeline) + keys(pipeline)
        assert seen == reference(load(spec), 1, 1, 0, 14)
        assert pipeline.epoch == 2
        pipeline.set_epoch(2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_workers": 1.0}, "ranks and workers must be integers of at least one, not 1 and 1.0"),
        ({"num_workers": "1"}, "not 1 and '1'"),
        ({"num_workers": True}, "not 1 and True"),
        ({"num_workers": np.int64(1)}, r"not 1 and np.int64\(1\)"),
        ({"num_workers": 0.0}, "not 1 and 0.0"),
        ({"num_workers": False}, "not 1 and False"),
        ({"num_workers": -1}, "not 1 and -1"),
        ({"world_size": 1.0}, r"the world size \(ranks\) is an integer of at least one, not 1.0"),
        ({"world_size": "1"}, "not '1'"),
        ({"world_size": 0}, "not 0"),
        ({"rank": "0"}, r"rank '0' is not in 0..0"),
        ({"rank": 0.0}, r"rank 0.0 is not in 0..0"),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_elastic", [False, True])
def test_ranks_and_workers_are_integers(spec, given, said, is_elastic):
    fixed = {"elastic.ranks": 1, "elastic.workers": 1} if is_elastic else {}
    arguments = {"num_workers": 0, "rank": 0, "world_size": 1, **given}
    with pytest.raises(wdspec.UsageError, match=said):
        wdspec.loader(spec, **arguments, overrides=fixed)


@pytest.mark.parametrize("is_elastic", [False, True])
@pytest.mark.parametrize(
    "given", [{"ranks": 0}, {"ranks": -1}, {"ranks": 2.0}, {"workers": -1}, {"workers": 0.0}], ids=str
)
def test_a_plan_for_no_ranks_or_workers_is_refused(spec, given, is_elastic):
    fixed = {"elastic.ranks": 1, "elastic.workers": 1} if is_elastic else {}
    with pytest.raises(wdspec.UsageError, match="ranks and workers must be integers of at least one"):
        wdspec.plan(spec, **given, overrides=fixed)


def test_a_plan_for_0_workers_is_that_of_one(spec):
    assert wdspec.plan(spec, workers=0).topology == wdspec.plan(spec, workers=1).topology
