"""WDS_SECURE means the same everywhere: any value except empty, 0, false, no and off forbids."""

import os
import pickle
from pathlib import Path

import pytest

import wdspec
from wdspec import Decoder, load
from wdspec.base.errors import SpecError, UrlError, UsageError
from wdspec.base.user_code import secure_mode
from wdspec.fields.samples import SampleFields
from wdspec.spec.spec import Source, Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.urls.urls import ShardUrl

FORBIDS = ["1", "true", "True", "yes", "on", "ON", "2", " 1 ", "forbid", "truee"]
ALLOWS = ["", " ", "0", "false", "FALSE", "no", "No", "off", "OFF", " 0 "]


def load_a_map() -> None:
    load({"map": "os.path:basename", "dataset": [{"shards": "a.tar"}]})


def resolve_a_program() -> None:
    spec = Spec(dataset=(Source(name="a", shards=("x",)),))
    Storage.of(Environment.read(), spec, spec.sources[0]).resolve(ShardUrl("pipe:cat x", "/"))


def decode_by_a_function() -> None:
    SampleFields(names=("os.path:basename",))


def read_pickles_of_a_spec() -> None:
    SampleFields(names=("pyd",), allow_pickle=True)


def handlers_by_a_function() -> None:
    Decoder("os.path:basename")({"__key__": "1", "x": b"a/b"})


def handlers_by_pickle() -> None:
    Decoder("pyd", allow=["pickle"])({"__key__": "1", "pyd": pickle.dumps(1)})


def a_stage_by_a_function() -> None:
    wdspec.DataPipeline([]).decode("os.path:basename")


def a_stage_by_pickle() -> None:
    wdspec.decode("pyd", allow=["pickle"])


def a_pipeline_of_a_spec() -> None:
    dataset = {"shards": "examples/data/digits-a-000000.tar.bz2", "decode": {"cls": "os.path:basename"}}
    wdspec.DataPipeline(wdspec.compile({"dataset": [dataset]}))


def a_handler_of_images() -> None:
    try:
        wdspec.autodecode.imagehandler("os.path:basename")
    except SpecError as error:
        if "not an image decoder" not in str(error):
            raise


def a_tar_for_a_program() -> None:
    wdspec.TarWriter("pipe:cat > /dev/null").abort()


def shards_for_a_program() -> None:
    writer = wdspec.ShardWriter("pipe:cat > /dev/null; : %d", verbose=0)
    try:
        writer.write({"__key__": "1", "txt": "a"})
    finally:
        writer.abort()


PLACES = [
    a_stage_by_a_function,
    a_stage_by_pickle,
    a_pipeline_of_a_spec,
    a_handler_of_images,
    a_tar_for_a_program,
    shards_for_a_program,
    load_a_map,
    resolve_a_program,
    decode_by_a_function,
    read_pickles_of_a_spec,
    handlers_by_a_function,
    handlers_by_pickle,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("value", FORBIDS)
def test_any_other_value_forbids_pickle_everywhere(place, value, monkeypatch):
    monkeypatch.setenv("WDS_SECURE", value)
    with pytest.raises((SpecError, UrlError), match="WDS_SECURE"):
        place()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("value", ALLOWS)
def test_the_values_for_off_allow_pickle_everywhere(place, value, monkeypatch):
    monkeypatch.setenv("WDS_SECURE", value)
    place()


@pytest.mark.parametrize("copy", [lambda made: made, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_decoder_keeps_the_setting_from_its_creation(copy, monkeypatch):
    sample = {"__key__": "1", "pyd": pickle.dumps(1)}
    makers = (
        lambda **options: Decoder(**options),
        lambda **options: wdspec.DataPipeline([dict(sample)]).decode(**options),
    )
    for make in makers:
        monkeypatch.setenv("WDS_SECURE", "on")
        secure = copy(make())
        monkeypatch.delenv("WDS_SECURE")
        trusting = copy(make(allow=["pickle"]))
        with pytest.raises(UsageError, match="which WDS_SECURE=1 forbids"):
            next(iter(secure)) if isinstance(secure, wdspec.DataPipeline) else secure(sample)
        monkeypatch.setenv("WDS_SECURE", "on")
        given = next(iter(trusting)) if isinstance(trusting, wdspec.DataPipeline) else trusting(sample)
        assert given["pyd"] == 1


def test_a_stage_that_never_unpickles_needs_no_setting(monkeypatch):
    for value in ("", "1"):
        monkeypatch.setenv("WDS_SECURE", value)
        stage = wdspec.xdecode(must_decode=False)
        assert next(stage([{"__key__": "1", "pyd": b"x"}]))["pyd"] == b"x"


def test_unset_allows_and_any_mapping_works(monkeypatch):
    monkeypatch.delenv("WDS_SECURE", raising=False)
    assert not secure_mode()
    assert secure_mode({"WDS_SECURE": "x"})
    assert not secure_mode({})


def test_one_file_reads_it():
    root = Path(__import__("wdspec").__file__).parent
    quoted = [f"{q}WDS_SECURE{q}" for q in ("'", '"')]
    texts = {path: path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    found = [path for path, text in texts.items() if any(each in text for each in quoted)]
    # The table of all variables that matter has its name.
    assert sorted(os.path.relpath(path, root) for path in found) == [
        "base/user_code.py",
        "storage/environment.py",
    ]
