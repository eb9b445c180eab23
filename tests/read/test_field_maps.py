"""`map` by field: any function of one value, and methods of objects that are built once per worker."""

import io
import warnings

import numpy as np
import pytest
from shardmaking import write_shard, write_source

import wdspec
from wdspec.base.errors import FieldError, SpecError
from wdspec.spec.load import load

CODE = """
made = []

class Tokenizer:
    def __init__(self, words):
        made.append(words)
        self.words = words

    @classmethod
    def named(cls, name):
        return cls({"short": 2, "long": 9}[name])

    def encode(self, text, start=0):
        return [start, *(len(word) for word in text.split())][: self.words]

    def __call__(self, text):
        return text[: self.words]

def upper(text):
    return text.upper()

def double(number):
    return 2 * number

def nothing(value):
    return None
"""


@pytest.fixture(autouse=True)
def words(tmp_path, monkeypatch):
    (tmp_path / "words_of_a_field.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    import words_of_a_field

    words_of_a_field.made.clear()
    return words_of_a_field


def first(folder, map, **more):
    source = {"shards": write_source(folder, "a", 1, 4), "shuffle": 0, "order": "sequential", **more}
    return next(iter(wdspec.compile({"dataset": [source], "map": map})))


M = "words_of_a_field:"
NAMED = {"call": f"{M}Tokenizer.named", "args": {"name": "short"}, "method": "encode", "with": {"start": 7}}


@pytest.mark.parametrize(
    ("map", "txt", "cls"),
    [
        ({"txt": f"{M}upper"}, "A 0 0", 0),
        ({"txt": f"{M}upper", "cls": [f"{M}double", f"{M}double"]}, "A 0 0", 0),
        ([{"txt": [f"{M}upper", {"call": f"{M}Tokenizer", "args": {"words": 3}}]}], "A 0", 0),
        ({"txt": NAMED}, [7, 1], 0),
    ],
)
def test_functions_of_one_value(tmp_path, map, txt, cls):
    sample = first(tmp_path, map)
    assert (sample["txt"], sample["cls"]) == (txt, cls)
    assert sample["__key__"] == "a0000000"


def test_an_object_is_built_once_and_shared_by_fields_and_sources(tmp_path, words):
    other = {**NAMED, "with": {}}
    source = {"map": [{"txt": other}, {"copy": NAMED}], "tags": {}}
    shards = [
        {"name": n, "shards": write_source(tmp_path, n, 2, 4), "map": "words_of_a_field:copied"} for n in "ab"
    ]
    words.copied = lambda sample: {**sample, "copy": sample["txt"]}
    samples = [
        s for s, _ in zip(wdspec.compile({"dataset": shards, "map": source["map"]}), range(12), strict=False)
    ]
    assert {len(sample["txt"]) for sample in samples} == {2}
    assert words.made == [2]


def test_none_stays_none(tmp_path):
    sample = first(tmp_path, {"json": f"{M}upper"}, extensions="txt json", missing="none")
    assert sample["json"] is None


@pytest.mark.parametrize(
    ("map", "said"),
    [
        ({"text": f"{M}upper"}, "names a field that the sample does not have; it has txt, cls"),
        ({"txt": f"{M}nothing"}, "returned None; to drop samples use `select`"),
    ],
)
def test_an_error_in_a_field_is_reported(tmp_path, map, said):
    with pytest.raises(FieldError, match=said) as caught:
        first(tmp_path, map)
    assert caught.value.place["key"] == "a0000000"


@pytest.mark.parametrize(
    ("map", "said"),
    [
        ({"txt": {**NAMED, "method": "enocde"}}, "returns a Tokenizer, which has no method `enocde`"),
        ({"txt": {**NAMED, "with": {"begin": 1}}}, "has no argument `begin`"),
        ({"txt": {**NAMED, "args": {"nmae": "short"}}}, "has no argument `nmae`"),
    ],
)
def test_mistakes_in_objects_are_reported(tmp_path, map, said):
    with pytest.raises(SpecError, match=said):
        first(tmp_path, map)


@pytest.mark.parametrize(
    ("map", "said"),
    [
        ({"txt": {"cls": "m:f"}}, "expected a function of `txt`"),
        ({"txt": 3}, "expected the name of a function"),
        ({"txt": "m.f"}, "E208"),
        ({"txt": {"call": "m:f", "methd": "g"}}, "did you mean `method`"),
        ({"call": "m:f", "methd": "g"}, "did you mean `method`"),
        ({"call": "m:f", "with": {"a": 1}}, "`with` has arguments of a method"),
        ({"args": {"a": 1}}, "`call` is missing"),
    ],
)
def test_mistakes_in_the_spec_are_reported_on_load(map, said):
    with pytest.raises(SpecError, match=said):
        load({"dataset": [{"shards": "a.tar"}], "map": map})


@pytest.mark.parametrize("call", ["flipping:Flip", {"field": "flipping:Flip"}], ids=["sample", "field"])
def test_a_transform_of_torchvision_that_ignores_arrays_warns_once(tmp_path, monkeypatch, call):
    (tmp_path / "flipping.py").write_text(
        "class Flip:\n"
        "    __module__ = 'torchvision.transforms.v2._geometry'\n"
        "    def __call__(self, value):\n"
        "        return dict(value) if isinstance(value, dict) else value\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    numbers = io.BytesIO()
    np.save(numbers, np.arange(6))
    files = {"npy": numbers.getvalue(), "txt": b"x"}
    write_shard(tmp_path / "a.tar", [(f"{n}", files) for n in range(8)])
    call = {"npy": call["field"]} if isinstance(call, dict) else call
    spec = {"dataset": [{"shards": str(tmp_path / "a.tar"), "map": call}], "batch": 4}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batches = iter(wdspec.loader(spec))
        next(batches), next(batches)
    said = [str(each.message) for each in caught if "flipping:Flip" in str(each.message)]
    assert len(said) == 1
    assert "leaves `npy` as it is, a numpy array; decode it with `torchrgb8`" in said[0]
