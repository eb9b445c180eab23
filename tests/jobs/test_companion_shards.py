"""`check`, `stats` and the counts of a run also cover the sources of companions, each by its own keys."""

import json

import pytest
from commandline import within
from shardmaking import write_shard

import wdspec
from wdspec.jobs.check.report_file import ReportFile
from wdspec.run.stats import describe_stats

SPEC = """\
companions:
  pool: {shards: "n-{0..2}.tar", exclude: [n007], errors: {max_count: 100}}
dataset:
  - name: a
    shards: a-{0..3}.tar
    companions: {beside: {source: pool, chance: 0.5}}
    make: {other: {take: beside.txt, default: "-"}}
fields: [txt, other]
batch: 4
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Shards of 60 samples (a) and of 12 companions (n), of which n009 has broken JSON."""
    monkeypatch.chdir(tmp_path)
    for name, shards, each in (("a", 4, 15), ("n", 3, 4)):
        for shard in range(shards):
            numbers = range(shard * each, (shard + 1) * each)
            samples = [
                (
                    f"{name}{n:03}",
                    {"txt": f"{name}{n}".encode(), "json": b"{" if name + str(n) == "n9" else b"1"},
                )
                for n in numbers
            ]
            write_shard(tmp_path / f"{name}-{shard}.tar", samples)
    (tmp_path / "s.yaml").write_text(SPEC)
    return tmp_path


def check(*arguments, code=1):
    out, _ = within("check", "s.yaml", "--all", "--jobs", "0", "--format", "json", *arguments, code=code)
    return json.loads(out)


def write(**changes):
    text = SPEC
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    with open("s.yaml", "w") as file:
        file.write(text)


def test_check_reads_companions_by_their_own_keys_and_names_their_source(folder):
    report = check()
    [problem] = report["problems"]
    assert (problem["code"], problem["source"], problem["shard"], problem["key"]) == (
        "D202",
        "pool",
        "n-2.tar",
        "n009",
    )
    counts = {
        name: (each["samples"], each["delivered"], each["dropped"])
        for name, each in report["sources"].items()
    }
    assert counts == {"a": (60, 60, 0), "pool": (12, 10, 1)}
    (folder / "n-1.tar").write_bytes((folder / "n-1.tar").read_bytes()[:3000])
    assert ("pool", "n-1.tar") in {(each["source"], each["shard"]) for each in check()["problems"]}
    (folder / "n-1.tar").unlink()
    assert ("pool", "n-1.tar") in {(each["source"], each["shard"]) for each in check()["problems"]}


def test_check_compares_companions_with_what_their_source_expects(folder):
    write(expect=("exclude: [n007]", "expect: {samples: 13, fields: {txt: str}}"))
    assert ("D214", "pool") in {(each["code"], each["source"]) for each in check()["problems"]}


def test_companions_that_cannot_be_listed_are_a_problem_of_their_source(folder):
    text = (folder / "s.yaml").read_text()
    other = '  - {name: b, shards: "a-0.tar", tags: {other: 1}}\n'
    (folder / "s.yaml").write_text(text.replace("n-{0..2}", "m-*").replace("fields: [", f"{other}fields: ["))
    report = check()
    [problem] = report["problems"]
    assert (problem["code"], problem["source"]) == ("D101", "pool")
    assert "`a` cannot be checked without it" in problem["message"]
    assert [*report["sources"]] == ["b"]


def test_samples_that_are_also_companions_are_no_duplicates_but_those_within_companions_are(folder):
    write(shards=("n-{0..2}.tar", "a-{0..1}.tar"), list=(", exclude: [n007]", ""))
    assert check(code=0)["problems"] == []
    shard = [(f"{name}{n}", {"txt": b"the same words", "json": b"1"}) for n, name in enumerate("xy")]
    write_shard(folder / "n-2.tar", shard)
    write(shards=("n-{0..2}.tar", "n-{0,2}.tar"), list=(", exclude: [n007]", ""))
    assert [(each["code"], each["source"]) for each in check(code=0)["problems"]] == [("D304", "pool")]


def test_a_report_of_companions_stays_valid_if_only_the_steps_of_the_mix_change(folder, monkeypatch):
    check("--report", "r.db")
    write(map=("batch: 4", "batch: 4\nmap: {txt: textwrap:dedent}"))
    recall, unchanged = ReportFile.facts, []
    monkeypatch.setattr(
        ReportFile, "facts", lambda self, look: [unchanged.append(look.source), recall(self, look)][1]
    )
    assert [each["shard"] for each in check("--report", "r.db")["problems"]] == ["n-2.tar"]
    assert unchanged == ["pool"] * 3


@pytest.mark.parametrize(("name", "shards"), [("pool", 3), ("a", 7)])
def test_one_source_can_be_checked_with_its_companions(folder, name, shards):
    assert sum(each["shards"] for each in check("--source", name)["sources"].values()) == shards


def test_stats_count_companions_and_their_file_still_fits_the_mix(folder):
    out, _ = within("stats", "s.yaml", "--jobs", "0", "--format", "json")
    [found] = json.loads(out)["files"]
    measured = {name: (each["samples"], each.get("kept")) for name, each in found["sources"].items()}
    assert measured == {"a": (60, None), "pool": (12, 11)}
    (folder / "n-1.tar").touch()
    write(stats=("batch: 4", "batch: 4\nstats: s.stats.json"))
    out, _ = within("stats", "s.yaml", "--jobs", "0")
    assert "1 shard read, 6 unchanged" in out
    spec = wdspec.load("s.yaml")
    assert [each.samples for each in spec.sources] == [60]
    within("validate", "--strict", "s.yaml")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_counts_companions_that_were_given_and_skipped(folder, workers):
    with wdspec.loader("s.yaml", overrides={"epoch": 240}, num_workers=workers) as loader:
        given = [other for batch in loader for other in batch["other"] if other != "-"]
        stats = loader.stats()
    pool = stats.sources["pool"]
    assert [*stats.sources] == ["a", "pool"]
    assert pool.delivered == len(given) > 80
    assert 10 * pool.passes <= len(given)
    assert pool.skipped["D202"] in (int(pool.passes), int(pool.passes) + 1)
    assert pool.dropped == {"exclude": pool.dropped["exclude"]}
    assert pool.received is pool.cost_share is None
    assert f"; pool {len(given)}, exclude " in describe_stats(stats)
