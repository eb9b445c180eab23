"""`errors: skip` skips errors in the data, but never mistakes in the spec, its code or the environment."""

import itertools
import sys

import pytest
from hiding import hide_library
from shardmaking import write_shard, write_source

import wdspec

CODE = """
import wdspec

def lower(sample):
    return {**sample, "txt": sample["txt"].lowr()}

def needs(sample):
    import no_such_library
    return sample

def third(sample):
    return {**sample, "n": 1 / (int(sample["cls"]) % 3)}

def most(sample):
    return 1 / (int(sample["cls"]) % 3) > 0

def misuses(sample):
    wdspec.merge_states([])

def none(sample):
    return None

def refuses(data):
    raise ValueError("no such picture")

def missspells(data):
    return data.decod()

def knows(data):
    if int(data) % 3 == 0:
        raise wdspec.FieldError("no such picture")
    return int(data)
"""
DATA = ["shard", "decode"]


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Reads ten samples of a source whose `cls` counts from 0, under a policy, in this process."""
    (tmp_path / "skipping.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "skipping", raising=False)
    shards = write_source(tmp_path, "a", 1, 30)

    def read(skip=True, **source):
        spec = {
            "dataset": [{"name": "a", "shards": shards, "shuffle": 0, "order": "sequential", **source}],
            "errors": {"skip": skip},
        }
        return [sample["cls"] for sample in itertools.islice(wdspec.compile(spec), 10)]

    return read


EVERYTHING = [True, "shard decode map", ["shard", "decode", "map"]]


@pytest.mark.parametrize("skip", EVERYTHING)
@pytest.mark.parametrize(
    ("source", "error", "says"),
    [
        ({"decode": {"txt": "skipping:missspelt"}}, wdspec.SpecError, "has no `missspelt`"),
        ({"decode": {"txt": "no_such_module:f"}}, wdspec.SpecError, "cannot import `no_such_module`"),
        ({"map": "skipping:needs"}, ImportError, "no_such_library"),
        ({"map": "skipping:misuses"}, wdspec.UsageError, "no states to merge"),
    ],
)
def test_mistakes_in_the_spec_or_the_environment_are_never_skipped(read, skip, source, error, says):
    with pytest.raises(error, match=says):
        read(skip, **source)


def test_a_missing_library_is_not_a_bad_sample(tmp_path, monkeypatch):
    write_shard(tmp_path / "x.tar", [("k", {"mp": b"\x01"})])
    hide_library(monkeypatch, "msgpack")
    spec = {"dataset": [{"shards": f"{tmp_path}/x.tar"}], "errors": "skip"}
    with pytest.raises(wdspec.UsageError, match="msgpack"):
        next(iter(wdspec.compile(spec)))


@pytest.mark.parametrize("skip", [True, DATA, "shard"])
@pytest.mark.parametrize(
    ("source", "error"),
    [
        ({"map": "skipping:lower"}, AttributeError),
        ({"map": "skipping:third"}, ZeroDivisionError),
        ({"select": "skipping:most"}, ZeroDivisionError),
        ({"map": "skipping:none"}, wdspec.FieldError),
    ],
)
def test_errors_in_user_functions_are_not_data_errors(read, skip, source, error):
    with pytest.raises(error) as caught:
        read(skip, **source)
    if error is not wdspec.FieldError and hasattr(caught.value, "__notes__"):
        assert any("skip: [shard, decode, map]" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("skip", [*EVERYTHING[1:], "map"])
@pytest.mark.parametrize("source", [{"map": "skipping:third"}, {"select": "skipping:most"}])
def test_it_is_skipped_if_the_spec_names_it(read, skip, source):
    assert read(skip, **source) == [n for n in range(30) if n % 3][:10]


def test_a_function_that_rejects_bytes_makes_an_undecodable_field(read):
    with pytest.raises(wdspec.FieldError, match="no such picture"):
        read(False, decode={"cls": "skipping:refuses"})
    with pytest.raises(wdspec.ShardError, match=r"skipped: D203 30"):
        read(["shard", "decode", "map"], decode={"cls": "skipping:refuses"})


@pytest.mark.parametrize("skip", [True, DATA, "shard"])
@pytest.mark.parametrize("function", ["missspells", "refuses"])
def test_errors_in_a_user_decoder_are_not_data_errors(read, skip, function):
    with pytest.raises(wdspec.FieldError, match=f"cannot decode as skipping:{function}") as caught:
        read(skip, decode={"cls": f"skipping:{function}"})
    assert isinstance(caught.value.__cause__, (AttributeError, ValueError))


def test_a_user_decoder_can_raise_a_data_error(read):
    assert read(True, decode={"cls": "skipping:knows"}) == [n for n in range(30) if n % 3][:10]


@pytest.mark.parametrize(("suffix", "secure"), [("pyd", False), ("ten", False), ("pth", True)])
def test_fields_rejected_by_name_are_not_bad_samples(tmp_path, monkeypatch, suffix, secure):
    monkeypatch.setenv("WDS_SECURE", "1" if secure else "")
    write_shard(
        tmp_path / "x.tar", [(f"k{n}", {suffix: b"N."} if n % 2 else {"cls": b"1"}) for n in range(9)]
    )
    spec = {"dataset": [{"shards": f"{tmp_path}/x.tar"}], "errors": "skip"}
    with pytest.raises(wdspec.UsageError, match=rf"raw.*field {suffix}\]"):
        list(itertools.islice(wdspec.compile(spec), 4))


@pytest.mark.parametrize(
    ("skip", "raises"), [("decode", False), (True, False), ("shard", True), ("map", True), (False, True)]
)
def test_fields_are_a_separate_cause(tmp_path, skip, raises):
    write_shard(tmp_path / "x.tar", [(f"k{n}", {"cls": b"%d" % n if n % 2 else b"odd"}) for n in range(4)])
    spec = {"dataset": [{"shards": f"{tmp_path}/x.tar", "shuffle": 0}], "errors": {"skip": skip}}
    reading = iter(wdspec.compile(spec))
    if raises:
        with pytest.raises(wdspec.FieldError):
            next(reading)
    else:
        assert [next(reading)["cls"] for _ in range(2)] == [1, 3]


@pytest.mark.parametrize(("skip", "raises"), [("shard", False), (True, False), ("decode map", True)])
def test_shards_are_a_separate_cause(tmp_path, skip, raises):
    shards = [write_source(tmp_path, "a", 1, 3), f"{tmp_path}/gone.tar"]
    spec = {
        "dataset": [{"shards": shards, "shuffle": 0, "order": "sequential"}],
        "errors": {"skip": skip},
    }
    reading = iter(wdspec.compile(spec))
    if raises:
        with pytest.raises(wdspec.MissingShardError):
            list(itertools.islice(reading, 6))
    else:
        assert len(list(itertools.islice(reading, 6))) == 6


@pytest.mark.parametrize(
    ("skip", "says"), [("mapp", "did you mean `map`"), ([""], "E214"), (7, "E202"), ({"map": True}, "E202")]
)
def test_an_unknown_cause_is_a_problem_of_the_spec(skip, says):
    with pytest.raises(wdspec.SpecError, match=says):
        wdspec.load({"dataset": [{"shards": "a.tar"}], "errors": {"skip": skip}})


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_the_data_says_how_to_skip_it(tmp_path, workers):
    write_shard(tmp_path / "a.tar", [("0", {"cls": b"1"}), ("1", {"cls": b"one"})])
    spec = {"dataset": [{"shards": str(tmp_path / "a.tar"), "shuffle": 0}], "epoch": 2}
    with pytest.raises(wdspec.FieldError) as caught, wdspec.loader(spec, num_workers=workers) as loader:
        list(loader)
    [note] = caught.value.__notes__
    assert note.startswith("`errors: skip` leaves out")
