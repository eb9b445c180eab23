"""Stages one by one: their effect on samples and on errors."""

import io
import pickle
import re
from itertools import islice

import cbor2
import numpy as np
import pytest
import webdataset
from shardmaking import write_shard, write_source
from torch.utils.data import DataLoader

import wdspec as wds
from wdspec import FieldError, ShardError, UsageError


def keys_of(samples):
    return [sample["__key__"] for sample in samples]


def odd_is_bad(value):
    """Fails for every other sample."""
    number = value["x"] if isinstance(value, dict) else value[0] if isinstance(value, tuple) else value
    if number % 2:
        raise ValueError(f"{number} is odd")
    return value


DICTS = [{"__key__": f"{i}", "__url__": "u.tar", "x": i} for i in range(4)]

FAILING = {
    "map": (DICTS, wds.map(odd_is_bad), {}),
    "map_dict": (DICTS, wds.map_dict, {"x": odd_is_bad}),
    "map_tuple": ([(i,) for i in range(4)], wds.map_tuple, odd_is_bad),
    "select": (DICTS, wds.select, odd_is_bad),
    "to_tuple": ([{"x": 0}, {"y": 1}, {"x": 2}], wds.to_tuple, "x"),
    "rename": ([{"x": 0}, {"y": 1}, {"x": 2}], wds.rename, {"z": "x"}),
    "decode": ([{"cls": b"0"}, {"cls": b"?"}, {"cls": b"2"}], wds.decode, None),
}


def failing(name, handler):
    """What a stage gives whose samples are bad every other time."""
    items, maker, argument = FAILING[name]
    if name == "map":
        stage = wds.map(odd_is_bad, handler=handler)
    elif argument is None:
        stage = maker(handler=handler)
    elif isinstance(argument, dict):
        stage = maker(handler=handler, **argument)
    else:
        stage = maker(argument, handler=handler)
    return list(wds.DataPipeline(items, stage))


@pytest.mark.parametrize("name", sorted(FAILING))
def test_every_stage_calls_its_handler(name):
    good = len(FAILING[name][0]) - len(FAILING[name][0]) // 2
    assert len(failing(name, wds.ignore_and_continue)) == good
    assert len(failing(name, wds.ignore_and_stop)) == 1
    with pytest.raises((ValueError, FieldError)):
        failing(name, wds.reraise_exception)
    with pytest.warns(UserWarning, match="Error: "):
        assert len(failing(name, wds.warn_and_continue)) == good
    with pytest.warns(UserWarning, match="Error: "):
        assert len(failing(name, wds.warn_and_stop)) == 1


def test_an_error_in_a_user_function_names_the_sample():
    with pytest.raises(ValueError, match=r"1 is odd.* \[url u\.tar, key 1\]"):
        list(wds.DataPipeline(DICTS).map(odd_is_bad))


def test_map_drops_samples_that_become_none():
    assert list(wds.DataPipeline(range(4)).map(lambda i: i if i % 2 else None)) == [1, 3]


def test_map_dict_changes_fields_without_changing_its_input():
    sample = {"a": 1, "b": 2}
    assert list(wds.DataPipeline([sample]).map_dict(a=str, b=float)) == [{"a": "1", "b": 2.0}]
    assert sample == {"a": 1, "b": 2}
    with pytest.raises(FieldError, match=r"'c'.*has only: a, b"):
        list(wds.DataPipeline([sample]).map_dict(c=str))


def test_map_tuple_changes_a_prefix_and_none_keeps_a_value():
    assert list(wds.DataPipeline([(1, 2, 3)]).map_tuple(None, str)) == [(1, "2", 3)]
    with pytest.raises(FieldError, match="2 functions for a sample of 1"):
        list(wds.DataPipeline([(1,)]).map_tuple(None, str))


def test_slice_and_select_select_a_part():
    assert list(wds.DataPipeline(range(9)).slice(2, 8, 3)) == [2, 5]
    assert list(wds.DataPipeline(range(9)).select(lambda i: i > 6)) == [7, 8]


def test_rsample_keeps_a_different_part_in_each_pass():
    pipeline = wds.DataPipeline(range(10_000)).rsample(0.3)
    first, second = list(pipeline), list(pipeline)
    assert abs(len(first) - 3000) < 200
    assert first != second
    assert first == list(wds.DataPipeline(range(10_000)).rsample(0.3))


def test_rename_keys_uses_patterns():
    sample = {"__key__": "k", "left.JPG": 1, "cls": 2, "json": 3}
    pipeline = wds.DataPipeline([sample])
    assert list(pipeline.rename_keys(image="*.jpg", label="cls")) == [
        {"__key__": "k", "image": 1, "label": 2}
    ]
    assert next(iter(pipeline.rename_keys(("image", "*.jpg"), keep_unselected=True))).keys() >= {
        "image",
        "cls",
        "json",
    }
    with pytest.raises(FieldError, match="no field matches x='y'"):
        list(pipeline.rename_keys(x="y"))
    with pytest.raises(FieldError, match="two fields the name 'x'"):
        list(pipeline.rename_keys(x="*s*"))


def test_the_key_can_be_renamed_like_a_field():
    sample = {"__key__": "k", "__url__": "u", "id": b"i", "cls": 2}
    pipeline = wds.DataPipeline([sample])
    theirs = webdataset.DataPipeline(lambda: iter([dict(sample)]))
    ours = next(iter(pipeline.rename(key="__key__")))
    assert ours == {**sample, "key": "k"}
    assert next(iter(theirs.compose(webdataset.filters.rename(key="__key__")))).items() <= ours.items()
    assert list(pipeline.rename(key=["none", "__key__"], keep=False)) == [
        {"__key__": "k", "__url__": "u", "key": "k"}
    ]
    assert next(iter(pipeline.rename(__key__="id")))["__key__"] == b"i"
    assert list(pipeline.rename_keys(key="__key__", label="cls")) == [
        {"__key__": "k", "__url__": "u", "key": "k", "label": 2}
    ]
    assert list(pipeline.rename_keys(id="__key__")) == [{"__key__": "k", "__url__": "u", "id": "k"}]
    with pytest.raises(FieldError, match="two fields the name 'id'"):
        list(pipeline.rename_keys(id="__key__", keep_unselected=True))
    with pytest.raises(
        FieldError, match="'x' is 'a' or 'b' of a sample, but it has: __key__, __url__, id, cls"
    ):
        list(pipeline.rename(x="a;b"))
    with pytest.raises(FieldError, match="has a field 'cls' already"):
        list(pipeline.rename(cls="id"))
    assert list(pipeline.to_tuple("__key__", "cls")) == [("k", 2)]
    assert list(pipeline.extract_keys("__key__", "cls")) == [("k", 2)]
    assert list(pipeline.map_dict(__key__=str.upper).to_tuple("__key__")) == [("K",)]


def test_unbatching_checks_that_columns_have_equal_lengths():
    with pytest.raises(FieldError, match="2 and 3 values"):
        list(wds.DataPipeline([([1, 2], [1, 2, 3])]).unbatched())
    with pytest.raises(FieldError, match="column of type int"):
        list(wds.DataPipeline([(1, 2)]).unbatched())


def test_stages_have_a_readable_repr():
    pipeline = wds.DataPipeline(range(3), wds.shuffle(10, seed=3), wds.batched(2))
    assert repr(pipeline) == "DataPipeline(range(0, 3), shuffle(10, seed=3), batched(2))"


class TestShards:
    def test_resampled_shards_differ_by_rank_worker_and_pass_and_repeat_in_each_run(self, monkeypatch):
        def drawn(rank, worker, number):
            for name, value in {"RANK": rank, "WORLD_SIZE": 2, "WORKER": worker, "NUM_WORKERS": 2}.items():
                monkeypatch.setenv(name, str(value))
            urls = wds.ResampledShards("a-{0..99}.tar").iterate(number)
            return [entry["url"] for entry in islice(urls, 50)]

        places = [(r, w, n) for r in (0, 1) for w in (0, 1) for n in (0, 1)]
        drawn_by = [drawn(*place) for place in places]
        assert len({tuple(urls) for urls in drawn_by}) == 8
        assert drawn_by == [drawn(*place) for place in places]

    def test_resampled_epochs_in_fresh_workers_continue_without_reading_again(self, tmp_path):
        dataset = wds.WebDataset(
            write_source(tmp_path, "a", shards=16, samples=2), resampled=True
        ).with_epoch(10)
        loader = DataLoader(dataset, batch_size=None, num_workers=1)
        epochs = [keys_of(loader) for _ in range(3)]
        assert [len(epoch) for epoch in epochs] == [10] * 3
        assert epochs[0] != epochs[1] != epochs[2]

    def test_a_custom_splitter_chooses_from_a_list(self):
        shards = wds.ShardList("a-{0..5}.tar", splitter=lambda urls: urls[::2])
        assert [entry["url"] for entry in shards] == ["a-0.tar", "a-2.tar", "a-4.tar"]

    def test_globs_and_directories_are_listed(self, tmp_path):
        write_source(tmp_path, "a", shards=3)
        assert len(wds.SimpleShardList(f"{tmp_path}/*.tar")) == len(wds.SimpleShardList(f"{tmp_path}/")) == 3

    @pytest.mark.parametrize("urls", [[], 7, ""])
    def test_values_that_are_not_urls_are_rejected(self, urls):
        with pytest.raises((wds.UrlError, UsageError)):
            wds.SimpleShardList(urls)

    def test_nested_splits_are_disjoint_and_complete(self, tmp_path, monkeypatch):
        urls = write_source(tmp_path, "a", shards=3, samples=20)
        seen = []
        for rank in range(2):
            for worker in range(4):
                for name, value in {
                    "RANK": rank,
                    "WORLD_SIZE": 2,
                    "WORKER": worker,
                    "NUM_WORKERS": 4,
                }.items():
                    monkeypatch.setenv(name, str(value))
                seen += keys_of(wds.WebDataset(urls, nodesplitter=wds.split_by_node))
        assert len(seen) == len(set(seen)) == 60

    def test_a_shuffle_before_the_split_is_the_same_for_all_workers(self, tmp_path):
        pipeline = wds.DataPipeline(
            wds.SimpleShardList(write_source(tmp_path, "a", shards=8)),
            wds.shuffle(100),
            wds.split_by_worker,
            wds.tarfile_to_samples(),
        )
        loader = DataLoader(pipeline, batch_size=None, num_workers=2)
        for _ in range(2):
            assert len(set(keys_of(loader))) == 80


class TestReading:
    def test_separate_steps_read_the_same_as_the_combined_stage(self, tmp_path):
        urls = write_source(tmp_path, "a", shards=2)
        steps = wds.DataPipeline(
            wds.SimpleShardList(urls), wds.url_opener, wds.tar_file_expander, wds.group_by_keys
        )
        assert list(steps) == list(wds.DataPipeline(wds.SimpleShardList(urls), wds.tarfile_to_samples))

    def test_plain_urls_are_shards(self, tmp_path):
        write_source(tmp_path, "a", shards=1)
        assert len(list(wds.DataPipeline([f"{tmp_path}/a-000.tar"], wds.tarfile_to_samples()))) == 10
        with pytest.raises(UsageError, match="an int is not a shard"):
            list(wds.DataPipeline([1], wds.tarfile_to_samples()))

    def test_a_missing_shard_is_skipped_or_ends_the_stream(self, tmp_path):
        write_source(tmp_path, "a", shards=1)
        urls = [f"{tmp_path}/none.tar", f"{tmp_path}/a-000.tar"]
        assert len(list(wds.WebDataset(urls, handler=wds.ignore_and_continue))) == 10
        assert list(wds.WebDataset(urls, handler=wds.ignore_and_stop)) == []
        rename = {"rename_files": str.lower}
        assert len(list(wds.WebDataset(urls, handler=wds.ignore_and_continue, **rename))) == 10
        with pytest.raises(ShardError, match=r"none\.tar"):
            list(wds.WebDataset(urls, **rename))

    def test_an_empty_stream_is_an_error_unless_allowed(self, tmp_path):
        write_shard(tmp_path / "empty.tar", [])
        write_shard(tmp_path / "none.tar", [(".hidden", {"txt": b"x"})])
        for name, seen in (("empty", "has no members"), ("none", "contain no samples")):
            with pytest.raises(ShardError, match=seen):
                list(wds.WebDataset(f"{tmp_path}/{name}.tar"))
        assert list(wds.WebDataset(f"{tmp_path}/empty.tar", empty_check=False)) == []

    def test_a_damaged_record_file_calls_the_handler(self, tmp_path):
        records = io.BytesIO()
        for i in range(3):
            cbor2.dump([i, "x"], records)
        (tmp_path / "a.cbors").write_bytes(records.getvalue()[:-1])
        shards = wds.SimpleShardList(f"{tmp_path}/a.cbors")
        with pytest.raises(ShardError, match=r"a\.cbors"):
            list(wds.DataPipeline(shards, wds.cbors_to_samples()))
        quiet = wds.DataPipeline(shards, wds.cbors_to_samples(handler=wds.ignore_and_continue))
        assert list(quiet) == [[0, "x"], [1, "x"]]

    def test_record_files_are_recognized_by_name(self, tmp_path):
        (tmp_path / "a.jsonl").write_text('{"txt": "one"}\n{"txt": "two"}\n')
        assert [s["txt"] for s in wds.WebDataset(f"{tmp_path}/a.jsonl")] == ["one", "two"]
        assert list(wds.DataPipeline([f"{tmp_path}/a.jsonl"], wds.tariterators.jsonl_to_samples))[1] == {
            "txt": "two"
        }


def remedy_in_python(error):
    """The argument that a message names for pipelines in Python, as a dict."""
    match = re.search(r"in Python: `(?:decode\()?([a-z_]+=[^`)]+)", str(error))
    return eval(f"dict({match[1]})")


class TestRemedies:
    """The argument that a message names for Python does what the message says."""

    @pytest.fixture
    def errors(self):
        return []

    @pytest.fixture(params=["one step", "one stage", "three steps"])
    def read(self, request, errors):
        def handler(error):
            errors.append(error)
            return True

        def read(url, **options):
            if request.param == "one stage":
                return list(
                    wds.DataPipeline([{"url": url}], wds.tarfile_to_samples(handler=handler, **options))
                )
            more = {"select_files": bool} if request.param == "three steps" else {}
            return list(wds.WebDataset(url, handler=handler, **more, **options))

        return read

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize(("start", "size", "count"), [("whole", 1024, 1), ("zeros", 10240, 0)])
    def test_an_incomplete_or_empty_tar_is_read_as_the_message_says(
        self, tmp_path, read, errors, start, size, count
    ):
        with wds.TarWriter(tmp_path / "a.tar") as writer:
            writer.write({"__key__": "a", "txt": "x"})
        whole = (tmp_path / "a.tar").read_bytes()
        (tmp_path / "b.tar").write_bytes(whole[:size] if start == "whole" else bytes(size))
        read(f"{tmp_path}/b.tar")
        assert len(read(f"{tmp_path}/b.tar", **remedy_in_python(errors.pop()))) == count
        assert errors == []

    @pytest.mark.parametrize("name", ["a.jsonl", "b.tar"])
    def test_a_shard_with_the_name_of_another_format_is_read_after_it_is_renamed(self, tmp_path, name):
        if name == "a.jsonl":
            with wds.TarWriter(tmp_path / name) as writer:
                writer.write({"__key__": "a", "txt": "x"})
        else:
            (tmp_path / name).write_text('{"txt": "x"}\n' * 100)
        with pytest.raises(ShardError) as caught:
            list(wds.WebDataset(f"{tmp_path}/{name}"))
        renamed = re.search(r"`\*(\.[a-z]+)`", str(caught.value))[1]
        (tmp_path / name).rename(tmp_path / f"c{renamed}")
        assert len(list(wds.WebDataset(f"{tmp_path}/c{renamed}"))) in (1, 100)

    def test_pickles_are_read_with_the_consent_that_the_message_names(self):
        objects = io.BytesIO()
        np.save(objects, np.array([None]), allow_pickle=True)
        for names, field, data in (
            ((), "pkl", pickle.dumps(1)),
            ((), "npy", objects.getvalue()),
            (("pyd",), "pyd", pickle.dumps(1)),
        ):
            sample = {"__key__": "a", field: data}
            with pytest.raises(wds.WdspecError) as caught:
                wds.Decoder(*names)(sample)
            assert wds.Decoder(*names, **remedy_in_python(caught.value))(sample)[field] in (1, [None])

    def test_samples_with_different_fields_are_batched_after_to_tuple(self):
        samples = wds.DataPipeline([{"__key__": "a", "x": 1}, {"__key__": "b", "y": 1}])
        with pytest.raises(FieldError, match=r"in Python: `to_tuple\(…, missing_is_error=False\)`"):
            list(samples.batched(2))
        batch = [[1, None], [None, 1]]
        assert [
            *map(list, next(iter(samples.to_tuple("x", "y", missing_is_error=False).batched(2))))
        ] == batch


SAMPLES = [{"__key__": f"{i}", "__url__": "u.tar", "jpg": b"j", "cls": b"1"} for i in range(4)]
PAIRS = [(1, 2), (3, 4)]
WRONG_ITEMS = {
    "a sample for map_tuple": (lambda p: p.map_tuple(str), SAMPLES, 'add `.to_tuple("jpg", "cls")`'),
    "samples in lists for map_tuple": (lambda p: p.listed(2).map_tuple(str), SAMPLES, "before `listed`"),
    "numbers for map_tuple": (lambda p: p.map_tuple(str), [1, 2], "an item of type int; use `map`"),
    "a text for map_tuple": (lambda p: p.map_tuple(str), ["ab"], "an item of type str; use `map`"),
    "samples in lists for unbatched": (lambda p: p.listed(4).unbatched(), SAMPLES, "use `.unlisted()`"),
    "a sample for unbatched": (lambda p: p.unbatched(), SAMPLES, "`.batched(n)`"),
    "a text for unbatched": (lambda p: p.unbatched(), ["ab"], "`.batched(n)`"),
    "a sample for unlisted": (lambda p: p.unlisted(), SAMPLES, "`.listed(n)`"),
    "a batch for unlisted": (lambda p: p.batched(2).unlisted(), SAMPLES, "use `.unbatched()`"),
    "a text for unlisted": (lambda p: p.unlisted(), ["ab"], "`.listed(n)`"),
    "a tuple for decode": (lambda p: p.decode(), PAIRS, "put `decode` before `to_tuple`"),
    "a batch for decode": (lambda p: p.batched(2).decode(), SAMPLES, "put `decode` before `batched`"),
    "a list for decode": (lambda p: p.listed(2).decode(), SAMPLES, "put `decode` before `listed`"),
    "a tuple for map_dict": (lambda p: p.map_dict(jpg=len), PAIRS, "put `map_dict` before `to_tuple`"),
    "a tuple for rename": (lambda p: p.rename(image="jpg"), PAIRS, "put `rename` before `to_tuple`"),
    "a tuple for rename_keys": (lambda p: p.rename_keys(image="jpg"), PAIRS, "put `rename_keys` before"),
    "a tuple for to_tuple": (lambda p: p.to_tuple("jpg"), PAIRS, "put `to_tuple` before `to_tuple`"),
    "a tuple for extract_keys": (lambda p: p.extract_keys("jpg"), PAIRS, "put `extract_keys` before"),
    "a tuple for xdecode": (lambda p: p.xdecode(jpg=str), PAIRS, "put `xdecode` before `to_tuple`"),
    "a batch for xdecode": (lambda p: p.batched(2).xdecode(jpg=str), SAMPLES, "before `batched`"),
    "a tuple for associate": (lambda p: p.associate({}), PAIRS, "put `associate` before `to_tuple`"),
    "a tuple for log_keys": (lambda p: p.log_keys("/dev/null"), PAIRS, "put `log_keys` before `to_tuple`"),
}


@pytest.mark.parametrize("case", WRONG_ITEMS)
def test_a_stage_names_the_call_that_is_missing_before_it(case):
    add, items, remedy = WRONG_ITEMS[case]
    with pytest.raises(UsageError, match=re.escape(remedy)) as error:
        list(add(wds.DataPipeline(items)))
    assert "j'" not in str(error.value), "values are not shown"


def test_no_handler_hides_that_a_stage_gets_the_wrong_kind_of_item():
    with pytest.raises(UsageError, match="put `decode` before `to_tuple`"):
        list(wds.DataPipeline(PAIRS).decode(handler=wds.ignore_and_continue))


def test_stages_of_names_take_batches_of_samples_too():
    batch = {"__key__": ["a", "b"], "jpg": [1, 2], "cls": [3, 4]}
    assert list(wds.DataPipeline([batch]).to_tuple("jpg", "cls")) == [([1, 2], [3, 4])]
    assert next(iter(wds.DataPipeline([batch]).rename(image="jpg")))["image"] == [1, 2]
    assert next(iter(wds.DataPipeline([batch]).map_dict(cls=sum)))["cls"] == 7
    assert [sample["cls"] for sample in wds.DataPipeline([batch]).unbatched()] == [3, 4]


@pytest.mark.parametrize("source", ["resampled", "repeated"])
def test_reading_without_an_end_and_without_an_item_is_an_error(tmp_path, source):
    write_shard(tmp_path / "a.tar", [("0", {"cls": b"1"})])
    if source == "resampled":
        samples = wds.WebDataset(str(tmp_path / "a.tar"), resampled=True)
    else:
        samples = wds.DataPipeline(wds.DataPipeline([{"__key__": "0"}]).repeat())
    assert next(iter(samples.batched(1))), "with items, it has no end"
    with pytest.raises(ShardError, match="without a single item"):
        list(samples.select(lambda sample: False).batched(4))


def test_shards_that_cannot_be_read_and_are_drawn_again_and_again_are_an_error(tmp_path):
    write_shard(tmp_path / "a.tar", [("0", {"cls": b"1"})])
    (tmp_path / "b.tar").write_bytes(b"damage" * 1000)
    handler = wds.ignore_and_continue
    one_works = wds.WebDataset(str(tmp_path / "{a,b}.tar"), resampled=True, handler=handler)
    assert len(list(islice(one_works, 100))) == 100, "one shard that works is enough"
    with pytest.raises(ShardError, match="without a single item"):
        list(wds.WebDataset(str(tmp_path / "b.tar"), resampled=True, handler=handler))
