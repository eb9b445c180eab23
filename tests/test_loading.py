"""Loading a spec: merging, variables, names, paths, scales, splits, environments."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wdspec.base.errors import SpecError, UsageError
from wdspec.spec.load import check, load
from wdspec.spec.spec import Spec

Write = Callable[..., None]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("WDS")]:
        monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def write(here: Path) -> Write:
    def write(**files: str) -> None:
        for name, text in files.items():
            (here / f"{name}.yaml").write_text(text)

    return write


def codes(*arguments: Any, **choices: Any) -> list[str]:
    return [problem.code for problem in check(*arguments, **choices)[1]]


def errors(*arguments: Any, **choices: Any) -> list[str]:
    return [code for code in codes(*arguments, **choices) if code.startswith("E")]


OPENING = """\
dataset:
  - shards: gs://nvdata-ocropus-tess/ia1-{000000..000033}.tar
    scaleprob: 0.3
  - shards: gs://nvdata-ocropus-tess/cdipsub-{000000..000022}.tar
    scale: [1.0, 3.0]
  - shards: gs://nvdata-ocropus-tess/gsub-{000000..000167}.tar
    scale: [0.4, 1.0]
  - shards: gs://nvdata-ocropus-tess/bin-gsub-{000000..000167}.tar
    extensions: nrm.jpg
    scale: [0.3, 1.0]
  - shards: gs://nvdata-ocropus/rendered.tar
    scaleprob: 1.0
"""

FULL = """\
wdspec: 1
name: pages
seed: 17
vars: {bucket: gs://nvdata-ocropus-tess}
defaults:
  decode: rgb
  shuffle: 1000
  extensions: jpg;png txt
  rename: {image: jpg, text: txt}
dataset:
  - name: archive
    shards: ${bucket}/ia1-{000000..000033}.tar
    probability: 0.6
    scale: [0.5, 2.0]
    scaleprob: 0.3
  - name: synthetic
    probability: 0.4
    dataset:
      - {shards: "${bucket}/gsub-{000000..000167}.tar", weight: 3}
      - {shards: "${bucket}/bin-gsub-{000000..000167}.tar", weight: 1, extensions: nrm.jpg txt,
         rename: {image: nrm.jpg}}
mix: {draw: even}
map: mylib.augment:train_transform
fields: [image, text]
batch: {global_size: 512}
epoch: {samples: 1_000_000}
elastic: {ranks: 16, workers: 8}
rewrite:
  - {from: "gs://", to: "/shared/data/"}
aistore: {endpoint: "http://nix:51080", use_for: [gs]}
cache: {dir: /scratch/wds, size: 500GB}
errors: {max_rate: 0.001}
loader: {workers: 8, prefetch: 4, pin_memory: true}
environments:
  laptop: {rewrite: [{from: "gs://", to: "./data/"}], epoch: 2048, loader: {workers: 2},
          elastic: {ranks: 1, workers: 2}}
"""


def test_the_opening_document_loads_unchanged(write: Write) -> None:
    write(spec=OPENING)
    spec, problems = check("spec.yaml")
    assert {problem.code for problem in problems} == {"W372"}  # scales that are drawn from the default range
    assert spec is not None
    assert [source.name for source in spec.sources] == ["ia1", "cdipsub", "gsub", "bin-gsub", "rendered"]
    assert [(s.scale, s.scaleprob) for s in spec.sources] == [
        ((0.5, 2.0), 0.3),
        ((1.0, 3.0), 1.0),
        ((0.4, 1.0), 1.0),
        ((0.3, 1.0), 1.0),
        ((0.5, 2.0), 1.0),
    ]
    assert all(source.decode is not None and source.decode.names == ("rgb8",) for source in spec.sources)
    assert spec.sources[3].extensions == ("nrm.jpg",)


def test_the_full_document_has_no_error(write: Write) -> None:
    write(spec=FULL)
    assert codes("spec.yaml") == ["W361", "W351"]  # 34 shards for 128 slots; a million is no multiple of 512


def test_the_full_document_loads_as_expected(write: Write, here: Path) -> None:
    write(spec=FULL)
    spec = load("spec.yaml")
    archive, synthetic = spec.dataset
    assert (archive.probability, synthetic.probability) == (0.6, 0.4)
    gsub, bin_gsub = synthetic.dataset or ()
    assert (gsub.weight, bin_gsub.weight) == (3, 1)
    assert gsub.shards == ("gs://nvdata-ocropus-tess/gsub-{000000..000167}.tar",)
    assert gsub.extensions == ("jpg;png", "txt")
    assert bin_gsub.rename == {"image": ("nrm.jpg",), "text": ("txt",)}
    assert [source.name for source in spec.sources] == ["archive", "gsub", "bin-gsub"]
    assert spec.map[0].call == "mylib.augment:train_transform"
    assert spec.batch is not None
    assert spec.batch.global_size == 512
    assert spec.epoch is not None
    assert spec.epoch.samples == 1_000_000
    assert spec.errors.skip
    assert spec.cache is not None
    assert (spec.cache.dir, spec.cache.size) == ("/scratch/wds", 500 * 10**9)
    assert spec.errors.max_rate == 0.001
    assert spec.rewrite[0].origin == "spec.yaml:29"
    laptop = load("spec.yaml", env="laptop")
    assert laptop.environment == "laptop"
    assert laptop.loader.workers == 2
    assert laptop.loader.prefetch == 4
    assert [rule.replacement for rule in laptop.rewrite] == [f"{here}/data/", "/shared/data/"]
    assert [rule.origin.startswith("environment laptop") for rule in laptop.rewrite] == [True, False]
    assert laptop.epoch is not None
    assert laptop.epoch.samples == 2048


def test_a_dict_a_file_and_a_spec_load_the_same(write: Write) -> None:
    write(spec="dataset: [{shards: a.tar, weight: 1}]\nseed: 3\n")
    by_file = load("spec.yaml")
    by_dict = load({"dataset": [{"shards": "a.tar", "weight": 1}], "seed": 3})
    assert by_file.folder == os.getcwd()
    dataset = tuple(s.model_copy(update={"position": None}) for s in by_file.dataset)
    bare = {"file": None, "folder": "", "dataset": dataset}
    again = {"dataset": tuple(s.model_copy(update={"position": None}) for s in by_dict.dataset)}
    assert by_file.model_copy(update=bare) == by_dict.model_copy(update=again)
    assert load(by_file) is by_file
    with pytest.raises(UsageError):
        load(by_file, split="val")
    with pytest.raises(UsageError):
        load(3)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1_000_000", 1_000_000),
        ("1e6", 1_000_000),
        ("0x10", 16),
        ("0o17", 15),
        ("007", 7),
        ("'1_0'", 10),
    ],
)
def test_integers_in_all_spellings(text: str, value: int, write: Write) -> None:
    write(spec=f"dataset: [{{shards: a.tar}}]\nlimit: {text}\n")
    assert load("spec.yaml").limit == value


def test_scalars_are_those_of_yaml_1_2(write: Write) -> None:
    words = "[yes, on, 1:30, 1e-3, .5, 0b1, ~, True, 2024-01-01, 1_0, 1__0, _1, 0x1F, '1', 1., +3]"
    write(spec=f"dataset: [{{shards: a.tar, tags: {{x: {words}}}}}]\n")
    expected = [
        "yes",
        "on",
        "1:30",
        0.001,
        0.5,
        "0b1",
        None,
        True,
        "2024-01-01",
        10,
        "1__0",
        "_1",
        31,
        "1",
        1.0,
        3,
    ]
    assert load("spec.yaml").sources[0].tags["x"] == expected


def test_extends_merges_left_to_right_below_the_file(write: Write) -> None:
    write(
        a="seed: 1\nname: a\nloader: {workers: 1, prefetch: 2}\nallow: [pickle]\nrewrite: [{from: a, to: /a}]\n",
        b="seed: 2\nloader: {workers: 3}\nrewrite: [{from: b, to: /b}]\ndataset: [{shards: b.tar}, {shards: c.tar}]\n",
        spec="extends: [a.yaml, b.yaml]\ndataset: [{shards: s.tar}]\nname: null\nrewrite: [{from: s, to: /s}]\n",
    )
    spec = load("spec.yaml")
    assert (spec.seed, spec.name) == (2, None)
    assert (spec.loader.workers, spec.loader.prefetch) == (3, 2)
    assert [rule.pattern for rule in spec.rewrite] == ["s", "b", "a"]
    assert [source.name for source in spec.sources] == ["s"]
    assert spec.allow == ("pickle",)


def test_null_removes_and_an_overlay_can_remove_what_a_base_sets(write: Write) -> None:
    write(
        base="batch: 4\nlimit: 3\ndataset: [{shards: a.tar}]\n",
        spec="extends: base.yaml\nlimit: null\nenvironments: {bare: {batch: null, limit: 7}}\n",
    )
    plain, bare = load("spec.yaml"), load("spec.yaml", env="bare")
    assert plain.batch is not None
    assert plain.limit is None
    assert bare.batch is None
    assert bare.limit == 7


def test_problems_in_a_base_are_reported_in_the_base(write: Write) -> None:
    write(base="sead: 1\n", spec="extends: base.yaml\ndataset: [{shards: a.tar}]\nlimt: 3\n")
    assert [(p.file, p.code) for p in check("spec.yaml")[1]] == [("spec.yaml", "E201"), ("base.yaml", "E201")]


def test_splits_inherit_the_top_and_must_be_chosen(write: Write) -> None:
    splits = "splits: {train: {dataset: [{shards: t.tar}], batch: 8}, val: {dataset: [{shards: v.tar}], epoch: pass}}\n"
    write(spec="seed: 5\nbatch: 4\n" + splits)
    with pytest.raises(SpecError, match=r"E103 the spec has splits.*(?s:.*)`train`, `val`"):
        load("spec.yaml")
    with pytest.raises(SpecError, match="choose one of `train`: write `split='train'`"):
        load({"splits": {"train": {"dataset": [{"shards": "t.tar"}]}}})
    train, val = load("spec.yaml", split="train"), load("spec.yaml#val")
    assert (train.split, val.split) == ("train", "val")
    assert train.batch
    assert val.batch
    assert (train.batch.size, val.batch.size) == (8, 4)
    assert val.sources[0].shards == ("v.tar",)
    assert codes("spec.yaml") == []
    with pytest.raises(SpecError, match="did you mean `train`"):
        load("spec.yaml#trian")
    with pytest.raises(UsageError):
        load("spec.yaml#val", split="train")


def test_all_splits_and_environments_are_checked_when_none_is_chosen(write: Write) -> None:
    write(
        spec="splits:\n  a: {dataset: [{shards: a.tar}], limit: x}\n  b: {dataset: [{shards: b.tar, wait: 1}]}\n"
        "environments:\n  e: {seed: y}\n"
    )
    assert [(p.code, p.line) for p in check("spec.yaml")[1]] == [("E202", 2), ("E201", 3), ("E202", 5)]
    assert codes("spec.yaml", split="b", env="e") == ["E201", "E202"]


def test_the_environment_may_come_from_a_variable(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write(spec="dataset: [{shards: a.tar}]\nenvironments: {laptop: {limit: 3}}\n")
    monkeypatch.setenv("WDSPEC_ENV", "laptop")
    assert load("spec.yaml").limit == 3
    monkeypatch.setenv("WDSPEC_ENV", "labtop")
    with pytest.raises(SpecError, match=r"E104.*WDSPEC_ENV(?s:.*)did you mean `laptop`"):
        load("spec.yaml")


def test_an_overlay_changes_sources_by_name(write: Write) -> None:
    write(
        spec="dataset:\n- {name: a, shards: a.tar}\n- dataset: [{shards: 'web-{0..9}.tar'}, {shards: c.tar}]\n"
        "environments: {e: {sources: {web: {shards: small.tar, shuffle: 5}, c: {scale: 0.5}}}}\n"
    )
    web = load("spec.yaml", env="e").sources[1]
    assert (web.name, web.shards, web.shuffle) == ("web", ("small.tar",), 5)
    assert load("spec.yaml").sources[1].shuffle == 1000


def test_overrides_win_over_everything(write: Write) -> None:
    write(spec="dataset: [{shards: a.tar}]\nbatch: {size: 4}\nenvironments: {e: {batch: {size: 8}}}\n")
    for overrides in (
        {"batch.size": 16, "seed": 3},
        ["batch.size=16", "seed=3"],
        {"batch": {"size": 16}, "seed": 3},
    ):
        spec = load("spec.yaml", env="e", overrides=overrides)
        assert spec.batch
        assert (spec.batch.size, spec.seed) == (16, 3)
    assert load("spec.yaml", overrides=["batch=null"]).batch is None
    assert load("spec.yaml", overrides=["sources.a.shuffle=7"]).sources[0].shuffle == 7
    assert codes("spec.yaml", overrides=["batch"]) == ["E113"]
    assert codes("spec.yaml", overrides={"dataset.0.shuffle": 5}) == ["E113"]
    assert codes("spec.yaml", overrides=["dataset[0].shuffle=5"]) == ["E113"]
    assert codes("spec.yaml", overrides=["splits.train.batch=5"]) == ["E113"]
    assert "sources.NAME.shuffle" in check("spec.yaml", overrides=["dataset.0.shuffle=5"])[1][0].hint
    (problem,) = check("spec.yaml", overrides=["batch.size=x"])[1]
    assert (problem.code, problem.file, problem.column) == ("E202", "--set batch.size", 1)


def test_variables_are_looked_up_nearest_first(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write(spec="vars: {b: top}\ndataset: [{shards: '${b}/a.tar'}]\nenvironments: {e: {vars: {b: overlay}}}\n")

    def shards(**choices: Any) -> str:
        return (load("spec.yaml", **choices).sources[0].shards or ("",))[0]

    assert shards() == "top/a.tar"
    assert shards(env="e") == "overlay/a.tar"
    monkeypatch.setenv("WDS_b", "variable")
    assert shards(env="e") == f"{'variable'}/a.tar"
    assert shards(env="e", vars={"b": "argument"}) == "argument/a.tar"


def test_a_scalar_that_is_one_variable_is_retyped(write: Write) -> None:
    write(
        spec="vars: {n: 007, list: [a.tar, b.tar], p: '${n}'}\nbatch: ${n}\nname: v${p}\n"
        "dataset: [{shards: '${list}', shuffle: '${k:-20}', tags: {t: '${n}', d: '$${n}', e: '${z:-}'}}]\n"
    )
    spec = load("spec.yaml", vars={"unused": 1})
    assert spec.batch
    assert spec.batch.size == 7
    assert spec.name == "v007"
    source = spec.sources[0]
    assert source.shards == ("a.tar", "b.tar")
    assert source.shuffle == 20
    assert source.tags == {"t": 7, "d": "${n}", "e": ""}
    assert load("spec.yaml", vars={"k": "30"}).sources[0].shuffle == 30


def test_defaults_of_variables_can_contain_braces_and_variables(write: Write) -> None:
    write(spec="dataset: [{shards: '${where:-data/${set:-train}-{0..3}.tar}'}]\n")
    assert load("spec.yaml").sources[0].shards == ("data/train-{0..3}.tar",)
    assert load("spec.yaml", vars={"set": "x"}).sources[0].shards == ("data/x-{0..3}.tar",)


def test_paths_are_relative_to_the_file_they_are_written_in(write: Write, here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "base.yaml").write_text(
        "dataset: [{shards: [a.tar, '${d}/b.tar']}]\nrewrite: [{from: 'gs://', to: ../x/}]\nvars: {d: data}\n"
    )
    write(spec="extends: sub/base.yaml\n")
    spec = load("spec.yaml")
    assert spec.sources[0].base == str(here / "sub")
    assert spec.rewrite[0].replacement == f"{here}/sub/../x/"
    spec = load("spec.yaml", vars={"d": "mine"})
    assert spec.sources[0].shards == ("a.tar", f"{here}/mine/b.tar")
    assert load({"dataset": [{"shards": "a.tar"}]}).sources[0].base == str(here)


def test_a_child_spec_becomes_a_nested_mix_with_its_own_scope(write: Write) -> None:
    write(
        child="vars: {d: inner}\nseed: 9\nbatch: 3\nmix: {by: equal}\ndefaults: {shuffle: 5}\n"
        "rewrite: [{from: x, to: /y}]\nmap: ${unset}\n"
        "dataset: [{shards: '${d}/a.tar'}, {shards: b.tar, shuffle: 6, rewrite: [{from: b, to: /b}]}]\n",
        spec="vars: {d: outer}\ndefaults: {shuffle: 1, interleave: 1, tags: {t: 1}}\nname: ${d}\n"
        "dataset: [{spec: child.yaml, name: kid, weight: 2, tags: {t: 2}}, {shards: b.tar, weight: 1}]\n",
    )
    spec = load("spec.yaml")
    kid = spec.dataset[0]
    assert (kid.name, kid.weight, kid.mix.by, spec.seed, spec.batch) == ("kid", 2, "equal", 0, None)
    assert [source.name for source in spec.sources] == ["kid/a", "kid/b", "b"]
    a, b, own = spec.sources
    assert a.shards == ("inner/a.tar",)
    assert (a.shuffle, b.shuffle, own.shuffle) == (5, 6, 1)
    assert [rule.pattern for rule in b.rewrite] == ["b", "x"]
    assert (a.tags, own.tags) == ({"t": 2}, {"t": 1})


@pytest.mark.parametrize(
    ("shards", "name"),
    [
        ("gs://b/ia1-{000000..000033}.tar", "ia1"),
        ("rendered.tar", "rendered"),
        ("x/train.v2-{0..9}.tar.gz", "train.v2"),
        ("data/train/{000..010}.tar", "train"),
        ("data/train/", "train"),
        ("data/*.tar", "data"),
        ("@lists/web.txt", "web"),
        ("a.tgz::b.tgz", "a"),
        ("pipe:curl http://h/p/q-{0..3}.tar", "q"),
        ("*.tar", "source"),
    ],
)
def test_names_come_from_the_shards(shards: str, name: str) -> None:
    assert load({"dataset": [{"shards": shards}]}).sources[0].name == name


def test_names_are_unique_and_explicit_ones_win() -> None:
    sources = [
        {"shards": "x/a.tar"},
        {"shards": "y/a.tar"},
        {"shards": "z.tar", "name": "a"},
        {"shards": "q/a.tar"},
    ]
    assert [source.name for source in load({"dataset": sources}).sources] == ["a-2", "a-3", "a", "a-4"]


@pytest.mark.parametrize(
    ("defaults", "source", "effective"),
    [
        ({}, {}, (None, 0.0)),
        ({}, {"scale": 0.5}, ((0.5, 0.5), 1.0)),
        ({}, {"scale": [0.5, 2]}, ((0.5, 2.0), 1.0)),
        ({}, {"scaleprob": 0.3}, ((0.5, 2.0), 0.3)),
        ({"scale": [1, 3]}, {"scaleprob": 0.3}, ((1.0, 3.0), 0.3)),
        ({"scale": [1, 3], "scaleprob": 0.1}, {}, ((1.0, 3.0), 0.1)),
        ({"scale": [1, 3]}, {"scaleprob": 0}, (None, 0.0)),
        ({"scale": [1, 3], "scaleprob": 0.1}, {"scale": 1}, (None, 0.0)),
        ({"scaleprob": 0.1}, {"scale": [2, 4]}, ((2.0, 4.0), 0.1)),
    ],
)
def test_scale_and_scaleprob_are_combined(defaults: Any, source: Any, effective: Any) -> None:
    spec = load({"defaults": defaults, "dataset": [{"shards": "a.tar", **source}]})
    assert (spec.sources[0].scale, spec.sources[0].scaleprob) == effective


def test_one_source_that_rescales_decodes_the_images_of_all() -> None:
    sources: list[dict[str, Any]] = [
        {"shards": "a.tar", "scale": 0.5},
        {"shards": "b.tar"},
        {"shards": "c.tar", "decode": "pil"},
        {"shards": "d.tar", "decode": {"cls": "cls"}},
        {"shards": "e.tar", "decode": "raw"},
    ]
    names = [source.decode and source.decode.names for source in load({"dataset": sources}).sources]
    assert names == [("rgb8",), ("rgb8",), ("pil",), ("rgb8",), ("raw",)]
    sources[0]["scale"] = 1
    assert [source.decode is None for source in load({"dataset": sources}).sources[:2]] == [True, True]


def test_the_errors_key_of_a_source_is_merged_over_the_top_level() -> None:
    spec = load(
        {
            "errors": {"max_rate": 0.1},
            "dataset": [
                {"shards": "a.tar", "errors": {"max_count": 3}},
                {"shards": "b.tar", "errors": "raise"},
                {"shards": "c.tar"},
            ],
        }
    )
    a, b, c = (source.errors for source in spec.sources)
    assert (a.skip, a.max_rate, a.max_count) == (True, 0.1, 3)
    assert (b.skip, b.max_rate) == (False, None)
    assert c == spec.errors
    assert c.skip


def test_an_explicit_share_replaces_an_inherited_one() -> None:
    spec = load(
        {"defaults": {"weight": 2}, "dataset": [{"shards": "a.tar", "weight": 3}, {"shards": "b.tar"}]}
    )
    assert [source.weight for source in spec.sources] == [3, 2]
    shares = [{"shards": "a.tar", "probability": 0.25}, {"shards": "b.tar", "probability": 0.75}]
    assert load({"defaults": {"weight": 2}, "dataset": shares}).sources[0].weight is None


def test_probabilities_can_be_off_by_a_millionth() -> None:
    thirds = [{"shards": f"{name}.tar", "probability": 0.3333333} for name in "abc"]
    assert load({"dataset": thirds}).sources[0].probability == 0.3333333


@pytest.mark.parametrize(
    "key",
    [
        {"map": "m:f"},
        {"allow": ["pickle"]},
        {"rewrite": [{"from": "gs://", "to": "pipe:cat "}]},
        {"stage": "m:f"},
        {"batch": {"size": 4, "collate": "m:f"}},
        {"batch": {"size": 4, "collate": {"call": "m:f"}}},
        {"batch": {"size": 4, "collate": {"x": "m:f"}}},
        {"batch": {"size": 4, "collate": {"x": {"call": "m:f"}}}},
        {"dataset": [{"shards": "pipe:cat a.tar"}]},
        {"dataset": [{"shards": "PIPE:cat a.tar"}]},
        {"output": "pipe:cat > out-%d.tar"},
        {"output": {"dir": "Pipe:cat"}},
        {"output": {"from": "a", "to": "pipe:cat > b"}},
        {"dataset": [{"shards": "a.tar", "select": "m:f"}]},
        {"dataset": [{"shards": "a.tar", "map": "m:f"}]},
        {"dataset": [{"shards": "a.tar", "decode": {"x": "m:f"}}]},
        {"dataset": [{"shards": "a.tar", "rewrite": [{"from": "a", "to": "pipe:a"}]}]},
    ],
)
def test_wds_secure_forbids_running_code(
    key: dict[str, Any], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {"dataset": [{"shards": "a.tar"}], **key}
    assert errors(document) == []
    monkeypatch.setenv("WDS_SECURE", "1")
    assert errors(document) == ["E310"]


@pytest.mark.parametrize("name", ["[a, b]", "{a: b}", "5"])
def test_a_name_of_the_wrong_type_in_a_child_spec_is_reported_there(
    write: Write, here: Path, name: str
) -> None:
    write(
        spec="dataset: [{spec: child.yaml, name: outer}]\n",
        child=f"dataset: [{{shards: a.tar, name: {name}}}]\n",
    )
    assert [(p.code, p.file) for p in check("spec.yaml")[1]] == [("E202", "child.yaml")]


def test_loading_imports_no_user_code(write: Write, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "booby.py").write_text("open('trapped', 'w').close()\n")
    monkeypatch.syspath_prepend(str(here))
    write(
        spec="map: booby:f\ndataset: [{shards: a.tar, select: booby:f, decode: booby:f, map: {call: booby:f}}]\n"
    )
    assert isinstance(load("spec.yaml"), Spec)
    assert not (here / "trapped").exists()


def test_batches_of_sources_whose_fields_visibly_differ_name_the_rename() -> None:
    sources = [{"shards": "a.tar", "extensions": "jpg txt"}, {"shards": "b.tar", "extensions": "nrm.jpg txt"}]
    with pytest.raises(SpecError, match=r"rename: \{image: nrm\.jpg\}"):
        load({"batch": 2, "dataset": sources})
    assert load({"dataset": sources})
    assert load({"batch": 2, "fields": "txt", "dataset": sources})
    assert load({"batch": 2, "map": "m:f", "dataset": sources})
    renamed = [{**s, "rename": {"image": "jpg;nrm.jpg"}} for s in sources]
    assert load({"batch": 2, "dataset": renamed})


def test_an_existing_path_can_contain_a_hash(here: Path) -> None:
    (here / "a#b.yaml").write_text("dataset: [{shards: a.tar}]\n")
    assert load("a#b.yaml").split is None


def test_the_example_of_the_docstring() -> None:
    assert load({"dataset": [{"shards": "data-{000..099}.tar", "weight": 1}]}).sources[0].name == "data"


def test_a_cache_directory_is_relative_to_the_file_that_names_it(write: Write, here: Path) -> None:
    (here / "base").mkdir()
    (here / "base" / "common.yaml").write_text("cache: {dir: ./copies, size: 1MB}\n")
    sources = "dataset:\n  - {shards: a.tar, cache: own}\n  - {shards: b.tar, cache: ~/c}\n"
    write(spec="extends: base/common.yaml\n" + sources)
    spec = load("spec.yaml", overrides=["cache.size=2MB"])
    assert spec.cache is not None
    assert (spec.cache.dir, spec.cache.size) == (f"{here}/base/copies", 2_000_000)
    assert [source.cache and source.cache.dir for source in spec.sources] == [f"{here}/own", "~/c"]
