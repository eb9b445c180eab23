"""Stages with patterns of names, and the names of webdataset that are missing here."""

import json
import pickle

import pytest
import webdataset

import wdspec as wds
from wdspec.base.replacements import NAMES

SAMPLES = [
    {"__key__": "a", "left.png": b"1", "cls": b"2", "json": b"null"},
    {"__key__": "b", "png": b"3", "cls": b"4", "json": b"{}"},
]


def test_extract_keys_returns_the_same_as_webdataset():
    for arguments in [("*.png", "cls"), ("*.left.png;png", "c*"), ("cls",)]:
        theirs = list(webdataset.extract_keys(*arguments)(iter(SAMPLES)))
        assert list(wds.DataPipeline(SAMPLES).extract_keys(*arguments)) == theirs
    assert list(wds.extract_keys("x", "cls", ignore_missing=True)(SAMPLES)) == [(b"2",), (b"4",)]


def test_extract_keys_names_fields_that_do_not_match():
    with pytest.raises(
        wds.FieldError, match=r"no field matches `x`; the sample has: left.png, cls, json.*key a"
    ):
        list(wds.extract_keys("x")(SAMPLES))
    with pytest.raises(wds.FieldError, match=r"left.png, cls, json all match `\.\*`"):
        list(wds.extract_keys(".*")([{k: v for k, v in SAMPLES[0].items() if k != "__key__"}]))
    assert list(wds.extract_keys("left.png", handler=wds.ignore_and_continue)(SAMPLES)) == [(b"1",)]


def read_int(stream):
    return int(stream.read())


def test_xdecode_decodes_with_stream_functions():
    pipeline = wds.DataPipeline(SAMPLES).xdecode(("*.png", None), cls=read_int, json=json.load)
    pipeline = pickle.loads(pickle.dumps(pipeline))
    first, second = pipeline
    assert first == {"__key__": "a", "left.png": b"1", "cls": 2, "json": None}
    assert second["json"] == {}
    with pytest.raises(wds.FieldError, match=r"cls=f.*key a, field cls"):
        list(wds.xdecode(png=read_int)(SAMPLES))
    assert next(wds.xdecode(must_decode=False)(SAMPLES)) == SAMPLES[0]
    with pytest.raises(wds.FieldError, match=r"JSONDecodeError.*field cls"):
        list(wds.xdecode(cls=json.load, must_decode=False)([{"__key__": "a", "cls": b"{"}]))


def test_associate_adds_fields_by_key_without_changing_the_sample():
    pipeline = wds.DataPipeline(SAMPLES).associate({"a": {"x": 1}})
    assert [sample.get("x") for sample in pipeline] == [1, None]
    assert "x" not in SAMPLES[0]
    assert [s["y"] for s in wds.associate(lambda key: {"y": key * 2})(SAMPLES)] == ["aa", "bb"]


def test_log_keys_appends_a_line_per_sample(tmp_path):
    pipeline = wds.DataPipeline(SAMPLES).log_keys(tmp_path / "keys")
    assert [list(pipeline), list(pipeline)] == [SAMPLES, SAMPLES]
    assert (tmp_path / "keys").read_text() == "0\t0\t0\ta\n1\t0\t0\tb\n" * 2
    assert list(wds.log_keys()(SAMPLES)) == SAMPLES


def test_non_empty_passes_items_on_and_rejects_an_empty_stream():
    assert list(wds.DataPipeline(SAMPLES, wds.non_empty)) == SAMPLES
    with pytest.raises(wds.UsageError, match="got no items"):
        list(wds.DataPipeline([[]], wds.non_empty))


def test_to_tuple_can_reject_none():
    pipeline = wds.DataPipeline(SAMPLES).decode(only="json")
    assert list(pipeline.to_tuple("json")) == [(None,), ({},)]
    with pytest.raises(wds.FieldError, match=r"`json` is None.*key a"):
        list(pipeline.to_tuple("json", none_is_error=True))
    skipping = pipeline.to_tuple("json", none_is_error=True, handler=wds.ignore_and_continue)
    assert list(skipping) == [({},)]


def test_every_public_name_of_webdataset_exists_or_names_a_replacement():
    for name in dir(webdataset):
        value = getattr(webdataset, name)
        if name.startswith("_") or type(value).__name__ == "module":
            continue
        if name in wds.__all__:
            assert name not in NAMES
        else:
            with pytest.raises(AttributeError, match="; use "):
                getattr(wds, name)


@pytest.mark.parametrize("name", ["jsonl_to_samples", "msgpacks_to_samples"])
def test_readers_of_records_name_their_module(name):
    with pytest.raises(AttributeError, match=rf"; use wdspec\.tariterators\.{name}$"):
        getattr(wds, name)
    assert callable(getattr(wds.tariterators, name))


def test_every_method_of_webdataset_exists_or_names_a_replacement():
    pipeline = wds.DataPipeline([1])
    own = {"create_url_iterator", "iterator1", "update_cache_info"}  # not for users
    for name in set(dir(webdataset.WebDataset)) - set(dir(wds.WebDataset)) - own:
        if not name.startswith("_"):
            with pytest.raises(AttributeError, match="; use "):
                getattr(pipeline, name)
    with pytest.raises(AttributeError, match=r"'DataPipeline' has no attribute 'bathced'$"):
        _ = pipeline.bathced


@pytest.mark.parametrize(
    ("use", "error", "hint"),
    [
        (lambda: wds.IndexedTarSamples, AttributeError, "wdspec ls"),
        (lambda: wds.wids, AttributeError, "wdspec convert"),
        (lambda: wds.ChoppedDataset, AttributeError, "with_epoch"),
        (lambda: wds.DataPipeline([1]).ddp_equalize, AttributeError, "with_epoch"),
        (lambda: wds.DataPipeline([1]).then, AttributeError, "compose"),
        (lambda: wds.DataPipeline([1]).set_length, AttributeError, "with_length"),
        (lambda: wds.WebDataset("a.tar", splitter=list), TypeError, "nodesplitter= or workersplitter="),
        (lambda: wds.WebDataset("a.tar", rng=1), TypeError, "seed="),
    ],
)
def test_names_of_older_webdatasets_have_a_hint(use, error, hint):
    with pytest.raises(error, match=hint):
        use()
