"""`wdspec stats`: what it measures, what it reads again, and how specs use its numbers."""

import io
import json
import os
import pickle
import re
import shutil
import tarfile
import warnings
from pathlib import Path

import damage
import numpy as np
import pytest
from commandline import within
from firsttrydata import train_tokenizer
from PIL import Image
from runs import Listed
from shardmaking import write_shard, write_source

import wdspec
from wdspec.base.errors import UsageError
from wdspec.jobs import stats as measure_job
from wdspec.jobs.engine import LocalEngine
from wdspec.read import pass_count as counting
from wdspec.read.error_budget import ErrorBudget
from wdspec.spec.measurements import LEVELS, MeasuredShard, Measurements
from wdspec.stores.local import LocalFiles
from wdspec.urls.urls import ShardUrl

SPEC = """\
wdspec: 1
stats: s.stats.json
dataset:
  - {name: a, shards: "a-*.tar"}
  - {name: b, shards: "b-{000..001}.tar"}
mix: {by: samples}
batch: 2
epoch: 40
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_source(tmp_path, "a", shards=3, samples=20)
    write_source(tmp_path, "b", shards=2, samples=10)
    (tmp_path / "s.yaml").write_text(SPEC)
    return tmp_path


def measure(*arguments, code=0, spec="s.yaml"):
    out, _ = within("stats", spec, "--jobs", "0", "--format", "json", *arguments, code=code)
    (found,) = json.loads(out)["files"]
    return found


def change(path):
    """Other bytes of the same size, later."""
    found = os.stat(path)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 10**9))


@pytest.fixture
def opened(monkeypatch):
    """The shards that were opened."""
    names = []
    opened = LocalFiles.open
    monkeypatch.setattr(
        LocalFiles,
        "open",
        lambda self, shard: names.append(os.path.basename(shard.text)) or opened(self, shard),
    )
    return names


def shares(spec="s.yaml"):
    return {source.name: float(source.share) for source in wdspec.plan(spec).sources}


def test_samples_bytes_and_quantiles_match_the_files(folder):
    rng = np.random.default_rng(1)
    made = {}
    for number in range(3):
        sizes = np.exp(rng.normal(9, 1.5, 60)).astype(int)
        texts = rng.integers(0, 900, 60)
        made[f"a-{number:03d}.tar"] = {"jpg": sizes, "txt": texts}
        fields = [{"JPG": bytes(one), "txt": bytes(two)} for one, two in zip(sizes, texts, strict=True)]
        write_shard(folder / f"a-{number:03d}.tar", [(f"k{n}", each) for n, each in enumerate(fields)])
    found = measure()["sources"]["a"]
    shards = json.loads((folder / "s.stats.json").read_text())["shards"]["a"]
    for name, fields in made.items():
        assert shards[name]["samples"] == 60
        assert shards[name]["bytes"] == sum(int(sizes.sum()) for sizes in fields.values())
        assert shards[name]["size"] == os.path.getsize(folder / name)
        for field, sizes in fields.items():
            expected = [int(each) for each in np.quantile(sizes, LEVELS, method="inverted_cdf")]
            assert shards[name]["fields"][field]["quantiles"] == expected
            assert shards[name]["fields"][field]["mean"] == pytest.approx(sizes.mean(), abs=0.06)
    every = np.concatenate([fields["jpg"] for fields in made.values()])
    spread = found["fields"]["jpg"]
    assert (found["samples"], spread["count"]) == (180, 180)
    assert spread["mean"] == pytest.approx(every.mean(), rel=1e-3)
    for level, value in zip(LEVELS, spread["quantiles"], strict=True):
        below, upto = (every < value).mean(), (every <= value).mean()
        assert below - 0.06 <= level <= upto + 0.06


class Counting(io.FileIO):
    """A file that notes how much of it is read."""

    read_bytes = 0

    def read(self, size=-1):
        data = super().read(size)
        Counting.read_bytes += len(data)
        return data


def test_only_headers_are_read(folder, monkeypatch):
    write_shard(folder / "big-000.tar", [(f"k{n}", {"jpg": bytes(1_500_000), "txt": b"x"}) for n in range(9)])
    (folder / "big.yaml").write_text("wdspec: 1\ndataset: [{name: big, shards: big-000.tar}]\n")
    monkeypatch.setattr("wdspec.stores.local.open_file", Counting)
    assert measure(spec="big.yaml")["sources"]["big"]["bytes"] == 9 * 1_500_001
    assert 0 < Counting.read_bytes < 0.4 * os.path.getsize(folder / "big-000.tar")


def test_damaged_shards_are_measured_as_a_pass_counts_them(folder):
    spec = wdspec.load({"dataset": [{"name": "a", "shards": "a-000.tar", "errors": "skip"}]})
    parts = Listed.of(spec).parts["a"]
    kinds = damage.damaged(0)
    for kind, (data, _, suffix) in kinds.items():
        if data is None:
            continue
        (folder / f"x{suffix}").write_bytes(data)
        found = []
        for seen in (None, lambda sample: None):
            shard = ShardUrl(f"x{suffix}", str(folder))
            count = counting.count_shard(parts.open, shard, ErrorBudget(parts.errors, "a"), seen)
            found.append(count._replace(errors=[str(error) for error in count.errors]))
        assert found[0] == found[1], kind
    assert len(kinds) > 30


@pytest.mark.parametrize("kind", ["jsonl", "tar.gz"])
def test_other_formats_are_measured(folder, kind):
    if kind == "jsonl":
        (folder / "c.jsonl").write_text("".join(f'{{"txt": "{"ä" * n}", "n": {n}}}\n' for n in range(1, 5)))
    else:
        with tarfile.open(folder / "c.tar.gz", "w:gz") as tar:
            for n in range(1, 5):
                info = tarfile.TarInfo(f"{n}.txt")
                info.size = 2 * n
                tar.addfile(info, io.BytesIO(bytes(2 * n)))
    (folder / "c.yaml").write_text(f"wdspec: 1\ndataset: [{{name: c, shards: c.{kind}}}]\n")
    found = measure(spec="c.yaml")["sources"]["c"]
    assert (found["samples"], found["bytes"]) == (4, 20)
    assert found["fields"]["txt"]["quantiles"] == [2, 2, 2, 2, 4, 6, 8, 8, 8]


def test_unchanged_shards_are_not_read_again_and_missing_ones_are_removed(folder, opened):
    first = measure()
    assert (first["read"], sorted(opened)) == (
        5,
        ["a-000.tar", "a-001.tar", "a-002.tar", "b-000.tar", "b-001.tar"],
    )
    opened.clear()
    written = (folder / "s.stats.json").stat().st_mtime_ns
    assert measure()["unchanged"] == 5
    assert opened == []
    assert (folder / "s.stats.json").stat().st_mtime_ns == written
    change(folder / "a-001.tar")
    (folder / "a-000.tar").unlink()
    write_shard(folder / "a-new.tar", [("k", {"txt": b"x"})])
    out, _ = within("stats", "s.yaml", "--check", code=1)
    assert [line.split()[:2] for line in out.splitlines()[1:4]] == [
        ["a", "a-001.tar"],
        ["a", "a-new.tar"],
        ["a", "a-000.tar"],
    ]
    assert opened == []
    found = measure()
    assert (found["read"], opened) == (2, ["a-001.tar", "a-new.tar"])
    assert list(json.loads((folder / "s.stats.json").read_text())["shards"]["a"]) == [
        "a-001.tar",
        "a-002.tar",
        "a-new.tar",
    ]
    assert found["sources"]["a"]["samples"] == 41
    assert "as measured" in within("stats", "s.yaml", "--check")[0]
    opened.clear()
    assert measure("--update")["read"] == len(opened) == 5
    assert "pass only one of them" in within("stats", "s.yaml", "--update", "--check", code=2)[1]


def test_changed_read_options_measure_shards_again(folder, opened):
    measure()
    opened.clear()
    (folder / "s.yaml").write_text(SPEC.replace('"a-*.tar"', '"a-*.tar", key: last_dot'))
    assert measure()["read"] == len(opened) == 3
    (folder / "s.yaml").write_text(
        SPEC.replace('"a-*.tar"', '"a-*.tar", key: last_dot, decode: raw, shuffle: 9')
    )
    assert measure()["read"] == 0


def test_an_unmeasurable_shard_is_reported_and_its_source_has_no_numbers(folder):
    whole = (folder / "a-001.tar").read_bytes()
    (folder / "a-001.tar").write_bytes(whole[:5000])
    (folder / "b-001.tar").unlink()
    out, _ = within("stats", "s.yaml", "--jobs", "0", code=1)
    assert "a-001.tar" in out
    assert "truncated" in out
    assert "b-001.tar" in out
    assert "warning: the numbers of a, b are not used" in out
    assert "s.stats.json: 3 shards read" in out
    said, _ = within("validate", "s.yaml")
    assert "W108 sources of which not all shards could be measured: `a`, `b`" in said
    with pytest.raises(
        UsageError,
        match="needs the size of every source; run `wdspec stats SPEC`, which writes sizes to the file",
    ):
        wdspec.plan("s.yaml")
    (folder / "a-001.tar").write_bytes(whole)
    write_source(folder, "b", shards=2, samples=10)
    assert measure()["read"] == 3  # that of b is new, too
    assert shares() == {"a": 0.75, "b": 0.25}


def test_skipped_damage_is_counted_as_in_reading(folder):
    (folder / "s.yaml").write_text(SPEC + "errors: skip\n")
    with tarfile.open(folder / "a-001.tar", "w") as tar:
        for name in ("k1.txt", "k1.txt", "k2.txt"):
            tar.addfile(tarfile.TarInfo(name))
    measure()
    shard = json.loads((folder / "s.stats.json").read_text())["shards"]["a"]["a-001.tar"]
    assert (shard["samples"], shard["lost"]) == (2, [0])
    (folder / "b-001.tar").unlink()
    found = measure()
    assert (found["read"], found["sources"]["b"]["samples"]) == (1, 10)
    assert measure()["read"] == 1, "it may come back"


def test_an_interrupted_run_keeps_its_measurements(folder, monkeypatch, opened):
    def interrupted(task):
        if task.shard.text == "a-002.tar":
            raise KeyboardInterrupt
        return measure_shard(task)

    measure_shard = measure_job.measure_shard
    monkeypatch.setattr(measure_job, "measure_shard", interrupted)
    within("stats", "s.yaml", "--jobs", "0", code=130)
    monkeypatch.setattr(measure_job, "measure_shard", measure_shard)
    opened.clear()
    assert measure()["unchanged"] == 2
    assert sorted(opened) == ["a-002.tar", "b-000.tar", "b-001.tar"]


def test_tasks_and_results_can_be_pickled(folder):
    measure()
    job = measure_job.StatsJob(wdspec.load("s.yaml"))
    job.tasks = pickle.loads(pickle.dumps(job.tasks))

    class Pickling(LocalEngine):
        def run(self, do, works, lost):
            for work in works:
                yield work, pickle.loads(pickle.dumps(do(work)))

    job.run(Pickling(0))
    assert (job.measurements().text, job.faults) == ((folder / "s.stats.json").read_bytes(), [])


def test_shares_use_measurements_and_states_depend_on_them(folder):
    measure()
    declared = SPEC.replace("stats: s.stats.json\n", "").replace('a-*.tar"', 'a-*.tar", samples: 60')
    (folder / "declared.yaml").write_text(
        declared.replace('b-{000..001}.tar"', 'b-{000..001}.tar", samples: 20')
    )
    assert shares() == shares("declared.yaml") == {"a": 0.75, "b": 0.25}
    with wdspec.loader("s.yaml") as loader, wdspec.loader("declared.yaml") as other:
        next(iter(loader))
        state = loader.state_dict()
        assert state["digest"] == other.state_dict()["digest"]
    out, _ = within("explain", "s.yaml", "--format", "json")
    assert [(each["samples"], each["passes"], each["estimated"]) for each in json.loads(out)["sources"]] == [
        (60, 0.5, False),
        (20, 0.5, False),
    ]
    write_source(folder, "b", shards=2, samples=30)
    measure()
    assert shares() == {"a": 0.5, "b": 0.5}
    with (
        wdspec.loader("s.yaml") as loader,
        pytest.raises(UsageError, match=r"sources\.a\.share: was 3/4, now 1/2"),
    ):
        loader.load_state_dict(state)


def test_a_measurement_that_appears_between_two_starts_is_named_on_resume(tmp_path):
    write_source(tmp_path, "a", shards=4, samples=2)
    write_source(tmp_path, "b", shards=1, samples=40)
    (tmp_path / "s.yaml").write_text(
        "stats: s.json\nbatch: 8\ndataset: [{name: a, shards: a-*.tar}, {name: b, shards: b-*.tar}]\n"
    )

    def start(**mix):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return wdspec.loader(tmp_path / "s.yaml", num_workers=0, overrides=mix)

    with start() as loader:
        next(iter(loader))
        state = loader.state_dict()
    within("stats", "s.yaml", folder=tmp_path)
    with start() as loader, pytest.raises(UsageError, match=r"sources\.a\.share: was 4/5, now 1/6"):
        loader.load_state_dict(state)
    with start(**{"mix.by": "shards"}) as loader:
        loader.load_state_dict(state)


def test_a_window_that_fills_no_batch_causes_a_warning_when_shards_are_measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_shard(tmp_path / "t.tar", [(f"{number:03}", {"txt": b"x" * 10}) for number in range(200)])

    def warnings_of(most, window):
        batch = f"{{cost: txt.length, max_cost: {most}, window: {window}, collate: {{txt: list}}}}"
        (tmp_path / "w.yaml").write_text(f"batch: {batch}\ndataset: [{{name: a, shards: t.tar}}]\n")
        [report] = json.loads(within("stats", "w.yaml", "-o", "w.json", "--update", "--format", "json")[0])[
            "files"
        ]
        return [each for each in report["warnings"] if "W398" in each]

    assert "costs 10.0% of `max_cost`" in warnings_of(5000, 50)[0]
    assert "costs less than 0.1% of `max_cost`" in warnings_of(5_000_000, 50)[0]
    assert warnings_of(5000, 2000) == []
    within("stats", "w.yaml", "-o", "w.json")
    (tmp_path / "w.yaml").write_text((tmp_path / "w.yaml").read_text().replace("2000", "50"))
    assert "W398" not in "".join(within("stats", "w.yaml", "-o", "w.json")), "nothing is read"


def test_explain_shows_sizes_and_fields_of_remote_shards(folder, monkeypatch):
    measure()
    monkeypatch.setattr("wdspec.advice.explanation.measure", lambda *of_source: None)  # as of remote shards
    (folder / "s.yaml").write_text(SPEC.replace('a-*.tar"', 'a-*.tar", decode: {png: rgb8}'))
    said = json.loads(within("explain", "s.yaml", "--format", "json")[0])
    a, b = said["sources"]
    assert (a["held_bytes"], b["held_bytes"]) == pytest.approx((60 * 440 / 60, 20 * 130 / 20), rel=0.01)
    assert any("W504 `decode: {png: rgb8}` decodes nothing" in warning for warning in said["warnings"])


def test_explain_works_with_zero_shards(folder, monkeypatch):
    measure()
    text = (folder / "s.stats.json").read_text()
    (folder / "s.stats.json").write_text(re.sub(r'"(listed|measured)": \d+', r'"\1": 0', text))
    monkeypatch.setattr("wdspec.advice.explanation.measure", lambda *of_source: None)
    assert "75.00%" in within("explain", "s.yaml")[0]


def test_a_lock_stays_valid_when_shards_are_measured_later(folder):
    (folder / "s.yaml").write_text(SPEC.replace("mix: {by: samples}\n", ""))
    within("lock", "s.yaml")
    measure()
    assert wdspec.load("s.yaml").sources[0].samples == 60
    wdspec.plan("s.yaml", lock="s.lock.json")
    within("validate", "s.yaml", "--locked")


def test_shares_can_use_bytes_and_temperature(folder):
    (folder / "s.yaml").write_text(SPEC.replace("by: samples", "by: bytes, temperature: 2"))
    found = measure()["sources"]
    roots = {name: source["bytes"] ** 0.5 for name, source in found.items()}
    assert shares() == pytest.approx({name: root / sum(roots.values()) for name, root in roots.items()})


def test_w342_uses_measured_samples(folder):
    text = SPEC.replace("mix: {by: samples}\n", "").replace('.tar"}', '.tar", weight: 1}')
    (folder / "s.yaml").write_text(text.replace("epoch: 40", "epoch: 4000"))
    measure()
    assert "W342 an epoch takes 100 passes over the 20 samples of `b`" in within("validate", "s.yaml")[0]


def test_shares_by_size_warn_if_shards_changed(folder):
    measure()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wdspec.plan("s.yaml")
    write_shard(folder / "a-003.tar", [("k", {"txt": b"x"})])
    with pytest.warns(
        UserWarning, match="1 shard was added and 0 removed; `wdspec stats SPEC` measures them"
    ):
        wdspec.plan("s.yaml")


PASS = SPEC.replace("mix: {by: samples}\n", "").replace("epoch: 40", "epoch: pass")


def test_a_pass_does_not_open_measured_shards_to_count_them(folder, opened):
    (folder / "s.yaml").write_text(PASS)
    (folder / "plain.yaml").write_text(PASS.replace("stats: s.stats.json\n", ""))
    expected = Listed.of(wdspec.load("plain.yaml")).counts
    measure()
    opened.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Listed.of(wdspec.load("s.yaml")).counts == expected
        assert opened == []
        pipeline = wdspec.compile("s.yaml")
        assert len(pipeline) == 40
        assert len(list(pipeline)) == 40
    write_source(folder, "b", shards=1, samples=12)
    opened.clear()
    with pytest.warns(
        UserWarning,
        match="1 of 2 shards of `b` has changed since `stats` was written, and was counted again",
    ):
        counts = Listed.of(wdspec.load("s.yaml")).counts
    assert opened == ["b-000.tar"]
    assert (counts["a"], counts["b"].samples) == (expected["a"], 22)


def test_a_pass_with_a_limit_measures_only_needed_shards(folder, monkeypatch):
    monkeypatch.setattr(counting, "MARK_EVERY", 4096)
    (folder / "s.yaml").write_text(PASS + "limit: 6\n")
    expected = Listed.of(wdspec.load("s.yaml", overrides={"stats": None})).counts
    measure()
    assert Listed.of(wdspec.load("s.yaml")).counts == expected
    assert any(shard.marks for shard in expected["a"].shards.values())


def test_a_pass_counts_shards_itself_if_the_file_is_missing(folder):
    (folder / "s.yaml").write_text(PASS)
    with pytest.warns(
        UserWarning, match="`stats` of the spec cannot be used: .*; `wdspec stats SPEC` writes it"
    ):
        assert len(wdspec.compile("s.yaml")) == 40


UNUSABLE = "has no measurements that can be used"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("name: b", "name: c", "sources without measurements: `c`"),
        ("a-*.tar", "z-*.tar", "sources with a pattern in `shards` that no file matches: `a`"),
        ("a-*.tar", "a-0*.tar", "sources whose `shards` have changed since they were measured: `a`"),
        (
            "{name: b",
            "{name: b, tar: {end: lenient}",
            "sources that were measured with another `tar`: `b`",
        ),
        (
            "{name: b",
            "{name: b, errors: skip, empty: allow",
            "sources that were measured with another `empty` and `errors: {skip: shard}`: `b`",
        ),
        (
            "{name: b",
            "{name: b, key: {regex: '(.*)[.](.*)'}",
            "sources that were measured with another `key`: `b`",
        ),
        (
            "s.stats",
            "t.stats",
            "t.stats.json has no measurements that can be used: the file does not exist",
        ),
        ("s.stats.json", "s.yaml", f"s.yaml {UNUSABLE}: it is not a file of `wdspec stats`"),
        ("s.stats.json", "old.json", f"old.json {UNUSABLE}: it was written by another wdspec, in format 1"),
        ("s.stats.json", "below.json", f"below.json {UNUSABLE}: it is not a file of `wdspec stats`"),
        ("s.stats.json", "flag.json", f"flag.json {UNUSABLE}: it is not a file of `wdspec stats`"),
        ("s.stats.json", "endless.json", f"endless.json {UNUSABLE}: it is not a file of `wdspec stats`"),
        ("s.stats.json", "nan.json", f"nan.json {UNUSABLE}: it is not a file of `wdspec stats`"),
        ("s.stats.json", "cut.json", f"cut.json {UNUSABLE}: it is not a file of `wdspec stats`"),
        ("s.stats.json", "deep.json", "deep.json has no measurements that can be used: it is not a file"),
        ("s.stats.json", ".", ". has no measurements that can be used: is a directory"),
    ],
)
def test_missing_measurements_cause_a_warning(folder, old, new, says):
    measure()
    text = (folder / "s.stats.json").read_text()
    (folder / "old.json").write_text(text.replace('"stats": 2', '"stats": 1'))
    for name, number in (("below", "-60"), ("flag", "true"), ("endless", "1e999")):
        (folder / f"{name}.json").write_text(text.replace('"samples": 60', f'"samples": {number}'))
    (folder / "nan.json").write_text(re.sub('"mean": [0-9.]+', '"mean": NaN', text))
    (folder / "cut.json").write_text(text[:-40])
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "s.yaml").write_text(SPEC.replace(old, new))
    out, _ = within("validate", "s.yaml")
    assert f"W108 {says}" in out
    assert "run `wdspec stats SPEC`" in out
    (folder / "s.yaml").write_text(SPEC.replace(old, new) + "bach: 8\n")
    out, _ = within("validate", "s.yaml", code=1)
    assert 0 < out.index("unknown key `bach`") < out.index("W108")  # which the error may have caused


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ("samples: 600", "`samples: 600` of `a` is used, but s.stats.json has measured 60"),
        ("samples: 6", "`samples: 6` of `a` is used, but s.stats.json has measured 60"),
        (
            "samples: 600, subset: 50%",
            "`samples: 600` of `a` is used, but s.stats.json has measured 60",
        ),
        ("samples: 30, subset: 50%", None),  # of those that are left
        ("samples: 62", None),  # rounded
        ("bytes: 1GB", "`bytes: 1,000,000,000` of `a` is used, but s.stats.json has measured"),
    ],
)
def test_a_number_that_a_spec_declares_is_compared_with_the_measured_one(folder, declared, says):
    measure()
    (folder / "s.yaml").write_text(SPEC.replace("{name: a", f"{{name: a, {declared}"))
    found = [str(each) for each in wdspec.validate("s.yaml") if each.code == "W109"]
    assert len(found) == (says is not None)
    if says:
        assert says in found[0]
        assert f"remove `{declared.partition(':')[0]}`, or run" in found[0]
        with pytest.warns(UserWarning, match="W109"):
            wdspec.load("s.yaml")


@pytest.mark.parametrize(
    ("dropping", "says"),
    [
        ("where: cls >= 0, missing: skip", "after `missing`, `where`, but"),
        (
            "make: {ids: {tokenize: txt, file: t.json}}",
            "write `eos` in `tokenize`, which keeps texts without tokens, or declare how many remain in `samples`",
        ),
    ],
)
def test_a_limit_of_passes_says_what_leaves_out_samples_that_were_counted(folder, dropping, says):
    measure()
    (folder / "s.yaml").write_text(SPEC.replace("{name: a", f"{{name: a, max_passes: 2, {dropping}"))
    out, _ = within("validate", "s.yaml", code=1)
    assert "E322 `max_passes` needs the number of samples" in out
    assert says in out


def test_a_limit_of_passes_counts_the_samples_that_remain(folder):
    measure()
    path = folder / "s.yaml"
    spec = SPEC.replace("{name: a", "{name: a, max_passes: 2, where: cls >= 40")
    path.write_text(spec)
    out, _ = within("validate", "s.yaml")
    assert "W108 sources with `max_passes` of which no one counted what remains after `where`: `a`" in out
    measure()
    assert "W108" not in within("validate", "s.yaml")[0]
    assert wdspec.load("s.yaml").sources[0].samples == 20
    assert "`max_passes: 2` of 20 samples are 40" in within("explain", "s.yaml")[0]
    path.write_text(spec.replace("max_passes", "samples: 600, max_passes"))
    out, _ = within("validate", "s.yaml")
    assert "has measured 60, of which 20 remain after `where`" in out
    path.write_text(spec.replace("where: cls >= 40", "samples: 600, where: cls >= 41"))
    assert (
        "remove `samples`, and run `wdspec stats SPEC` again, which counts" in within("validate", "s.yaml")[0]
    )


@pytest.mark.parametrize("policy", ["skip", "{max_rate: 0.1}", "{skip: [decode]}"])
def test_a_changed_error_policy_keeps_measurements_valid(folder, policy):
    measure()
    (folder / "s.yaml").write_text(SPEC.replace("{name: b", f"{{name: b, errors: {policy}"))
    assert "W108" not in within("validate", "s.yaml")[0]
    assert wdspec.load("s.yaml").sources[1].samples == 20


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize(
    ("reading", "batch", "file"),
    [
        (
            "make: {ids: {tokenize: txt, file: t.json}}",
            "pack: {fields: ids, length: 64}, overlong: split",
            "t.json",
        ),
        ("keys: kept.txt", "cost: txt.length, max_cost: 64", "kept.txt"),
        ("lookup: {table: t.csv, on: cls, fields: n}", "cost: n, max_cost: 64", "t.csv"),
    ],
)
def test_costs_of_a_pass_that_depend_on_files_are_measured_once(folder, reading, batch, file, changed):
    """`validate` does not read these files: only where shards are listed is a change of one noticed."""
    train_tokenizer(["a 1 2"] * 4, "t.json")
    (folder / "kept.txt").write_text("".join(f"a000{i:04d}\n" for i in range(9)))
    (folder / "t.csv").write_text("cls,n\n" + "".join(f"{i},{i % 7 + 1}\n" for i in range(60)))
    text = SPEC.replace('  - {name: b, shards: "b-{000..001}.tar"}\n', "").replace(
        "{name: a", f"{{name: a, {reading}"
    )
    text = text.replace("mix: {by: samples}\n", "").replace("batch: 2", f"batch: {{{batch}}}")
    (folder / "s.yaml").write_text(text.replace("epoch: 40", "epoch: pass"))
    measure()
    if changed:
        (folder / file).write_text((folder / file).read_text() + "\n")
    assert "W108" not in within("validate", "s.yaml")[0]


def test_a_mistake_in_the_key_is_reported_once(folder):
    for value, code in (("[x]", "E202"), ("https://example.org/s.json", "E102"), ("3", "E202")):
        (folder / "s.yaml").write_text(SPEC.replace("s.stats.json", value))
        out, _ = within("validate", "s.yaml", code=1)
        assert out.count(f" {code} ") == 1
        assert "1 error" in out
    (folder / "s.yaml").write_text(SPEC.replace("stats: s.stats.json\n", ""))
    out, _ = within("validate", "s.yaml", code=1)
    assert out.count("E206 `mix.by: samples` needs the number of samples of each source") == 2
    assert "add `stats: stats.json` and run `wdspec stats SPEC`, or add `samples: n`" in out


@pytest.mark.parametrize(
    ("keys", "more"),
    [
        ("where: cls >= 0", "epoch: {pass: drop, reshuffle: true}\nbatch: {size: 2}"),
        (
            "weight: 1",
            "mix: {shares_in: cost}\nepoch: {batches: 5}\nbatch: {cost: cls + 1, max_cost: 100}",
        ),
    ],
)
def test_what_splits_are_told_about_measuring_works_in_both(folder, keys, more):
    spec = f"wdspec: 1\ndefaults: {{extensions: cls}}\n{more}\nsplits:\n"
    for name, shards in (("train", "a"), ("more", "b")):
        spec += f"  {name}:\n    dataset: [{{name: a, shards: {shards}-*.tar, {keys}}}]\n"
    (folder / "s.yaml").write_text(spec)
    for _ in range(2):  # a problem of both splits is reported of one at a time
        hints = dict.fromkeys(each.hint for each in wdspec.validate("s.yaml"))
        for file, name in re.findall("add `stats: ([a-z.]+)` in the split `([a-z]+)`", "".join(hints)):
            spec = spec.replace(f"  {name}:\n", f"  {name}:\n    stats: {file}\n")
        (folder / "s.yaml").write_text(spec)
        if "stats" in spec:
            within("stats", "s.yaml", "--jobs", "0")
    assert wdspec.validate("s.yaml") == []
    for name in ("train", "more"):
        with wdspec.loader(f"s.yaml#{name}", num_workers=0) as loader:
            assert len(list(loader)) > 0


def test_each_split_has_its_own_file(folder):
    train, val = "{name: a, shards: a-*.tar}", "{shards: b-000.tar}"
    splits = f"wdspec: 1\nsplits:\n  train: {{dataset: [{train}]}}\n  val: {{dataset: [{val}]}}\n"
    (folder / "s.yaml").write_text(splits)
    out, _ = within("stats", "s.yaml", "--jobs", "0", "--format", "json")
    assert [each["file"] for each in json.loads(out)["files"]] == ["s.train.stats.json", "s.val.stats.json"]
    assert "each of 2 splits" in within("stats", "s.yaml", "-o", "x", code=2)[1]
    within("stats", "s.yaml#val", "--jobs", "0", "-o", "x.json")
    assert Measurements.read("x.json").split == "val"
    (folder / "s.yaml").write_text(splits.replace("wdspec: 1", "wdspec: 1\nstats: x.json"))
    assert (
        "W108 x.json has no measurements that can be used: it is for the split `val`"
        in within("validate", "s.yaml")[0]
    )
    assert (
        "the splits `train` and `val` have the same `stats:` file"
        in within("stats", "s.yaml", "--jobs", "0", code=2)[1]
    )
    said = within("stats", "s.yaml#train", "--jobs", "0", code=1)[1]
    assert "`x.json` is of the split `val`, but each split needs its own file" in said
    assert Measurements.read("x.json").split == "val"


def test_only_a_damaged_file_of_its_own_kind_is_overwritten(folder):
    for name, text in (("s.yaml", SPEC), ("data.json", '{"a": 1}')):
        (folder / name).write_text(text)
        said = within("stats", "s.yaml", "--jobs", "0", "-o", name, "--update", code=1)[1]
        assert f"`{name}` is not a file of `wdspec stats`; give another name" in said
        assert (folder / name).read_text() == text
    measure()
    (folder / "s.stats.json").write_text((folder / "s.stats.json").read_text()[:-100])
    assert measure()["read"] == 5
    (folder / "s.stats.json").write_text("")
    assert measure()["read"] == 5


def test_a_pipe_or_device_is_not_a_stats_file(folder):
    os.mkfifo(folder / "pipe.json")
    said = within("stats", "s.yaml", "--jobs", "0", "-o", "pipe.json", code=1)[1]
    assert "`pipe.json` cannot be read: it is a pipe, not a regular file; give another name" in said
    with pytest.raises(OSError, match="not a regular file"):
        Measurements.read("pipe.json")


def test_validating_parses_no_shard_and_reformatted_files_are_read(folder, monkeypatch):
    measure()
    said = json.loads((folder / "s.stats.json").read_text())
    of_json = MeasuredShard.of_json
    monkeypatch.setattr(MeasuredShard, "of_json", lambda said: pytest.fail("a shard was parsed"))
    assert [source.samples for source in wdspec.load("s.yaml").sources] == [60, 20]
    monkeypatch.setattr(MeasuredShard, "of_json", of_json)
    (folder / "s.stats.json").write_text(json.dumps(said, indent=4))
    assert [source.samples for source in wdspec.load("s.yaml").sources] == [60, 20]
    assert measure()["read"] == 0


def test_shards_on_a_server_are_identified_by_etag(folder, nginx, opened):
    write_source(nginx.root, "far", shards=2, samples=5)
    (folder / "s.yaml").write_text(
        f"wdspec: 1\ndataset: [{{name: far, shards: '{nginx.url}/far-{{000..001}}.tar'}}]\n"
    )
    assert measure()["sources"]["far"]["samples"] == 10
    shards = json.loads((folder / "s.stats.json").read_text())["shards"]["far"]
    assert all(shard["validator"].strip() and shard["size"] for shard in shards.values())
    opened.clear()
    assert measure()["unchanged"] == 2
    assert opened == []
    write_shard(nginx.root / "far-001.tar", [("k", {"txt": b"x"})])
    found = measure()
    assert (found["read"], found["sources"]["far"]["samples"]) == (1, 6)


def test_copies_elsewhere_are_identified_by_size(folder, opened):
    measure()
    opened.clear()
    os.mkdir("copies")
    for name in sorted(os.listdir()):
        if name.endswith(".tar"):
            shutil.copyfile(name, f"copies/{name}")
    rule = {"WDS_REWRITE": f"{folder}/([ab]-)={folder}/copies/\\1"}
    text = SPEC.replace('"a-*.tar"', f'"{folder}/a-{{000..002}}.tar"').replace('"b-', f'"{folder}/b-')
    (folder / "s.yaml").write_text(text)
    assert measure()["read"] == 5
    opened.clear()
    out, _ = within("stats", "s.yaml", "--jobs", "0", **rule)
    assert "0 shards read, 5 unchanged" in out
    with open("copies/a-000.tar", "ab") as file:
        file.write(bytes(512))
    assert "1 shard read, 4 unchanged" in within("stats", "s.yaml", "--jobs", "0", **rule)[0]


def picture(height, width):
    buffer = io.BytesIO()
    Image.new("RGB", (width, height)).save(buffer, "png")
    return buffer.getvalue()


def test_lengths_are_of_decoded_values_and_are_kept(folder, opened):
    samples = [
        (f"k{n}", {"txt": "ä".encode() * n, "png": picture(4 + n, 7), "json": json.dumps([0] * n).encode()})
        for n in range(1, 5)
    ]
    write_shard(folder / "a-000.tar", samples)
    write_shard(folder / "a-001.tar", samples[:2])
    source = '{name: a, shards: "a-{000..001}.tar", extensions: txt png json cls, missing: none, decode: {png: rgb8}}'
    (folder / "s.yaml").write_text(f"wdspec: 1\ndataset:\n  - {source}\n")
    assert "lengths" not in measure()["sources"]["a"]
    found = measure("--lengths")
    assert found["read"] == 2
    lengths = {
        name: (each["count"], each["quantiles"][-1])
        for name, each in found["sources"]["a"]["lengths"].items()
    }
    assert lengths == {"json": (6, 4), "png[0]": (6, 8), "png[1]": (6, 7), "png[2]": (6, 3), "txt": (6, 4)}
    assert found["sources"]["a"]["fields"]["txt"]["quantiles"][-1] == 8
    shard = json.loads((folder / "s.stats.json").read_text())["shards"]["a"]["a-000.tar"]
    assert shard["lengths"]["txt"]["mean"] == 2.5
    opened.clear()
    assert (measure()["read"], measure("--lengths")["read"], opened) == (0, 0, [])
    write_shard(folder / "a-001.tar", samples[:3])
    assert measure()["sources"]["a"]["lengths"]["txt"]["count"] == 7
    assert "png[0]" in within("stats", "s.yaml", "--jobs", "0")[0]
    shutil.copytree(folder, folder / "elsewhere")
    shown = within("stats", "elsewhere/s.yaml", "--jobs", "0")[0]
    assert "0 shards read, 2 unchanged" in shown
    assert "png[0]" in shown
    (folder / "s.yaml").write_text((folder / "s.yaml").read_text().replace("rgb8", "l8"))
    found = measure()
    assert (found["read"], "lengths" in found["sources"]["a"]) == (0, False)
    assert measure("--lengths")["read"] == 2


def test_undecodable_fields_are_problems_and_functions_are_found_next_to_the_spec(folder):
    (folder / "of_stats.py").write_text("def twice(sample):\n    return {'txt': sample['txt'] * 2}\n")
    text = 'wdspec: 1\ndataset: [{name: a, shards: "a-*.tar", map: of_stats:twice}]\n'
    (folder / "s.yaml").write_text(text)
    assert list(measure("--lengths")["sources"]["a"]["lengths"]) == ["txt"]
    write_shard(folder / "a-001.tar", [("k", {"txt": b"\xff"})])
    (fault,) = measure("--lengths", code=1)["faults"]
    assert (fault["shard"], "cannot decode as txt" in fault["why"]) == ("a-001.tar", True)
    (folder / "s.yaml").write_text(text.replace("twice", "thrice"))
    assert "of_stats" in measure("--lengths", code=1)["faults"][0]["why"]
    _, said = within("stats", "s.yaml", "--lengths", "--jobs", "0", code=1, WDS_SECURE="1")
    assert "which WDS_SECURE=1 forbids" in said


def test_no_secret_is_stored(folder):
    (folder / "s.yaml").write_text(SPEC.replace("a-*.tar", "http://me:s3cret@127.0.0.1:9/a.tar"))
    _, said = within("stats", "s.yaml", "--jobs", "0", code=1)
    assert "its URLs contain a secret, which the file would store" in said
    assert "s3cret" not in said
    assert not Path("s.stats.json").exists()


def test_joined_files_and_columns_of_tables_are_measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for shard in range(2):
        numbers = range(shard * 10, shard * 10 + 10)
        write_shard(tmp_path / f"a-{shard}.tar", [(f"k{n:02d}", {"jpg": bytes(100 + n)}) for n in numbers])
        partners = [(f"k{n:02d}", {"caption": bytes(n), "other": b"x"}) for n in (*numbers, 98) if n % 3]
        write_shard(tmp_path / f"b-{shard}.tar", partners[:-1] if shard else partners)
    rows = [json.dumps({"__key__": f"k{n:02d}", "score": n / 2, "text": "é" * n}) for n in range(20)]
    (tmp_path / "t.jsonl").write_text("\n".join(rows))
    spec = """
        stats: s.stats.json
        dataset:
          - name: a
            shards: a-{0..1}.tar
            join: [{shards: 'b-{0..1}.tar', rename: {txt: caption}, fields: caption, missing: none}]
            lookup: [{table: t.jsonl, fields: [score, text]}]
    """
    (tmp_path / "s.yaml").write_text(spec)
    found = measure()["sources"]["a"]
    assert (found["samples"], found["bytes"]) == (20, sum(range(100, 120)))
    sizes = {name: (each["count"], each["mean"]) for name, each in found["fields"].items()}
    joined = [n for n in range(20) if n % 3]
    assert sizes == {
        "jpg": (20, 109.5),
        "txt": (13, round(sum(joined) / 13, 1)),
        "score": (20, 8.0),
        "text": (20, 19.0),
    }
    again = measure()
    assert (again["read"], again["unchanged"]) == (0, 2)
    write_shard(tmp_path / "b-1.tar", [(f"k{n:02d}", {"caption": bytes(5)}) for n in range(10, 20)])
    again = measure()
    assert (again["read"], again["unchanged"]) == (1, 1)
    assert again["sources"]["a"]["fields"]["txt"]["count"] == 16


@pytest.mark.parametrize("ranks", [1, 3])
def test_unmatched_partner_samples_are_counted_while_reading(tmp_path, ranks):
    write_shard(tmp_path / "a.tar", [(f"k{n:02d}", {"jpg": b"x"}) for n in range(0, 40, 2)])
    write_shard(tmp_path / "b.tar", [(f"k{n:02d}", {"txt": b"y"}) for n in range(40) if n % 4 != 2])
    join = [{"shards": f"{tmp_path}/b.tar", "missing": "skip", "fields": "txt"}]
    spec = {"dataset": [{"name": "a", "shards": f"{tmp_path}/a.tar", "join": join, "shuffle": 0}]}
    spec |= {"elastic": {"ranks": ranks, "workers": 1}, "epoch": {"batches": 15}, "batch": 1}
    total = passes = 0
    for rank in range(ranks):
        with wdspec.loader(spec, num_workers=0, rank=rank, world_size=ranks) as loader:
            stats = None
            for _ in loader:
                stats = loader.stats().sources["a"]
                if stats.passes >= 1:
                    break
            total += stats.unjoined
            passes += stats.passes
    assert passes == ranks
    assert total == 20  # the odd ones


@pytest.mark.parametrize("is_rewritten", [False, True])
@pytest.mark.parametrize("more", [{"where": "txt.length > 3"}, {"subset": "50%"}, {"exclude": ["1-00"]}, {}])
@pytest.mark.parametrize("repeat", [{}, {"repeat": 1.5}])
@pytest.mark.parametrize("batch", [4, {"cost": "txt.length", "max_cost": 20}])
def test_a_pass_reads_the_samples_of_shards_that_changed_after_they_were_measured(
    tmp_path, is_rewritten, more, repeat, batch
):
    def write(shard, count):
        samples = [(f"{shard}-{n:02}", {"txt": b"x" * (1 + n % 7)}) for n in range(count)]
        write_shard(tmp_path / f"a-{shard}.tar", samples)

    for shard in range(3):
        write(shard, 30)
    source = {"name": "a", "shards": f"{tmp_path}/a-{{0..2}}.tar", **more, **repeat}
    spec = {"epoch": "pass", "batch": batch, "elastic": {"ranks": 1, "workers": 1}, "dataset": [source]}
    path = tmp_path / "s.json"
    path.write_text(json.dumps(spec | {"stats": f"{tmp_path}/s.stats.json"}))
    measure(spec=str(path))
    if is_rewritten:
        write(1, 41)
    change(tmp_path / "a-1.tar")

    def keys_of(spec):
        with wdspec.loader(spec, num_workers=0) as loader:
            pairs = [zip(each["__key__"], each["__mask__"], strict=True) for each in loader]
        return sorted(key for batch in pairs for key, is_sample in batch if is_sample)

    expected = keys_of(spec)
    with pytest.warns(UserWarning, match="1 of 3 shards of `a` has changed"):
        found = keys_of(path)
    assert found == expected


@pytest.mark.parametrize(
    "more",
    [
        {"join": [{"shards": "b-{0..0}.tar"}]},
        {"lookup": {"table": "t.csv", "fields": "q"}},
    ],
)
def test_measurements_of_joined_sources_hold_in_a_moved_folder(tmp_path, more):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    keys = [f"{n:03}" for n in range(40)]
    write_shard(here / "a-0.tar", [(key, {"txt": b"x" * (1 + n % 7)}) for n, key in enumerate(keys)])
    write_shard(here / "b-0.tar", [(key, {"cap.txt": b"y"}) for key in keys])
    (here / "t.csv").write_text("key,q\n" + "".join(f"{key},{n}\n" for n, key in enumerate(keys)))
    source = {"name": "a", "shards": "a-{0..0}.tar", "where": "txt.length > 3", **more}
    spec = {"epoch": "pass", "batch": 4, "stats": "s.stats.json", "dataset": [source]}
    (here / "s.json").write_text(json.dumps(spec))
    measure(spec=str(here / "s.json"))
    shutil.copytree(here, there, copy_function=shutil.copy2)
    with wdspec.loader(here / "s.json", num_workers=0, rank=0, world_size=1) as loader:
        assert len(loader) == 6
        next(iter(loader))
        state = loader.state_dict()
    with wdspec.loader(there / "s.json", num_workers=0, rank=0, world_size=1) as loader:
        assert len(loader) == 6
        loader.load_state_dict(state)


def test_a_stats_file_whose_digest_is_of_another_kind_is_measured_again(folder):
    measure("-o", "s.stats.json")
    text = (folder / "s.stats.json").read_text()
    for reading in {source["reading"] for source in json.loads(text)["sources"].values()}:
        text = text.replace(json.dumps(reading), '"f736185a4665eadb"')
    (folder / "s.stats.json").write_text(text)
    assert "measured with another version of wdspec" in "".join(within("validate", "s.yaml"))
    assert measure("-o", "s.stats.json")["read"] == 5


def test_each_source_is_added_up_once_for_the_file_the_report_and_the_advice(folder, monkeypatch):
    names, digest = [], measure_job.digest_shards
    monkeypatch.setattr(
        measure_job, "digest_shards", lambda spec, source: names.append(source.name) or digest(spec, source)
    )
    measure()
    assert names == ["a", "b"]
