"""A class that `map` names is built once in a process, however many sources and slots use it."""

import itertools

import pytest
from shardmaking import write_source

import wdspec

CODE = """
class Noted:
    made = []

    def __init__(self, **args):
        self.made.append(args)

    def __call__(self, sample):
        return {**sample, "object": id(self)}
"""


@pytest.fixture
def noted(tmp_path, monkeypatch):
    (tmp_path / "noted_in_map.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    import noted_in_map

    noted_in_map.Noted.made.clear()
    return noted_in_map.Noted


def sources(folder, **options):
    return [
        {"name": name, "shards": write_source(folder, name, 2, 9), "shuffle": 3, **options} for name in "abcd"
    ]


@pytest.mark.parametrize(
    ("where", "changes"),
    [
        ("spec", {"map": "noted_in_map:Noted"}),
        ("defaults", {"defaults": {"map": "noted_in_map:Noted"}}),
        ("a pass", {"map": "noted_in_map:Noted", "epoch": "pass", "elastic": {"ranks": 4, "workers": 5}}),
    ],
)
def test_four_sources_and_sixteen_slots_share_one_object(tmp_path, noted, where, changes):
    spec = {"dataset": sources(tmp_path), "elastic": {"ranks": 4, "workers": 4}, "batch": 2, **changes}
    for _ in itertools.islice(wdspec.compile(spec, rank=0, world_size=1), 20):
        pass
    assert noted.made == [{}], where


def test_different_arguments_build_different_objects(tmp_path, noted):
    call = {"call": "noted_in_map:Noted", "args": {"n": 1}}
    spec = {
        "dataset": sources(tmp_path, map=call),
        "map": [{**call, "args": {"n": True}}, {**call, "args": {"n": 1}}],
    }
    list(itertools.islice(wdspec.compile(spec), 40))
    assert noted.made == [{"n": 1}, {"n": True}]


def test_an_object_that_cannot_be_built_is_a_spec_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made_of_a_file.py").write_text(
        "class Words:\n    def __init__(self, path):\n        self.words = open(path).read().split()\n"
        "    def __call__(self, sample):\n        return {**sample, 'words': self.words}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    call = {"call": "made_of_a_file:Words", "args": {"path": "words.txt"}}
    spec = {"dataset": [{"shards": write_source(tmp_path, "a", 1, 4)}], "map": call, "batch": 2}
    with pytest.raises(
        wdspec.SpecError, match="Words` failed with these `args`: FileNotFoundError"
    ) as caught:
        next(iter(wdspec.loader(spec)))
    assert f"no file `words.txt` in {tmp_path}" in str(caught.value)
    (tmp_path / "words.txt").write_text("a b")
    assert next(iter(wdspec.loader(spec)))["words"] == [["a", "b"]] * 2
