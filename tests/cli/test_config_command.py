"""`wdspec config`: a printed spec means what its layers mean, and says where its values were written."""

import itertools
import json
import random
import shutil
import warnings
from pathlib import Path

import pytest
import yaml
from commandline import within
from oracle.generator import Draw
from oracle.record import data_folder
from shardmaking import write_source

import wdspec
from wdspec.spec.load import check, split_names

ROOT = Path(__file__).parents[2]
LAYERS = {"W101", "W400", "W402", "W403", "W404", "W409"}
"""Warnings about layers, which a printed spec does not have."""


def config(folder, *arguments, code=0, **variables):
    return within("config", *arguments, folder=folder, code=code, **variables)


def printed(folder, *arguments, **variables):
    """The values of a printed spec."""
    return yaml.safe_load(config(folder, *arguments, **variables)[0])


def read(path, most=3, **options):
    """The state of a run before its first batch, which has all digests; and its first batches."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with wdspec.loader(path, num_workers=0, rank=0, world_size=1, **options) as loader:
            state = loader.state_dict()
            try:
                return state, [repr(batch) for batch in itertools.islice(loader, most)]
            except wdspec.WdspecError as error:
                return state, [type(error).__name__]


def problems(path, **options):
    return {(p.code, p.message) for p in check(str(path), **options)[1] if p.code not in LAYERS}


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path = path.with_name(f"{path.name}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_source(tmp_path, "a", samples=40)
    write_source(tmp_path / "team", "b", samples=20)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Round trips


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """A copy of the examples, in which printed specs are saved."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("frameworks"))
    return folder


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "examples/specs").glob("*.yaml")))
def test_a_printed_example_has_the_same_problems_and_the_same_digests(examples, monkeypatch, name, form):
    monkeypatch.chdir(examples)
    path, copy = f"examples/specs/{name}.yaml", f"examples/specs/printed-{name}-{form}.yaml"
    env = "checkout" if name == "environments" else None
    (examples / copy).write_text(
        config(examples, path, "--format", form, *(["--env", env] if env else []))[0]
    )
    ignored = {"W353"} if form == "json" else set()  # by comments, which JSON lacks
    assert problems(path, env=env) == {each for each in problems(copy) if each[0] not in ignored}
    for split in split_names(path) or [None]:
        before, after = (
            wdspec.load(each, split=split, env=chosen) for each, chosen in ((path, env), (copy, None))
        )
        assert before.model_dump(exclude={"wdspec", "environment"}) == after.model_dump(
            exclude={"wdspec", "environment"}
        )
        if name not in ("seed-readme", "score"):  # a bucket; `map_batches`
            assert read(path, split=split, env=env) == read(copy, split=split)


@pytest.fixture(scope="module")
def data():
    """The data of random specs, as the working directory; `team` has links to it."""
    with data_folder() as path:
        team = Path("team")
        team.mkdir(exist_ok=True)
        for each in Path().iterdir():
            if each.name != "team" and not (team / each.name).exists():
                (team / each.name).symlink_to(Path("..", each.name))
        yield Path(path)


def spread(rng, spec):
    """The same spec in layers: a base file, a split, an environment, variables."""
    keys = [key for key in spec if key not in ("splits", "vars")]
    base = {"wdspec": 1, **{key: spec[key] for key in keys if rng.random() < 0.5}}
    rest = {key: spec[key] for key in keys if key not in base}
    variables = {}
    for key in list(rest):
        if isinstance(rest[key], (int, float, str)) and rng.random() < 0.5:
            variables[f"v_{key}"] = rest[key]
            rest[key] = f"${{v_{key}}}"
    late = {key: rest.pop(key) for key in ("seed", "batch", "epoch") if key in rest and rng.random() < 0.5}
    top = {"extends": "base.yaml", **rest}
    if "dataset" not in base and rng.random() < 0.5:
        top = {"extends": "base.yaml", "splits": {"train": rest}}
    if "seed" in late:
        top["seed"] = 99  # replaced by the environment
    return base, {**top, "vars": variables, "environments": {"cluster": late}}


def check_random(seeds, data):
    count = 0
    for seed in seeds:
        spec = json.loads(json.dumps(Draw(seed).spec))
        base, top = spread(random.Random(seed), spec)
        (data / "whole.yaml").write_text(json.dumps(spec))
        found = problems("whole.yaml")
        if any(code.startswith("E") for code, _ in found):
            continue
        count += 1
        (data / "base.yaml").write_text(json.dumps(base))
        (data / "top.yaml").write_text(json.dumps(top))
        form = random.Random(seed).choice(["yaml", "json"])
        shown, said = config(data, "top.yaml", "--env", "cluster", "--format", form)
        assert "is written as" not in said
        (data / "again.yaml").write_text(shown)
        split = "train" if "splits" in top else None
        assert problems("again.yaml", split=split) == found, seed
        expected = read_or_error("whole.yaml")
        assert read_or_error("again.yaml", split=split) == expected, seed
        # All paths lead to another folder, where the same files are.
        (data / "team" / "base.yaml").write_text(json.dumps({**spec, "name": "moved"}))
        (data / "moved.yaml").write_text("extends: team/base.yaml\n")
        for options in ([], ["--absolute"]):
            (data / "again.yaml").write_text(config(data, "moved.yaml", *options)[0])
            _, batches = read_or_error("again.yaml")
            prefix = f"{data}/team/" if options else "./team/"
            assert [text.replace(prefix, "") for text in batches] == expected[1], seed
    assert count >= 0.6 * len(seeds)


def read_or_error(path, **options):
    try:
        return read(path, **options)
    except wdspec.WdspecError as error:
        return None, [type(error).__name__]


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(15, 210, 15))])
def test_random_specs_mean_the_same_in_layers_and_printed(data, first):
    check_random(range(first, first + 15), data)


LAYERED = {
    "train": """
extends: team/base.yaml
batch: ${batch:-4}
epoch: 40
errors: {skip: true}
splits:
  train:
    dataset:
      - {name: own, shards: "a-{000..003}.tar", weight: 3, errors: {max_count: null}}
      - {name: other, spec: "team/child.yaml#val", weight: 1, tags: {of: team}}
  val: {dataset: [{shards: "a-000.tar", license: CC-BY-4.0}], epoch: pass, batch: 5}
environments:
  cluster:
    seed: 5
    rewrite: [{from: "a-", to: "./a-"}]
    sources: {own: {weight: 5, if_present: true}}
  laptop: {batch: 2}
""",
    "team__base": """
seed: 3
defaults: {where: "txt.length > 0", shuffle: 10, license: MIT, rewrite: [{from: "x-", to: "y-"}]}
""",
    "team__child": """
vars: {kind: b}
splits:
  val:
    dataset:
      - {shards: "${kind}-{000..001}.tar", where: "txt.length < 100000", errors: {max_count: 5}}
      - {name: again, shards: ["../a-000.tar", "b-001.tar"], exclude: "@keys.txt"}
    defaults: {shuffle: 4}
""",
}


@pytest.mark.parametrize("env", [None, "cluster", "laptop"])
def test_layers_of_several_folders_are_merged(folder, env):
    write(folder, **LAYERED)
    (folder / "team/keys.txt").write_text("a000-000\n")
    chosen = ["--env", env] if env else []
    shown, said = config(folder, "train.yaml", *chosen)
    (folder / "printed.yaml").write_text(shown)
    values = yaml.safe_load(shown)["splits"]["train"]
    assert values["seed"] == (5 if env == "cluster" else 3)
    assert values["batch"] == (2 if env == "laptop" else 4)
    own, other = values["dataset"]
    assert (own["shards"], own["license"], own["where"]) == ("a-{000..003}.tar", "MIT", "txt.length > 0")
    first, second = other["dataset"]
    assert first["name"] == "other/b"
    assert first["shards"] == "./team/b-{000..001}.tar"
    assert first["where"] == "(txt.length > 0) and (txt.length < 100000)"
    assert (second["shards"], second["exclude"]) == (
        ["./team/../a-000.tar", "./team/b-001.tar"],
        "@./team/keys.txt",
    )
    assert "team/child.yaml:6: `shards: b-{000..001}.tar` is written as ./team/b-{000..001}.tar" in said
    assert said.count("is written as") == 5
    for split in ("train", "val"):
        before, after = read("train.yaml", split=split, env=env), read("printed.yaml", split=split)
        assert [text.replace("./team/", "").replace("../a-", "a-") for text in after[1]] == [
            text.replace("../a-", "a-").replace(str(folder / "team") + "/", "") for text in before[1]
        ]
    assert read("train.yaml", split="val", env=env) == read(
        "printed.yaml", split="val"
    )  # no path has changed


def test_a_chosen_split_is_printed_alone(folder):
    write(folder, **LAYERED)
    assert list(printed(folder, "train.yaml#val")["splits"]) == ["val"]
    assert list(printed(folder, "train.yaml", "--split", "val", "--set", "batch=8")["splits"]) == ["val"]
    assert printed(folder, "train.yaml#val", "--set", "batch=8")["splits"]["val"]["batch"] == 8


def test_rules_of_an_environment_stay_before_those_of_sources(folder):
    write(
        folder,
        s="""
dataset: [{name: a, shards: "z-{000..003}.tar", rewrite: [{from: "z-", to: "missing-"}]}]
environments: {here: {rewrite: [{from: "z-", to: "a-"}]}}
""",
    )
    (folder / "printed.yaml").write_text(config(folder, "s.yaml", "--env", "here")[0])
    assert read("s.yaml", env="here") == read("printed.yaml")


def test_tables_folders_and_companions_become_sources(folder):
    write_source(folder / "data/one", "x", samples=8)
    write_source(folder / "data/two", "x", samples=8)
    (folder / "team/sources.csv").write_text("name,shards,license\nb,b-{000..001}.tar,1.0\n")
    write(
        folder,
        s="""
dataset:
  - {name: table, dataset: "@team/sources.csv"}
  - {shards: "data/*/*.tar", each: folder, companions: {noise: {shards: "a-{000..003}.tar", chance: 0.5}}}
companions: {musan: {shards: "a-000.tar"}}
batch: 4
""",
    )
    shown, _ = config(folder, "s.yaml")
    table, one, two = yaml.safe_load(shown)["dataset"]
    assert table["dataset"] == [{"name": "b", "shards": "./team/b-{000..001}.tar", "license": "1.0"}]
    assert (one["name"], one["shards"], two["name"]) == ("one", "data/one/*.tar", "two")
    assert one["companions"] == {"noise": {"shards": "a-{000..003}.tar", "chance": 0.5}}
    (folder / "printed.yaml").write_text(shown)
    strip = lambda each: [text.replace("./team/", "") for text in each[1]]  # noqa: E731
    assert strip(read("s.yaml")) == strip(read("printed.yaml"))
    assert wdspec.load("printed.yaml").companions.keys() == {"one/noise", "two/noise", "musan"}


def test_paths_with_the_marks_of_patterns_lead_to_the_same_files(folder):
    write_source(folder / "a [b] {c},*", "x", shards=2, samples=6)
    write(folder, **{"a [b] {c},*__base": "dataset: [{shards: 'x-{000..001}.tar::x-*.tar'}]\nbatch: 2\n"})
    write(folder, s="extends: 'a [b] {c},*/base.yaml'\n")
    (folder / "printed.yaml").write_text(config(folder, "s.yaml")[0])
    before, after = read("s.yaml"), read("printed.yaml")
    assert [text.count("__key__") for text in after[1]] == [1, 1, 1]
    keys = lambda texts: [text[text.index("'__key__'") : text.index("'__url__'")] for text in texts]  # noqa: E731
    assert keys(before[1]) == keys(after[1])


def test_a_link_on_the_way_makes_a_path_absolute(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "deep" / "er"
    elsewhere.mkdir(parents=True)
    write(folder, team__base='dataset: [{shards: "b-{000..001}.tar"}]\nbatch: 2\n')
    (folder / "link").symlink_to(elsewhere)
    write(folder, link__s=f"extends: {folder}/team/base.yaml\n")
    shown = config(folder, "link/s.yaml")[0]
    assert yaml.safe_load(shown)["dataset"][0]["shards"] == f"{folder}/team/b-{{000..001}}.tar"
    (elsewhere / "printed.yaml").write_text(shown)
    assert read("link/s.yaml")[1][0].count("__key__") == read("link/printed.yaml")[1][0].count("__key__") == 1


def test_a_path_that_a_rule_rewrites_stays_as_it_is_written(folder):
    write(folder, team__base='dataset: [{shards: "bucket/a-{000..003}.tar"}]\nbatch: 2\n')
    write(folder, s='extends: team/base.yaml\nrewrite: [{from: "bucket/", to: "./"}]\n')
    shown, said = config(folder, "s.yaml")
    assert said == ""
    (folder / "printed.yaml").write_text(shown)
    assert read("s.yaml") == read("printed.yaml")


def test_literal_dollars_and_numbers_as_text_survive(folder):
    write(
        folder,
        s="""
dataset:
  - shards: "a-{000..003}.tar"
    tags: {a: "$${b}", b: "007", c: 007, d: "true", e: "x: y # z", f: "é\\n\\u2028\\U0001F600", g: 1.50,
      h: [], i: {}, "k: l": ""}
batch: 2
""",
    )
    for form in ("yaml", "json"):
        (folder / "printed.yaml").write_text(config(folder, "s.yaml", "--format", form)[0])
        assert wdspec.load("printed.yaml").sources[0].tags == wdspec.load("s.yaml").sources[0].tags
        assert read("s.yaml") == read("printed.yaml")


def test_json_refuses_numbers_that_it_lacks(folder):
    write(folder, s="dataset: [{shards: a-000.tar, tags: {most: .inf}}]\n")
    assert printed(folder, "s.yaml")["dataset"][0]["tags"] == {"most": float("inf")}
    _, said = config(folder, "s.yaml", "--format", "json", code=1)
    assert said.startswith("s.yaml:1:")
    assert "JSON has no number `.inf`; write the spec as YAML" in said


# What a printed spec says besides


def test_secrets_become_variables_that_must_be_set(folder):
    write(
        folder,
        s="""
vars: {sig: hunter2-sig}
dataset:
  - {name: a, shards: "https://me:PASS-1@host/a-{0..3}.tar?sig=${sig}"}
  - {name: b, shards: "https://me:PASS-1@host/b.tar"}
map: {call: "pkg.mod:f", args: {api_key: PASS-3, other: ["token: PASS-4"]}}
""",
    )
    for form in ("yaml", "json"):
        shown, said = config(folder, "s.yaml", "--format", form, "--origin")
        assert not [each for each in ("PASS", "hunter2") if each in shown + said]
        (folder / "printed.yaml").write_text(config(folder, "s.yaml", "--format", form)[0])
        assert {p.code for p in check("printed.yaml")[1] if p.is_error} == {"E107"}
        names = ("secret_1", "secret_2", "secret_3", "sig")
        assert "s.yaml:4: a secret in `shards` is written as ${sig}; to read the output, set WDS_sig" in said
        values = dict(zip(names, ("me:PASS-1", "PASS-3", "PASS-4", "hunter2-sig"), strict=True))
        again = wdspec.load("printed.yaml", vars=values)
        assert [source.shards for source in again.sources] == [
            source.shards for source in wdspec.load("s.yaml").sources
        ]
        assert again.map[0].args == {"api_key": "PASS-3", "other": ["token: PASS-4"]}


def test_origins_name_the_file_and_the_line_of_each_value(folder):
    write(folder, **LAYERED)
    shown, _ = config(folder, "train.yaml#train", "--env", "cluster", "--set", "epoch=80", "--origin")
    lines = {
        line.split("  # ")[0].strip(): line.split("  # ")[-1] for line in shown.splitlines() if "  # " in line
    }
    assert lines["seed: 5"] == "train.yaml:14"
    assert lines["epoch: 80"] == "--set epoch"
    assert lines["shuffle: 10"] == "team/base.yaml:3"
    assert lines["weight: 5"] == "train.yaml:16"
    document = json.loads(config(folder, "train.yaml#train", "--origin", "--format", "json")[0])
    origin = document["origins"]["/splits/train/dataset/1/dataset/0/shards"]
    assert (origin["file"], origin["line"]) == ("team/child.yaml", 6)
    text = (folder / origin["file"]).read_text().splitlines()[origin["line"] - 1]
    assert text[origin["column"] - 1 :].startswith('"${kind}-{000..001}.tar"')
    assert document["spec"] == json.loads(config(folder, "train.yaml#train", "--format", "json")[0])
    assert list(document["origins"]).count("/splits/train/seed") == 1


def test_share_and_license_of_each_source_are_shown(folder):
    write(folder, **LAYERED)
    shown, _ = config(folder, "train.yaml")
    assert "- name: own  # share 75.00%, license MIT\n" in shown
    assert "- name: other/b  # share 12.50%, license MIT\n" in shown
    assert "- name: a-000  # license CC-BY-4.0\n" in shown  # a pass
    sources = json.loads(config(folder, "train.yaml", "--origin", "--format", "json")[0])["sources"]
    assert sources[0] == {"split": "train", "name": "own", "license": "MIT", "share": 0.75}
    assert sources[-1] == {"split": "val", "name": "a-000", "license": "CC-BY-4.0", "share": None}
    write(folder, glob='dataset: [{name: a, shards: "a-*.tar"}, {name: b, shards: "team/b-*.tar"}]\n')
    assert "- name: a  # no license\n" in config(folder, "glob.yaml")[0]
    turns = (folder / "glob.yaml").read_text() + "mix: {draw: round_robin}\n"
    write(folder, turns=turns)
    assert "- name: a  # share 50.00%, no license\n" in config(folder, "turns.yaml")[0]


def test_functions_next_to_the_spec_name_their_folder(folder):
    (folder / "team/mine.py").write_text("raise SystemExit('imported')\n")
    write(folder, team__s="dataset: [{shards: b-000.tar}]\nmap: 'mine:f'\n")
    _, said = config(folder, "team/s.yaml")
    assert "save the output in team, or add that folder to PYTHONPATH, for `mine:f`" in said
    assert config(folder, "train.yaml", code=1)[1]


def test_comments_that_ignore_warnings_stay(folder):
    write(folder, base='dataset:\n  - shards: "a-{000..003}.tar"\n')
    write(folder, bare="extends: base.yaml\nbatch: 3\nepoch: 10\n")
    write(folder, s="extends: base.yaml\nbatch: 3\nepoch: 10  # wdspec: ignore=W351\n")
    assert {code for code, _ in problems("bare.yaml")} - {code for code, _ in problems("s.yaml")} == {"W351"}
    shown = config(folder, "s.yaml", "--origin")[0]
    assert "epoch: 10  # s.yaml:3  # wdspec: ignore=W351\n" in shown
    (folder / "printed.yaml").write_text(shown)
    assert problems("printed.yaml") == problems("s.yaml")


def test_requirements_stay_at_the_top_and_owners_in_their_places(folder):
    write(
        folder,
        base="requires: wdspec >= 0.1\nmeta: {owner: vision}\ndefaults: {meta: {ticket: DATA-1}}\n",
        s="""
extends: base.yaml
splits:
  train: {dataset: [{name: a, shards: "a-{000..003}.tar", meta: {owner: audio}}], meta: {contact: x@e.org}}
""",
    )
    values = printed(folder, "s.yaml")
    assert (values["wdspec"], values["requires"]) == (1, "wdspec >= 0.1")
    train = values["splits"]["train"]
    assert train["meta"] == {"owner": "vision", "contact": "x@e.org"}
    assert train["dataset"][0]["meta"] == {"ticket": "DATA-1", "owner": "audio"}
    (folder / "printed.yaml").write_text(config(folder, "s.yaml")[0])
    assert problems("printed.yaml") == problems("s.yaml")
    assert read("printed.yaml", split="train") == read("s.yaml", split="train")


# Bad input


def test_wrong_specs_get_the_errors_of_validate(folder):
    write(
        folder,
        missing="extends: ../../../nowhere/x.yaml\ndataset: [{shards: a.tar}]\n",
        circle="extends: circle2.yaml\ndataset: [{shards: a.tar}]\n",
        circle2="extends: circle.yaml\n",
        child="dataset: [{spec: child.yaml}]\n",
        typo="dataset: [{shards: a.tar}]\nbach: 3\n",
        **LAYERED,
    )
    for arguments, code, place in (
        (["missing.yaml"], "E001", "missing.yaml:1:10"),
        (["circle.yaml"], "E101", "circle2.yaml:1:10"),
        (["child.yaml"], "E101", "child.yaml:1:18"),
        (["typo.yaml"], "E201", "typo.yaml:2:1"),
        (["train.yaml#test"], "E103", "train.yaml:6:1"),
        (["train.yaml", "--env", "moon"], "E104", "train.yaml:12:1"),
    ):
        shown, said = config(folder, *arguments, code=1)
        assert shown == ""
        assert f"{place}: {code} " in said, said
    assert "this takes one spec, not 2 files" in config(folder, "train.yaml", "typo.yaml", code=2)[1]


def test_a_missing_file_is_an_error_and_help_has_examples(folder):
    _, said = config(folder, "nothing.yaml", code=1)
    assert "nothing.yaml: E001 cannot read nothing.yaml: the file does not exist" in said
    assert "Examples:" in config(folder, "--help")[0]
