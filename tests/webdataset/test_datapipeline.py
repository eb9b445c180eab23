"""Pipelines in Python: their stages, methods that do not change them, and sending them to workers."""

import io
import pickle
import warnings
from functools import partial

import pytest
import webdataset
from shardmaking import write_source
from torch.utils.data import DataLoader, IterableDataset

import wdspec as wds
from wdspec import UsageError


def double(source):
    """A stage as a user writes it."""
    for item in source:
        yield 2 * item


def numbers():
    """A source as a user writes it."""
    yield from range(4)


def plus(item, much=1):
    """A mapping that pickles."""
    return item + much


def add(source, much):
    """A stage with an argument."""
    return (item + much for item in source)


def keys_of(samples):
    return [sample["__key__"] for sample in samples]


class TestConstruction:
    def test_a_pipeline_is_an_iterable_dataset(self):
        assert isinstance(wds.DataPipeline([1]), IterableDataset)

    def test_any_generator_function_is_a_stage(self):
        assert list(wds.DataPipeline(range(3), double)) == [0, 2, 4]

    def test_a_function_can_be_a_source_that_is_read_repeatedly(self):
        pipeline = wds.DataPipeline(numbers, double)
        assert list(pipeline) == list(pipeline) == [0, 2, 4, 6]

    def test_none_is_ignored_and_lists_of_stages_are_flattened(self):
        assert list(wds.DataPipeline([range(3).__iter__, None, double], None, [double])) == [0, 4, 8]

    def test_a_list_of_items_can_be_a_source(self):
        assert list(wds.DataPipeline([1, 2, 3])) == list(wds.DataPipeline([[1, 2, 3]])) == [1, 2, 3]

    def test_a_one_shot_iterator_is_rejected(self):
        with pytest.raises(UsageError, match="only once"):
            wds.DataPipeline(numbers())

    def test_a_stage_that_is_not_a_function_is_rejected(self):
        with pytest.raises(UsageError, match="follows the first stage"):
            wds.DataPipeline([1], "shuffle")

    def test_a_stage_without_a_source_is_an_error(self):
        with pytest.raises(UsageError, match="is the first stage"):
            list(wds.DataPipeline(wds.shuffle(10)))
        with pytest.raises(UsageError, match="no stages"):
            list(wds.DataPipeline())

    def test_a_stage_factory_without_parentheses_is_called(self):
        assert list(wds.DataPipeline([[1, 2], [3]], wds.unlisted)) == [1, 2, 3]

    def test_wrong_arguments_are_rejected_when_the_stage_is_built(self):
        with pytest.raises(TypeError, match=r"shuffle\(.*unexpected keyword argument 'size'"):
            wds.shuffle(size=3)

    def test_a_stage_works_outside_pipelines_too(self):
        assert list(wds.batched(2, None)(iter("abc"))) == [["a", "b"], ["c"]]

    def test_a_compiled_pipeline_accepts_stages(self):
        compiled = wds.compile("examples/specs/digits.yaml", split="train")
        assert isinstance(compiled, wds.DataPipeline)
        lengths = compiled.map(len)
        assert isinstance(next(iter(lengths)), int)
        assert compiled.state_dict() != {}

    def test_old_style_composition_takes_a_function_and_its_arguments(self):
        assert list(wds.DataPipeline([1, 2]).compose(add, 10)) == [11, 12]
        assert list(wds.DataPipeline([1, 2]).compose(add, much=10)) == [11, 12]
        assert list(wds.DataPipeline([1, 2]).pipe(double)) == [2, 4]

    def test_a_misspelt_name_is_reported_with_the_nearest(self):
        with pytest.raises(AttributeError, match="did you mean 'batched'"):
            wds.batch  # noqa: B018


class TestNothingChanges:
    def test_methods_leave_the_pipeline_unchanged(self, tmp_path):
        dataset = wds.WebDataset(write_source(tmp_path, "a"))
        before = keys_of(dataset)
        stages = dataset.stages
        for changed in (
            dataset.shuffle(10),
            dataset.with_epoch(3),
            dataset.repeat(2),
            dataset.with_length(7),
            dataset.compose(double),
            dataset.batched(3),
        ):
            assert changed is not dataset
            assert type(changed) is wds.WebDataset
        assert dataset.stages == stages
        assert keys_of(dataset) == before
        with pytest.raises(TypeError, match="length of this pipeline is not known"):
            len(dataset)

    def test_two_pipelines_derived_from_one_have_separate_positions(self):
        cut = wds.DataPipeline(range(100)).with_epoch(3)
        mapped = cut.map(plus)
        assert list(mapped) == [1, 2, 3]
        assert list(cut) == [0, 1, 2]
        assert list(mapped) == [4, 5, 6]


class TestEpochs:
    def test_an_epoch_continues_after_the_last_one_and_wraps(self):
        pipeline = wds.DataPipeline(range(5)).with_epoch(3)
        assert [list(pipeline) for _ in range(4)] == [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4, 0, 1]]
        with pytest.raises(TypeError, match="length of this pipeline is not known"):
            len(pipeline)  # each worker has an epoch, and their number is not known
        assert len(pipeline.with_length(9).batched(2)) == 9
        assert len(wds.DataPipeline(range(5)).with_epoch(3, over="rank")) == 3

    def test_an_abandoned_iteration_is_continued(self):
        pipeline = wds.DataPipeline(range(5)).with_epoch(4)
        assert next(iter(pipeline)) == 0
        assert list(pipeline) == [1, 2, 3, 4]

    def test_an_older_iteration_cannot_continue(self):
        pipeline = wds.DataPipeline(range(50)).with_epoch(4)
        older = iter(pipeline)
        next(older)
        next(iter(pipeline))
        with pytest.raises(UsageError, match="newer iteration"):
            next(older)

    @pytest.mark.parametrize("persistent", [False, True])
    def test_fresh_workers_continue_like_persistent_ones(self, tmp_path, persistent):
        dataset = wds.WebDataset(write_source(tmp_path, "a")).with_epoch(9, over="rank")
        loader = DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=persistent)
        epochs = [keys_of(loader) for _ in range(4)]
        assert [len(epoch) for epoch in epochs] == [9] * 4
        assert len({key for epoch in epochs for key in epoch}) == 36  # of 40: no sample comes twice

    def test_an_epoch_counts_the_items_at_the_end_like_webdataset(self):
        ours, theirs = (
            lib.DataPipeline(lib.SimpleShardList([f"{i}.tar" for i in range(50)]))
            .with_epoch(7)
            .compose(lib.batched(4, collation_fn=None))
            for lib in (wds, webdataset)
        )
        assert [len(batch) for batch in ours] == [len(batch) for batch in theirs] == [4] * 7

    @pytest.mark.parametrize(
        ("change", "items"),
        [
            (lambda p: p.repeat(2), 16),
            (lambda p: p.repeat(2, nbatches=5), 10),
            (lambda p: p.repeat(2).with_epoch(3), 6),
            (lambda p: p.with_epoch(3).repeat(2), 16),
            (lambda p: p.with_epoch(3).with_epoch(5), 10),
            (lambda p: p.with_epoch(11), 22),
            (lambda p: p.with_length(3, silent=True), 8),
            (lambda p: p.slice(3), 6),
            (lambda p: p.slice(1, 3).repeat(2), 8),
        ],
    )
    def test_two_workers_count_items_like_webdataset(self, change, items):
        shards = [f"{i}.tar" for i in range(8)]
        for lib in (wds, webdataset):
            pipeline = lib.compat.FluidWrapper(
                lib.DataPipeline(lib.SimpleShardList(shards), lib.split_by_worker)
            )
            loader = DataLoader(change(pipeline), batch_size=None, num_workers=2)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch, about the length of 3
                assert len(list(loader)) == items, lib

    def test_the_source_stays_reachable_and_the_list_of_stages_can_be_edited(self):
        for lib in (wds, webdataset):
            pipeline = lib.DataPipeline(lib.SimpleShardList(["a", "b"]))
            assert [shard["url"] for shard in pipeline.repeat(2).pipeline[0]] == ["a", "b"]
            pipeline = pipeline.with_epoch(3)
            assert len(pipeline.pipeline) == 1
            pipeline.pipeline.append(lib.map(lambda shard: shard["url"] * 2))
            pipeline.pipeline.insert(1, lib.slice(1))
            assert list(pipeline) == ["aa"] * 3

    def test_an_epoch_of_the_job_is_divided_among_ranks_and_workers(self, monkeypatch):
        monkeypatch.setenv("WORLD_SIZE", "3")
        monkeypatch.setenv("NUM_WORKERS", "2")
        counts, lengths = [], []
        for rank in range(3):
            monkeypatch.setenv("RANK", str(rank))
            for worker in range(2):
                monkeypatch.setenv("WORKER", str(worker))
                pipeline = wds.DataPipeline(range(9)).with_epoch(10, over="job")
                counts.append(len(list(pipeline)))
            lengths.append(len(pipeline))
        assert (counts, lengths) == ([2, 2, 2, 1, 2, 1], [4, 3, 3])
        with pytest.raises(UsageError, match="`worker`, `rank` or `job`"):
            wds.DataPipeline(range(9)).with_epoch(10, over="jobs")

    def test_an_epoch_without_samples_is_an_error_and_not_an_endless_loop(self):
        with pytest.raises(wds.ShardError, match="whole pass of the pipeline was empty"):
            list(wds.DataPipeline([]).with_epoch(3))
        with pytest.raises(wds.ShardError, match="whole pass of the pipeline was empty"):
            list(wds.DataPipeline([]).repeat())

    def test_repeating_creates_separate_passes(self):
        twice = list(wds.DataPipeline(range(50)).shuffle(50, 50).repeat(2))
        assert sorted(twice[:50]) == sorted(twice[50:]) == list(range(50))
        assert twice[:50] != twice[50:]

    def test_a_resized_dataset_has_a_nominal_length(self):
        dataset = wds.ResizedDataset([1, 2, 3], 2, nominal=100)
        assert (list(dataset), list(dataset), len(dataset)) == ([1, 2], [3, 1], 100)
        dataset = wds.ResizedDataset(range(9), 4)
        assert len(list(wds.WebLoader(dataset.with_length(8), batch_size=None, num_workers=2))) == 8


class TestPickling:
    def pipeline(self, folder):
        return (
            wds.WebDataset(write_source(folder, "a"), shardshuffle=True)
            .shuffle(10)
            .decode()
            .map(partial(dict))
            .rename(text="txt")
            .to_tuple("text", "cls")
            .map_tuple(None, plus)
            .batched(4)
            .with_epoch(5)
        )

    def test_everything_pickles(self, tmp_path):
        pipeline = self.pipeline(tmp_path)
        there = pickle.loads(pickle.dumps(pipeline))
        assert [batch[0] for batch in there] == [batch[0] for batch in pipeline]

    @pytest.mark.parametrize(
        ("method", "count"), [("fork", 2), ("spawn", 1), pytest.param("spawn", 2, marks=pytest.mark.long)]
    )
    def test_forked_and_spawned_workers_read_the_same(self, tmp_path, method, count):
        loader = wds.WebLoader(
            self.pipeline(tmp_path), batch_size=None, num_workers=2, multiprocessing_context=method
        )
        epochs = [[text for batch in loader for text in batch[0]] for _ in range(count)]
        expected = expected_of_two_workers(self.pipeline(tmp_path / "again"))[:count]
        assert epochs == [[text for batch in epoch for text in batch[0]] for epoch in expected]


def expected_of_two_workers(pipeline):
    loader = DataLoader(pipeline, batch_size=None, num_workers=2, persistent_workers=True)
    return [list(loader) for _ in range(2)]


def test_info_shows_samples_and_yields_them():
    out = io.StringIO()
    items = [{"__key__": "a", "txt": b"x" * 99}, (1, "b"), 3]
    assert list(wds.DataPipeline(items).info(n=2, stream=out, width=10, name="after decode")) == items
    assert "--- after decode 0" in out.getvalue()
    assert "  txt: b'xxxxxxxx\n" in out.getvalue()
    assert " 2\n" not in out.getvalue()
