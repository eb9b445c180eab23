"""Configurations of Hydra and OmegaConf work wherever a dict does."""

import sys

import pytest
from omegaconf import OmegaConf
from shardmaking import write_source

import wdspec
from wdspec.base.errors import SpecError

CONFIG = r"""
root: {folder: shards, size: 2}
dataset:
  - {name: a, shards: "${root.folder}/a-{000..001}.tar", weight: 1}
  - {name: b, shards: ['\${where}/b.tar'], weight: "${root.size}"}
"""


def whole():
    """As a Hydra application has it: the data are a part of a larger configuration."""
    made = OmegaConf.create({"root": {"folder": "shards", "size": 2}, "data": {}})
    made.data = OmegaConf.create(CONFIG)
    del made.data["root"]
    return made.data


def test_it_loads_like_a_dict():
    spec = wdspec.load(whole(), vars=OmegaConf.create({"where": "gs://b"}))
    assert [source.shards for source in spec.sources] == [("shards/a-{000..001}.tar",), ("gs://b/b.tar",)]
    assert spec.sources[1].weight == 2
    changed = wdspec.load(whole(), vars={"where": "x"}, overrides=OmegaConf.create({"batch": {"size": 3}}))
    assert changed.batch.size == 3
    assert wdspec.load({"dataset": whole().dataset}, vars={"where": "x"}).sources[0].name == "a"


def test_everything_that_accepts_a_spec_accepts_it(tmp_path):
    write_source(tmp_path, "a", shards=2, samples=3)
    made = OmegaConf.create({"dataset": [{"shards": f"{tmp_path}/a-*.tar"}], "batch": 2, "epoch": 4})
    assert len(wdspec.plan(made).sources[0].shards) == 2
    assert len(list(wdspec.compile(made))) == 2
    with wdspec.loader(made) as loader:
        assert len(list(loader)) == 2
    assert next(iter(wdspec.WebDataset(made)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "dataset: [{shards: '${nowhere}/a.tar'}]",
            r"Interpolation key 'nowhere' not found.*\n?.*`\\\$\{name\}`",
        ),
        (
            "dataset: [{shards: '???'}]",
            "^spec: E107 OmegaConf cannot resolve .*: Missing mandatory value",
        ),
        ("dataset: [{shards: a.tar, wieght: 1}]", "did you mean `weight`"),
    ],
)
def test_errors_in_it_are_problems_of_the_spec(text, says):
    with pytest.raises(SpecError, match=f"(?s){says}"):
        wdspec.load(OmegaConf.create(text))


def test_wdspec_does_not_import_omegaconf(monkeypatch):
    monkeypatch.delitem(sys.modules, "omegaconf")
    wdspec.load({"dataset": [{"shards": "a.tar"}]})
    assert "omegaconf" not in sys.modules
