"""`wdspec diff`: what a change to a spec does."""

import itertools
import json
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest
from commandline import within
from shardmaking import write_source

import wdspec

SPEC = """\
extends: base.yaml
dataset:
  - {name: books, shards: "s3://bucket/books-{000..099}.tar", weight: 3, samples: 100000}
  - {name: web, shards: "@web.txt", weight: 1, samples: 5000, decode: json}
  - {name: old, shards: "s3://bucket/old-{000..009}.tar", weight: 1}
batch: 32
epoch: 10_000
elastic: {ranks: 4, workers: 2}
"""


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "train.yaml").write_text(SPEC)
    (tmp_path / "base.yaml").write_text("seed: 3\n")
    (tmp_path / "web.txt").write_text("".join(f"s3://b/w-{n}.tar\n" for n in range(8)))
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "own.yaml").write_text("dataset: [{shards: a.tar}]\n")
    for arguments in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first"],
    ):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    return tmp_path


def compared(folder, old, new, *options):
    return json.loads(within("diff", old, new, "--format", "json", *options, folder=folder)[0])


def changed(folder, *replacements, name="train.yaml"):
    text = (folder / name).read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    (folder / name).write_text(text)


def test_the_spec_its_bases_and_lists_come_from_the_revision(repository):
    changed(repository, ("seed: 3", "seed: 4"), name="base.yaml")
    with (repository / "web.txt").open("a") as file:
        file.write("s3://b/w-8.tar\ns3://b/w-9.tar\n")
    report = compared(repository, "main:train.yaml", "train.yaml")
    assert report["settings"] == [{"key": "seed", "old": "3", "new": "4"}]
    web = next(each for each in report["sources"] if each["source"] == "web")
    assert (web["old"]["shards"], web["new"]["shards"]) == (8, 10)
    assert (web["change"], web["added_shards"], web["removed_shards"]) == ("changed", 2, 0)
    assert "seed: was 3, now 4" in report["order"]["changes"]
    assert report["same"] is False


def test_shares_shards_and_keys_are_compared_source_by_source(repository):
    changed(
        repository,
        ("weight: 3", "weight: 2"),
        ("books-{000..099}", "books-{050..149}"),
        ("decode: json", "decode: raw"),
        ("name: old", "name: older"),
    )
    shown, _ = within("diff", "main:train.yaml", "train.yaml", folder=repository)
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "books weight 3.0 2.0" in lines
    assert 'web decode.names ["json"] ["raw"]' in lines
    books = next(line for line in lines if line.startswith("books changed"))
    assert books == ("books changed 60.00% → 50.00% 100 (+50 −50) 100,000 5,990 → 4,992 0.0599 → 0.0499")
    assert any(line.startswith("older added 25.00% 10 ?") for line in lines)
    assert any(line.startswith("warning: `older` has the shards of `old`") for line in lines)
    assert "web resumes exactly: no sample is lost or repeated" in lines
    assert "old is removed" in lines
    assert "older starts at its first sample" in lines
    assert "books resumes at the start of the shards it was reading: some samples are repeated" in lines


def test_a_schedule_shows_the_step_that_differs(tmp_path):
    steps = (
        "{at: 0, shares: {a: 1}}, {at: 320, shares: {a: 1, b: 1}}, {at: 960, shares: {b: 1}, ramp: linear}"
    )
    spec = "batch: 32\nmix: {schedule: [%s]}\ndataset: [{name: a, shards: a.tar}, {name: b, shards: b.tar}]\n"
    (tmp_path / "old.yaml").write_text(spec % steps)
    (tmp_path / "new.yaml").write_text(spec % steps.replace("{b: 1}", "{a: 1, b: 3}"))
    (tmp_path / "more.yaml").write_text(
        spec % steps.replace(", {at: 320", ", {at: 64, shares: {b: 1}}, {at: 320")
    )
    assert compared(tmp_path, "old.yaml", "new.yaml")["settings"] == [
        {"key": "mix.schedule[at 960].shares.a", "old": None, "new": "1.0"},
        {"key": "mix.schedule[at 960].shares.b", "old": "1.0", "new": "3.0"},
    ]
    shown = within("diff", "old.yaml", "new.yaml", folder=tmp_path)[0]
    assert "\nschedule: other shares from batch 10 on\n\n" in shown
    keys = {each["key"] for each in compared(tmp_path, "old.yaml", "more.yaml")["settings"]}
    assert all(key.startswith("mix.schedule[at 64].") for key in keys)


def test_equal_specs_are_reported_and_the_exit_code_is_0(repository):
    shown, _ = within("diff", "HEAD:train.yaml", "train.yaml", "--exit-code", folder=repository)
    assert "no differences" in shown
    assert "A saved state resumes exactly: same order, same samples." in shown
    changed(repository, ("decode: json", "decode: raw"))
    report = json.loads(
        within(
            "diff",
            "HEAD:train.yaml",
            "train.yaml",
            "--exit-code",
            "--format",
            "json",
            folder=repository,
            code=1,
        )[0]
    )
    assert report["order"]["same"] is True
    assert report["samples"]["same"] is False
    assert report["state"]["goes_on"] == "other samples"


MOVED = """\
extends: ../base.yaml
dataset:
  - name: inner
    dataset:
      - shards: "a-{0..1}.tar"
        join: b-{0..1}.tar
        lookup: {table: t.jsonl, on: __key__, key: k, fields: [q]}
        rewrite: [{from: gs://b/, to: mirror/}]
        cache: cache
        errors: {log: skips.jsonl}
        map: {txt: "mylib:f"}
        fetch: {image: {url: txt, root: images}}
        make: {number: {label: txt, file: names.txt}, near: {take: beside.txt}}
        companions: {beside: pool, other: {shards: a-0.tar, lookup: {table: t.jsonl, key: k, fields: q}}}
companions:
  pool:
    shards: b-0.tar
    rewrite: [{from: gs://b/, to: mirror/}]
    fetch: {image: {url: txt, root: images}}
    make: {number: {label: txt, file: names.txt}}
rewrite: [{from: s3://b/, to: ../mirror/}]
cache: {dir: ../cache}
stats: s.stats.json
batch: 2
epoch: {batches: 10}
elastic: {ranks: 1}
"""


@pytest.fixture
def two_folders(tmp_path):
    for name in ("old", "new"):
        (tmp_path / name / "in").mkdir(parents=True)
        (tmp_path / name / "base.yaml").write_text("seed: 3\nstorage: {files: {key: token}}\n")
        (tmp_path / name / "in" / "s.yaml").write_text(MOVED)
        (tmp_path / name / "in" / "names.txt").write_text("a\n")
        (tmp_path / name / "in" / "t.jsonl").write_text('{"k": "a", "q": 1}\n')
    return tmp_path


def test_equal_specs_in_two_folders_do_not_differ(two_folders):
    shown, _ = within("diff", "old/in/s.yaml", "new/in/s.yaml", "--exit-code", folder=two_folders)
    assert "no differences" in shown


def test_changed_keys_have_the_names_that_they_have_in_specs(two_folders):
    changes = (
        ("{txt:", "{cls:"),
        ("gs://b/", "gs://c/"),
        ("../mirror", "mirror"),
        ("cache: cache", "cache: copies"),
    )
    changed(two_folders / "new" / "in", *changes, name="s.yaml")
    found = compared(two_folders, "old/in/s.yaml", "new/in/s.yaml")
    assert [each["key"] for each in found["settings"]] == ["rewrite[0].to", "companions.pool.rewrite[0].from"]
    keys = {each["source"]: [key["key"] for key in each["keys"]] for each in found["sources"]}
    assert keys == {"inner": [], "a": ["map[0].field", "rewrite[0].from", "cache.dir"]}


def test_markdown_escapes_markup_in_the_spec(repository):
    changed(repository, ("name: web", 'name: "we|b_*<i>*"'))
    shown, _ = within("diff", "main:train.yaml", "train.yaml", "--format", "markdown", folder=repository)
    rows = [line for line in shown.splitlines() if line.startswith("| we")]
    assert rows[0].startswith(r"| we\|b\_\*\<i\>\* | added | 20.00% |")
    assert "with `allow_changed=True`" in shown
    tables = [line for line in shown.splitlines() if line.startswith("|--")]
    assert tables[0] == "|--|--|--:|--:|--:|--:|--:|"


def test_the_chart_is_an_svg_with_every_source(repository):
    changed(repository, ("weight: 3", "weight: 2"))
    within("diff", "main:train.yaml", "train.yaml", "--chart", "shares.svg", folder=repository)
    drawn = ElementTree.parse(repository / "shares.svg").getroot()
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    said = (repository / "shares.svg").read_text()
    assert all(f"<!-- {text} -->" in said for text in ("books", "web", "old", "60.00%", "50.00%"))
    _, report = within("diff", "HEAD:train.yaml", "train.yaml", "--chart", "x.png", folder=repository, code=1)
    assert "--chart draws SVG; name a file that ends in .svg, not x.png" in report


@pytest.mark.parametrize(
    ("old", "folder", "said"),
    [
        ("nowhere:train.yaml", "", "git has no revision `nowhere` here"),
        ("--output=x:train.yaml", "", "No such option"),
        ("main:none.yaml", "", "at main: none.yaml: E001 cannot read none.yaml: the file does not exist"),
        ("main:part", "", "part is a directory"),
        ("main:own.yaml", "part", "paths start at the repository's top folder; write `main:./own.yaml`"),
        ("gone.yaml", "", "the file does not exist"),
    ],
)
def test_an_unreadable_spec_is_reported(repository, old, folder, said):
    _, report = within(
        "diff", old, repository / "train.yaml", folder=repository / folder, code=2 if old[0] == "-" else 1
    )
    assert said in report


def test_a_revision_needs_a_repository(tmp_path):
    (tmp_path / "a.yaml").write_text("dataset: [{shards: a.tar}]\n")
    _, report = within(
        "diff", "main:a.yaml", "a.yaml", folder=tmp_path, code=1, GIT_CEILING_DIRECTORIES=str(tmp_path.parent)
    )
    assert "is not in a repository; name two files" in report


def test_paths_in_the_working_directory_start_with_a_dot(repository):
    assert compared(repository / "part", "main:./own.yaml", "own.yaml")["same"] is True


def test_no_secret_is_shown(repository):
    changed(
        repository, ("s3://bucket/old-{000..009}.tar", "https://u:hunter2@h/old-{000..009}.tar?X-Sig=hunter2")
    )
    changed(repository, ("batch: 32", 'batch: 32\nrewrite: [{from: "s3://q/", to: "https://u:hunter2@h/"}]'))
    for form in ("text", "markdown", "json"):
        shown, report = within("diff", "main:train.yaml", "train.yaml", "--format", form, folder=repository)
        assert "hunter2" not in shown + report


@pytest.fixture
def saved(tmp_path):
    """A run of two sources, its state after three batches, and the spec that it started with."""
    spec = {
        "seed": 7,
        "dataset": [
            {"name": name, "shards": write_source(tmp_path, name, 3, 20), "weight": weight, "shuffle": 5}
            for name, weight in (("a", 3), ("b", 1))
        ],
        "batch": 4,
        "epoch": {"batches": 50},
        "elastic": {"ranks": 1, "workers": 1},
    }
    (tmp_path / "old.json").write_text(json.dumps(spec))
    with wdspec.loader(spec) as loader:
        list(itertools.islice(loader, 3))
        (tmp_path / "state.json").write_text(json.dumps(loader.state_dict()))
    return spec, tmp_path


def test_the_report_about_a_state_matches_a_real_resume(saved):
    spec, folder = saved
    fates = {}
    for name, change in {
        "same": lambda new: None,
        "samples": lambda new: new["dataset"][0].update(tags={"t": 1}),
        "share": lambda new: new["dataset"][0].update(weight=5),
        "reads": lambda new: new["dataset"][0].update(order="sequential"),
        "topology": lambda new: new.update(elastic={"ranks": 2, "workers": 1}),
    }.items():
        new = json.loads(json.dumps(spec))
        change(new)
        (folder / f"{name}.json").write_text(json.dumps(new))
        report = compared(folder, "old.json", f"{name}.json", "--state", "state.json")["state"]
        fates[name] = report["goes_on"]
        assert report["saved"]["batch"] == 3
        state = json.loads((folder / "state.json").read_text())
        with wdspec.loader(new, world_size=1, rank=0) as loader:
            if report["goes_on"] in ("exactly", "other samples"):
                loader.load_state_dict(state)
            else:
                with pytest.raises(wdspec.UsageError):
                    loader.load_state_dict(state)
            if report["goes_on"] == "if allowed":
                loader.load_state_dict(state, allow_changed=True)
            if report["goes_on"] == "no":
                with pytest.raises(wdspec.UsageError):
                    loader.load_state_dict(state, allow_changed=True)
    assert fates == {
        "same": "exactly",
        "samples": "other samples",
        "share": "if allowed",
        "reads": "if allowed",
        "topology": "no",
    }


def test_a_state_of_neither_spec_is_compared_as_saved(saved):
    spec, folder = saved
    (folder / "new.json").write_text(json.dumps({**spec, "seed": 8}))
    report = compared(folder, "new.json", "old.json", "--state", "state.json")
    assert report["order"]["same"] is False
    assert report["state"]["goes_on"] == "exactly"  # the state is of the second one
    _, said = within("diff", "new.json", "old.json", "--state", "old.json", folder=folder, code=1)
    assert "old.json contains no state of wdspec" in said


def test_a_state_inside_a_window_is_described_with_what_was_received(saved):
    spec, folder = saved
    spec = {**spec, "batch": {"cost": "txt.length", "max_cost": 60, "window": 30}}
    (folder / "old.json").write_text(json.dumps(spec))
    (folder / "new.json").write_text(json.dumps({**spec, "name": "other"}))
    with wdspec.loader(spec) as loader:
        samples = len(next(iter(loader))["__key__"])
        (folder / "state.json").write_text(json.dumps(loader.state_dict()))
    shown, _ = within("diff", "old.json", "new.json", "--state", "state.json", folder=folder)
    assert re.search(rf"the state: after 1 global batch, {samples} samples$", shown, re.MULTILINE)
    assert "samples received" in shown


def test_diff_says_that_a_field_which_where_reads_changes_the_order(saved):
    spec, folder = saved
    for name, file in (("old", "cls"), ("new", "txt")):
        first = spec["dataset"][0] | {"rename": {"m": file}, "where": "default(m, 0) != 3"}
        (folder / f"{name}.json").write_text(json.dumps({**spec, "dataset": [first, spec["dataset"][1]]}))
    report = compared(folder, "old.json", "new.json")
    assert report["order"]["changes"] == ['sources.a.reads.m.rename.m: was ["cls"], now ["txt"]']
    assert report["state"]["goes_on"] == "if allowed"


VARIED = """\
extends: base.yaml
splits:
  train: {dataset: [{name: a, shards: "s3://b/a-{0..9}.tar"}], batch: 8}
  val: {dataset: [{name: v, shards: "s3://b/v-{0..1}.tar"}], epoch: 100}
environments:
  laptop: {batch: 4}
  cluster: {loader: {workers: 4}}
"""


@pytest.fixture
def varied(repository):
    (repository / "configs").mkdir()
    (repository / "configs" / "base.yaml").write_text("seed: 3\n")
    (repository / "configs" / "varied.yaml").write_text(VARIED)
    (repository / "configs" / "own.yaml").write_text("wdspec: 1\ndataset: [{shards: s3://b/o.tar}]\n")
    (repository / "configs" / "compose.yaml").write_text("services: {}\n")
    commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "more"]
    for arguments in (["add", "."], commit):
        subprocess.run(["git", *arguments], cwd=repository, check=True)
    return repository


AT_HEAD, NOW = "HEAD:configs/varied.yaml", "configs/varied.yaml"


def test_every_split_and_environment_is_compared(varied):
    same = compared(varied, AT_HEAD, NOW, "--exit-code")
    assert (same["same"], len(same["variants"])) == (True, 6)
    changed(varied, ("laptop: {batch: 4}", "laptop: {batch: 2}"), name=NOW)
    shown, _ = within("diff", AT_HEAD, NOW, "--exit-code", folder=varied, code=1)
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "split `train` no differences exactly" in lines
    assert "split `train`, environment `laptop` batch.size if allowed" in lines
    assert "batch.size 4 2" in lines
    report = json.loads(within("diff", AT_HEAD, NOW, "--format", "json", folder=varied)[0])
    differing = [(each["split"], each["env"]) for each in report["variants"] if not each["same"]]
    assert differing == [("train", "laptop"), ("val", "laptop")]
    assert report["same"] is False
    assert "laptop" in within("diff", AT_HEAD, NOW, "--format", "markdown", folder=varied)[0]


def test_a_split_and_an_environment_narrow_what_is_compared(varied):
    changed(varied, ("laptop: {batch: 4}", "laptop: {batch: 2}"), name=NOW)
    within("diff", AT_HEAD, NOW, "--env", "cluster", "--exit-code", folder=varied)
    within("diff", f"{AT_HEAD}#val", f"{NOW}#val", "--env", "laptop", "--exit-code", folder=varied, code=1)
    report = compared(varied, f"{AT_HEAD}#train", f"{NOW}#train", "--env", "laptop")
    assert report["settings"] == [{"key": "batch.size", "old": "4", "new": "2"}]
    within("diff", AT_HEAD, NOW, "--exit-code", folder=varied, WDSPEC_ENV="cluster")
    assert len(compared(varied, AT_HEAD, NOW, "--split", "val")["variants"]) == 3
    between = compared(varied, f"{NOW}#train", f"{NOW}#val", "--env", "laptop")  # splits of one file
    assert {each["change"] for each in between["sources"]} == {"added", "removed"}


def test_splits_and_environments_that_only_one_side_has_are_differences(varied):
    changed(varied, ("  laptop: {batch: 4}\n", "  big: {batch: 64}\n"), name=NOW)
    report = json.loads(
        within("diff", AT_HEAD, NOW, "--format", "json", "--exit-code", folder=varied, code=1)[0]
    )
    notes = {(each["split"], each["env"]): each["note"] for each in report["variants"] if each["note"]}
    assert notes == {
        (split, env): note
        for split in ("train", "val")
        for env, note in (("big", "added"), ("laptop", "removed"))
    }


def write_many(path, splits, environments, last):
    """A spec with many splits and environments, the last of which changes a source of the last split alone."""
    sources = {f"s{n}": {"dataset": [{"name": f"n{n}", "shards": f"s3://b/{n}.tar"}]} for n in range(splits)}
    overlays = {f"e{n}": {"batch": n + 1} for n in range(environments)}
    overlays[f"e{environments - 1}"] = {
        "sources": {f"n{splits - 1}": {"shuffle": last, "if_present": True}},
        "batch": environments,
    }
    path.write_text(json.dumps({"splits": sources, "environments": overlays}))


def test_all_of_many_combinations_are_compared(tmp_path):
    """`validate` would choose some of them."""
    write_many(tmp_path / "a.yaml", 9, 7, 100)
    write_many(tmp_path / "b.yaml", 9, 7, 200)
    report = compared(tmp_path, "a.yaml", "b.yaml")
    assert (len(report["variants"]), report["not_compared"]) == (9 * 8, 0)
    assert [(each["split"], each["env"]) for each in report["variants"] if not each["same"]] == [("s8", "e6")]
    assert compared(tmp_path, "a.yaml", "a.yaml", "--exit-code")["same"]


def test_combinations_that_are_left_out_are_counted_and_never_called_equal(tmp_path):
    write_many(tmp_path / "a.yaml", 17, 16, 100)
    write_many(tmp_path / "b.yaml", 17, 16, 200)
    for specs in (("a.yaml", "b.yaml"), (".", ".")):
        shown, _ = within("diff", *specs, "--exit-code", folder=tmp_path, code=1)
        assert "256 other combinations not compared: choose with --split and --env" in " ".join(shown.split())
    report = json.loads(
        within("diff", "a.yaml", "b.yaml", "--format", "json", "--exit-code", folder=tmp_path, code=1)[0]
    )
    assert (len(report["variants"]), report["not_compared"], report["same"]) == (33, 256, False)
    chosen = compared(tmp_path, "a.yaml", "b.yaml", "--split", "s16")
    assert (chosen["not_compared"], chosen["same"]) == (0, False)


def test_a_variant_that_cannot_be_loaded_fails_and_the_others_are_compared(varied):
    changed(varied, ("laptop: {batch: 4}", "laptop: {bach: 4}"), ("batch: 8", "batch: 9"), name=NOW)
    shown, _ = within("diff", AT_HEAD, NOW, folder=varied, code=1)
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert any("`laptop` E201 at configs/varied.yaml:6:12: unknown key `bach`" in line for line in lines), (
        shown
    )
    assert "split `train` batch.size if allowed" in lines


def test_a_pass_without_its_data_is_compared_by_its_keys(varied):
    changed(varied, ("s3://b/v-{0..1}.tar", "none/v-{0..1}.tar"), ("epoch: 100", "epoch: pass"), name=NOW)
    shown, _ = within("diff", NOW, NOW, "--exit-code", folder=varied)
    assert "the same keys; the data was not compared: no such file" in shown
    (varied / "configs" / "new.yaml").write_text(
        (varied / NOW).read_text().replace("epoch: pass", "seed: 9, epoch: pass")
    )
    shown, _ = within("diff", NOW, "configs/new.yaml", folder=varied, code=1)
    assert "other keys; the data was not compared: no such file" in shown


def test_folders_show_which_specs_a_base_changes(varied):
    assert compared(varied, "HEAD:configs", "configs", "--exit-code")["same"] is True
    changed(varied, ("seed: 3", "seed: 4"), name="configs/base.yaml")
    (varied / "configs" / "new.yaml").write_text("wdspec: 1\ndataset: [{shards: s3://b/n.tar}]\n")
    shown, _ = within("diff", "HEAD:configs", "configs", "--exit-code", folder=varied, code=1)
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "own.yaml no environment no differences exactly" in lines
    assert "varied.yaml split `val`, environment `laptop` seed if allowed" in lines
    assert "new.yaml no environment added" in lines
    assert "2 of 3 specs differ; `wdspec diff` of the two files of a spec shows how" in lines
    report = compared(varied, "HEAD:configs", "configs")
    assert {each["spec"] for each in report["variants"] if not each["same"]} == {"varied.yaml", "new.yaml"}
    inside = compared(varied / "configs", "HEAD:./", ".")
    assert [each["spec"] for each in inside["variants"]] == [each["spec"] for each in report["variants"]]
    said = within("diff", "HEAD:configs", "train.yaml", folder=varied, code=1)[1]
    assert "compare two specs, or two folders" in said


def test_a_folder_of_a_revision_starts_at_the_top_of_the_repository(varied):
    said = within("diff", "HEAD:part", "part", folder=varied, code=0)[0]
    assert "no differences" in said
    said = within("diff", "HEAD:varied.yaml", "varied.yaml", folder=varied / "configs", code=1)[1]
    assert "write `HEAD:./varied.yaml`" in said
    (varied / "inner").mkdir()
    (varied / "inner" / "part").mkdir()
    said = within("diff", "HEAD:base.yaml", "configs", folder=varied, code=1)[1]
    assert "configs is a directory, but not both are; compare two specs, or two folders" in said
