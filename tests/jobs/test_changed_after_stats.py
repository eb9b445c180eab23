"""What is said if shards, or how they are read, have changed since `wdspec stats` measured them: the true cause."""

import warnings

import pytest
from commandline import within
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import UsageError

SPEC = """\
stats: s.stats.json
dataset: [{name: a, shards: "a-{0..1}.tar"}, {name: b, shards: b.tar}]
"""
COST = "mix: {shares_in: cost}\nbatch: {cost: txt.length, max_cost: 40}\n"
PASS = "epoch: pass\nbatch: 5\n"


def write_samples(name, samples):
    write_shard(name, [(f"k{n:03}", {"txt": b"x" * (n % 7 + 1)}) for n in range(samples)])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a-0", "a-1", "b"):
        write_samples(tmp_path / f"{name}.tar", 20)
    return tmp_path


def measure(folder, keys):
    (folder / "s.yaml").write_text(SPEC + keys)
    within("stats", "s.yaml", "--jobs", "0")


def change(folder, old, new):
    text = (folder / "s.yaml").read_text()
    assert old in text
    (folder / "s.yaml").write_text(text.replace(old, new))


def test_shares_of_the_cost_name_shards_that_were_added_to_the_spec(folder):
    measure(folder, COST)
    write_samples(folder / "a-2.tar", 20)
    change(folder, "a-{0..1}", "a-{0..2}")
    with pytest.raises(
        UsageError, match=r"`stats` has sources whose `shards` have changed since they were.*source a"
    ):
        wdspec.plan("s.yaml")
    within("stats", "s.yaml", "--jobs", "0")
    wdspec.plan("s.yaml")


def test_shares_of_the_cost_name_the_key_by_which_sources_are_read_in_another_way(folder):
    measure(folder, COST)
    (folder / "s.yaml").write_text((folder / "s.yaml").read_text() + "errors: {max_count: 3}\n")
    with pytest.raises(UsageError, match=r"measured with another `errors: \{skip: shard\}`"):
        wdspec.plan("s.yaml")


def test_shares_of_the_cost_never_blame_a_version_of_wdspec_for_a_file_of_another_split(folder):
    dataset = '{dataset: [{name: a, shards: "a-{0..1}.tar"}]}'
    (folder / "s.yaml").write_text(
        f"stats: s.stats.json\n{COST}splits: {{train: {dataset}, val: {dataset}}}\n"
    )
    within("stats", "s.yaml", "--split", "train", "--jobs", "0")
    with pytest.raises(UsageError) as raised:
        wdspec.plan("s.yaml", split="val")
    assert "version of wdspec" not in str(raised.value)


def test_a_pass_says_nothing_about_shares_where_shards_were_added(folder):
    measure(folder, PASS)
    change(folder, "a-{0..1}.tar", "a-*.tar")
    within("stats", "s.yaml", "--jobs", "0")
    write_samples(folder / "a-2.tar", 20)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wdspec.plan("s.yaml")
    assert [str(each.message) for each in caught] == [
        "1 of 3 shards of `a` has changed since `stats` was written, and was counted again; `wdspec stats SPEC` "
        "measures them"
    ]


@pytest.mark.parametrize("samples", [9, 35])
def test_a_pass_counts_a_single_shard_again_whatever_else_has_changed(folder, samples):
    measure(folder, PASS)
    write_samples(folder / "b.tar", samples)
    (folder / "s.yaml").write_text((folder / "s.yaml").read_text() + "errors: {max_count: 3}\n")
    with wdspec.loader("s.yaml", num_workers=0) as loader:
        batches = [*loader]
        assert sum(len(batch["__key__"]) for batch in batches) >= 40 + samples
        stats = loader.stats().sources["b"]
    assert (stats.delivered, stats.skipped) == (samples, {})
