"""WDS_SECURE means the same wherever it is asked: any value but empty, 0, false, no and off forbids."""

import os
import pickle
from pathlib import Path

import pytest

from wdspec import load
from wdspec.errors import SpecError, UrlError
from wdspec.fields.decoder_handlers import Decoder
from wdspec.fields.sample_fields import SampleFields
from wdspec.secure import secure_mode
from wdspec.spec.language.models import Source, Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.urls.sequence import ShardUrl

FORBIDS = ["1", "true", "True", "yes", "on", "ON", "2", " 1 ", "forbid", "truee"]
ALLOWS = ["", " ", "0", "false", "FALSE", "no", "No", "off", "OFF", " 0 "]


def load_a_map() -> None:
    load({"map": "os.path:basename", "dataset": [{"shards": "a.tar"}]})


def resolve_a_program() -> None:
    spec = Spec(dataset=(Source(name="a", shards=("x",)),))
    Storage.of(Environment.read(), spec, spec.sources[0])(ShardUrl("pipe:cat x", "/"))


def decode_by_a_function() -> None:
    SampleFields(names=("os.path:basename",))


def read_pickles_of_a_spec() -> None:
    SampleFields(names=("pyd",), allow_pickle=True)


def handlers_by_a_function() -> None:
    Decoder("os.path:basename")({"__key__": "1", "x": b"a/b"})


def handlers_by_pickle() -> None:
    Decoder("pyd", allow=["pickle"])({"__key__": "1", "pyd": pickle.dumps(1)})


PLACES = [
    load_a_map,
    resolve_a_program,
    decode_by_a_function,
    read_pickles_of_a_spec,
    handlers_by_a_function,
    handlers_by_pickle,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("value", FORBIDS)
def test_any_other_value_forbids_everywhere(place, value, monkeypatch):
    monkeypatch.setenv("WDS_SECURE", value)
    with pytest.raises((SpecError, UrlError), match="WDS_SECURE"):
        place()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("value", ALLOWS)
def test_the_words_for_off_allow_everywhere(place, value, monkeypatch):
    monkeypatch.setenv("WDS_SECURE", value)
    place()


def test_unset_allows_and_any_mapping_may_be_asked(monkeypatch):
    monkeypatch.delenv("WDS_SECURE", raising=False)
    assert not secure_mode()
    assert secure_mode({"WDS_SECURE": "x"})
    assert not secure_mode({})


def test_one_file_reads_it():
    root = Path(__import__("wdspec").__file__).parent
    quoted = [f"{q}WDS_SECURE{q}" for q in ("'", '"')]
    texts = {path: path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    found = [path for path, text in texts.items() if any(each in text for each in quoted)]
    assert [os.path.relpath(path, root) for path in found] == ["secure.py"]
