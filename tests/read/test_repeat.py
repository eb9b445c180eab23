"""`repeat` and selections in a pass: what comes, how often, and without empty places, against plain Python."""

import io
import json
import tarfile
from collections import Counter
from decimal import Decimal
from zlib import crc32

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading import read_pass
from runs import read_ranks
from shardmaking import write_shard, write_source

import wdspec
from wdspec.cli.explain import explain
from wdspec.cli.stats import stats


def place(key, seed=0):
    crc = crc32(key.encode(), crc32(str(seed).encode()) if seed else 0)
    return (crc ^ crc >> 16) * 0x9E3779B97F4A7C15 % 2**64


def is_within(key, first, stop, seed=0):
    return first * 2**64 <= place(key, seed) < int(stop * 2**64)


def times(repeat, keys, first=Decimal(0), stop=Decimal(1), seed=0):
    """How often a pass gives each of the keys that are kept."""
    whole, part = divmod(Decimal(str(repeat)), 1)
    upto = first + part * (stop - first)
    return Counter({key: int(whole) + (part > 0 and is_within(key, first, upto, seed)) for key in keys})


def write_scores(folder, name, sizes):
    keys = []
    for number, size in enumerate(sizes):
        own = [f"{name}{number}/{index:03d}" for index in range(size)]
        samples = [(key, {"json": json.dumps({"score": place(key) % 10}).encode()}) for key in own]
        write_shard(folder / f"{name}{number}.tar", samples)
        keys += own
    return f"{folder}/{name}{{0..{len(sizes) - 1}}}.tar", keys


def steps_of(spec, ranks, workers):
    """The global batches of a pass, as `workers` processes of each rank read them: lists of (key, is no padding)."""
    return [
        [(s["__key__"], s["__mask__"]) for part in step for s in part]
        for step in zip(*read_pass(spec, ranks, workers), strict=True)
    ]


SELECTIONS = {
    "all": ({}, lambda key: True),
    "subset": ({"subset": "40%"}, lambda key: is_within(key, 0, Decimal("0.4"))),
    "range": (
        {"subset": {"part": [0.25, 0.75], "seed": 3}},
        lambda key: is_within(key, Decimal("0.25"), Decimal("0.75"), 3),
    ),
    "exclude": (
        {"exclude": ["a0/000", "a0/001", "a1/000"]},
        lambda key: key not in ("a0/000", "a0/001", "a1/000"),
    ),
}
PARTS = {"subset": (Decimal(0), Decimal("0.4"), 0), "range": (Decimal("0.25"), Decimal("0.75"), 3)}


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    ranks=st.integers(1, 3),
    workers=st.integers(1, 3),
    batch=st.integers(1, 5),
    repeat=st.sampled_from((0.3, 1, 1.5, 2, 2.25, 3)),
    selection=st.sampled_from(sorted(SELECTIONS)),
    shuffle=st.sampled_from((0, 4, 50)),
)
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_samples_appear_as_often_as_repeat_says(
    tmp_path_factory, sizes, ranks, workers, batch, repeat, selection, shuffle
):
    folder = tmp_path_factory.mktemp("repeat")
    shards, keys = write_scores(folder, "a", sizes)
    more, keeps = SELECTIONS[selection]
    source = {"name": "a", "shards": shards, "repeat": repeat, "shuffle": shuffle, **more}
    other, others = write_scores(folder, "b", [3])
    spec = {"dataset": [source, {"name": "b", "shards": other}], "batch": batch, "epoch": "pass"}
    expected = +times(repeat, filter(keeps, keys), *PARTS.get(selection, ())) + Counter(others)
    if expected == Counter(others):
        with pytest.raises(wdspec.UsageError, match=r"hold no samples, or none that.*source a"):
            steps_of(spec, ranks, workers)
        return
    steps = steps_of(spec, ranks, workers)
    assert Counter(key for step in steps for key, is_real in step if is_real) == expected
    assert len(steps) == -(-expected.total() // (ranks * batch))
    assert (
        sum(not is_real for step in steps for _, is_real in step)
        == len(steps) * ranks * batch - expected.total()
    )


def test_fractions_of_repeat_are_nested_and_match_subset(tmp_path):
    shards, keys = write_scores(tmp_path, "a", [100, 100])

    def again(repeat):
        spec = {"dataset": [{"shards": shards, "repeat": repeat}], "epoch": "pass"}
        found = Counter(key for step in steps_of(spec, 1, 1) for key, _ in step)
        return {key for key, count in found.items() if count == 2}

    assert again(1.2) < again(1.5) == {key for key in keys if is_within(key, 0, Decimal("0.5"))}


def test_a_pass_with_repeats_resumes_on_other_ranks(tmp_path):
    shards, _ = write_scores(tmp_path, "a", [20, 7, 31])
    spec = {
        "dataset": [{"name": "a", "shards": shards, "repeat": 2.5, "subset": "60%", "shuffle": 10}],
        "batch": {"global_size": 12},
        "elastic": {"ranks": 4, "workers": 2},
        "epoch": "pass",
    }
    whole, _ = read_ranks(spec, 1, 30)
    for at in range(1, 9):
        begin, state = read_ranks(spec, 2, at)
        end, _ = read_ranks(spec, 4, 30 - at, state)
        assert begin + end == whole


@pytest.mark.parametrize("damage", ["header", "end", "again", "gone"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_samples_of_damaged_shards_are_counted_as_lost_once(tmp_path, damage, ranks):
    shards, keys = write_scores(tmp_path, "a", [30, 30])
    path = tmp_path / "a1.tar"
    own = [key for key in keys if key.startswith("a1")]
    data, lost = bytearray(path.read_bytes()), []
    if damage == "header":
        data[20 * 1024 + 3] ^= 0xFF
        lost = own[19:]
    elif damage == "end":
        data[30 * 1024 :], lost = b"", own[-1:]
    elif damage == "gone":
        lost = own
    else:
        samples = [(key, {"json": b'{"score": 1}'}) for key in own]
        write_shard(path, [*samples[:6], samples[5], *samples[6:]])
        data, lost = path.read_bytes(), own[5:6]
    path.write_bytes(data)
    if damage == "gone":
        path.unlink()
    spec = {
        "dataset": [{"name": "a", "shards": shards, "repeat": 1.5, "subset": "70%", "errors": "skip"}],
        "batch": 4,
        "epoch": "pass",
    }
    kept = [key for key in keys if is_within(key, 0, Decimal("0.7")) and key not in lost]
    steps = steps_of(spec, ranks, 1)
    found = Counter(key for step in steps for key, is_real in step if is_real)
    assert found == times(1.5, kept, Decimal(0), Decimal("0.7"))


def test_stats_count_what_where_keeps(tmp_path):
    shards, keys = write_scores(tmp_path, "a", [30, 1, 40])
    spec = f"""
        dataset:
          - {{name: a, shards: '{shards}', where: json.score >= 5, repeat: 1.5}}
        batch: 4
        epoch: pass
    """
    (tmp_path / "a.yaml").write_text(spec)
    kept = [key for key in keys if place(key) % 10 >= 5]
    expected = times(1.5, kept)
    before = steps_of(str(tmp_path / "a.yaml"), 2, 2)
    assert Counter(key for step in before for key, is_real in step if is_real) == expected
    assert len(before) > -(-expected.total() // 8)  # samples that `where` leaves out are empty places

    assert CliRunner().invoke(stats, [str(tmp_path / "a.yaml"), "--jobs", "0"]).exit_code == 0
    (tmp_path / "a.yaml").write_text(f"{spec}\n        stats: a.stats.json\n")
    for ranks, workers in ((1, 1), (2, 2), (3, 1)):
        steps = steps_of(str(tmp_path / "a.yaml"), ranks, workers)
        assert Counter(key for step in steps for key, is_real in step if is_real) == expected
        assert len(steps) == -(-expected.total() // (4 * ranks))

    shown = CliRunner().invoke(explain, [str(tmp_path / "a.yaml")]).stdout
    assert f"{len(kept) / len(keys):.2%}" in shown
    assert "counted by `stats`" in shown

    write_shard(tmp_path / "a1.tar", [("a1/new", {"json": b'{"score": 9}'})])
    with pytest.warns(UserWarning, match="1 of 3 shards"):
        steps = steps_of(str(tmp_path / "a.yaml"), 1, 1)
    kept = [key for key in kept if not key.startswith("a1")] + ["a1/new"]
    assert Counter(key for step in steps for key, is_real in step if is_real) == times(1.5, kept)

    other = spec.replace(">= 5", ">= 6") + "\n        stats: a.stats.json\n"
    (tmp_path / "a.yaml").write_text(other)  # the file does not count this selection
    steps = steps_of(str(tmp_path / "a.yaml"), 1, 1)
    kept = [key for key in [*keys[:30], *keys[31:]] if place(key) % 10 >= 6] + ["a1/new"]
    assert Counter(key for step in steps for key, is_real in step if is_real) == times(1.5, kept)


def test_dropped_samples_are_counted_once_on_any_topology(tmp_path):
    shards, keys = write_scores(tmp_path, "a", [50, 50])
    spec = {"dataset": [{"name": "a", "shards": shards, "subset": "30%"}], "batch": 5, "epoch": "pass"}
    kept = sum(is_within(key, 0, Decimal("0.3")) for key in keys)
    for ranks in (1, 2, 3):
        dropped = 0
        for rank in range(ranks):
            with wdspec.loader(spec, num_workers=0, rank=rank, world_size=ranks) as loader:
                list(loader)
                dropped += loader.stats().sources["a"].dropped.get("subset", 0)
        assert dropped == len(keys) - kept


def test_a_limit_ends_the_first_copy(tmp_path):
    source = {"shards": write_source(tmp_path, "a", 4, 5), "repeat": 2}
    with_limit = {"dataset": [source], "batch": 5, "epoch": "pass", "limit": 15}
    keys = [key for batch in wdspec.loader(with_limit, num_workers=0) for key in batch["__key__"]]
    assert len(keys) == len(set(keys)) == 15


def test_a_damaged_sample_is_reported_even_if_a_dropped_one_follows(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(20):
            info = tarfile.TarInfo(f"k{number:03}.txt")
            if number == 18:
                info.type, info.linkname = tarfile.LNKTYPE, "nowhere.txt"
            tar.addfile(info, io.BytesIO())
    source = {"shards": f"{tmp_path}/a.tar", "shuffle": 0, "exclude": ["k019"]}
    with pytest.raises(wdspec.ShardError, match="hard link"):
        list(wdspec.loader({"dataset": [source], "batch": 5, "epoch": "pass"}, num_workers=0))


def test_where_is_tested_before_subset(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(20):
            data = json.dumps({"uid": f"u{number}", "text": "x" * 200_000}).encode()
            info = tarfile.TarInfo(f"k{number:03}.json")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    listed = {"keys": [f"u{number}" for number in range(20)], "keys_of": "json.uid"}
    source = {"shards": f"{tmp_path}/a.tar", **listed, "subset": "50%"}
    found = list(wdspec.loader({"dataset": [source], "epoch": 5}, num_workers=0))
    assert len(found) == 5
