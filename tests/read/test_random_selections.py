"""Random mixes of tars, joined tars and Parquet with selections: resumed on other ranks, and against plain Python."""

import json
import random
from collections import Counter
from decimal import Decimal
from itertools import islice
from zlib import crc32

import pytest
from runs import read_ranks
from shardmaking import write_shard
from speed import mostly_long

import wdspec
from wdspec.formats.tar import reader

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SHARDS, SAMPLES, RANKS = 4, 40, 12
TOPOLOGIES = (1, 2, 3, 4, 6, 12)


def facts_of(source, number):
    draw = random.Random(f"{source}{number}")
    return {"score": round(draw.random(), 3), "user": f"u{number % 13}"}


def key_of(source, number):
    return f"{source}{number:04d}"


@pytest.fixture(autouse=True)
def small_files_are_large(monkeypatch):
    monkeypatch.setattr(reader, "_LARGE", 10_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("random_selections")
    for source in "abp":
        for shard in range(SHARDS):
            numbers = range(shard * SAMPLES, (shard + 1) * SAMPLES)
            if source == "p":
                rows = {
                    "__key__": [key_of(source, number) for number in numbers],
                    "json": [facts_of(source, number) for number in numbers],
                    "cls": [number % 7 for number in numbers],
                }
                pq.write_table(pa.table(rows), folder / f"p-{shard}.parquet", row_group_size=15)
                continue
            whole = source == "b"
            samples, captions = [], []
            for number in numbers:
                about, label = json.dumps(facts_of(source, number)).encode(), b"%d" % (number % 7)
                files = {"cls": label, **({"json": about, "bin": bytes(20_000)} if whole else {})}
                samples.append((key_of(source, number), files))
                captions.append((key_of(source, number), {"json": about}))
            write_shard(folder / f"{source}-{shard}.tar", samples)
            if not whole:
                kept = [each for number, each in zip(numbers, captions, strict=True) if number % 9]
                write_shard(folder / f"about-{shard}.tar", kept)
    return folder


def draw_selection(draw):
    """Keys of a spec, and the same in Python: (key, facts, class) → whether the sample is kept."""
    keys, tests = {}, []
    if draw.random() < 0.6:
        least, classes = round(draw.random() * 0.6, 2), draw.sample(range(7), 4)
        keys["where"] = f"json.score >= {least} or cls in {classes}"
        tests.append(lambda key, about, label: about["score"] >= least or label in classes)
    if draw.random() < 0.5:
        start, stop = sorted(draw.sample(range(0, 101, 10), 2))
        of_user, seed = draw.random() < 0.5, draw.randrange(3)
        keys["subset"] = {"part": [f"{start}%", f"{stop}%"], "seed": seed}
        if of_user:
            keys["subset"]["of"] = "json.user"

        def in_part(key, about, label):
            text = about["user"] if of_user else key
            crc = crc32(text.encode(), crc32(str(seed).encode()) if seed else 0)
            place = (crc ^ (crc >> 16)) * 0x9E3779B97F4A7C15 % 2**64
            return start * 2**64 <= place * 100 < stop * 2**64

        tests.append(in_part)
    if draw.random() < 0.4:
        without = {key_of(source, n) for source in "abp" for n in draw.sample(range(SHARDS * SAMPLES), 50)}
        keys["exclude"] = sorted(without)
        tests.append(lambda key, about, label: key not in without)
    return keys, lambda *sample: all(test(*sample) for test in tests)


def draw_spec(folder, draw):
    """A random spec, and the keys that each of its sources may give."""
    sources, allowed = [], {}
    for source in draw.sample("abp", draw.randint(1, 3)):
        while True:
            keys, keeps = draw_selection(draw)
            numbers = [n for n in range(SHARDS * SAMPLES) if source != "a" or n % 9]
            kept = {
                key_of(source, n) for n in numbers if keeps(key_of(source, n), facts_of(source, n), n % 7)
            }
            if kept:
                break
        suffix = "parquet" if source == "p" else "tar"
        entry = {"name": source, "shards": f"{folder}/{source}-{{0..{SHARDS - 1}}}.{suffix}", **keys}
        if source == "a":
            entry["join"] = [
                {"shards": f"{folder}/about-{{0..{SHARDS - 1}}}.tar", "missing": "skip", "fields": "json"}
            ]
        if draw.random() < 0.5:
            entry["extensions"] = "bin cls" if source == "b" else "cls"  # the JSON is for the selection alone
        entry |= {"weight": draw.randint(1, 4), "shuffle": draw.choice([0, 1, 20, 200])}
        sources.append(entry)
        allowed[source] = kept
    spec = {
        "seed": draw.randrange(1000),
        "elastic": {"ranks": RANKS, "workers": draw.choice([1, 2])},
        "dataset": sources,
        "batch": {"global_size": RANKS * draw.choice([1, 2])},
        "epoch": {"batches": 30},
        "fields": "cls",
    }
    return spec, allowed


def check(folder, number):
    """Compare a random spec with Python, and with itself resumed on other numbers of ranks; return its batches."""
    draw = random.Random(number)
    spec, allowed = draw_spec(folder, draw)
    steps = 45
    whole, _ = read_ranks(spec, 1, steps)
    counts = Counter(key for batch in whole for key in batch)
    assert set(counts) <= set().union(*allowed.values())
    for source, keys in allowed.items():
        given = sum(count for key, count in counts.items() if key[0] == source)
        share = next(each["weight"] for each in spec["dataset"] if each["name"] == source)
        total = sum(each["weight"] for each in spec["dataset"])
        size = spec["batch"]["global_size"]
        slots = RANKS * spec["elastic"]["workers"]
        assert abs(given - steps * size * share / total) <= slots  # shares stay exact
        if given >= 3 * len(keys) + 20 * slots:
            assert {key for key in counts if key[0] == source} == keys
    first, second, third = (draw.choice(TOPOLOGIES) for _ in range(3))
    one, other = sorted(draw.sample(range(1, steps), 2))
    begin, state = read_ranks(spec, first, one)
    middle, state = read_ranks(spec, second, other - one, state)
    end, _ = read_ranks(spec, third, steps - other, state)
    assert begin + middle + end == whole, spec
    return steps


def copies(keys, key):
    """How often a pass gives a sample of a source with these keys of the spec."""
    whole, part = divmod(Decimal(str(keys["repeat"])), 1)
    first, stop, seed = Decimal(0), Decimal(1), 0
    if "subset" in keys and "of" not in keys["subset"]:
        first, stop = (Decimal(end.rstrip("%")) / 100 for end in keys["subset"]["part"])
        seed = keys["subset"]["seed"]
    crc = crc32(key.encode(), crc32(str(seed).encode()) if seed else 0)
    place = (crc ^ (crc >> 16)) * 0x9E3779B97F4A7C15 % 2**64
    return int(whole) + (int(first * 2**64) <= place < int((first + part * (stop - first)) * 2**64))


def check_pass(folder, number):
    """Compare a random spec with `epoch: pass` and `repeat` with Python, and with itself resumed."""
    draw = random.Random(number)
    spec, allowed = draw_spec(folder, draw)
    spec |= {"epoch": "pass", "to_tuple": "__key__ __mask__"}
    del spec["fields"]
    expected = Counter()
    for source in spec["dataset"]:
        del source["weight"]
        source["repeat"] = draw.choice([0.5, 1, 1.25, 2, 2.5])
        expected += Counter({key: copies(source, key) for key in allowed[source["name"]]})
    if not expected:
        return

    def read(world, steps, state=None):
        loaders = [wdspec.loader(spec, num_workers=0, rank=rank, world_size=world) for rank in range(world)]
        for loader in loaders if state is not None else ():
            loader.load_state_dict(state)
        parts = [list(islice(loader, steps)) for loader in loaders]
        found = [
            [pair for keys, masks in step for pair in zip(keys, masks.tolist(), strict=True)]
            for step in zip(*parts, strict=True)
        ]
        state = wdspec.merge_states([loader.state_dict() for loader in loaders])
        for loader in loaders:
            loader.close()
        return found, state

    if not all(set(expected) & allowed[source["name"]] for source in spec["dataset"]):
        with pytest.raises(wdspec.UsageError, match="or none that"):
            read(1, None)
        return
    whole, _ = read(1, None)
    assert Counter(key for step in whole for key, is_real in step if is_real) == expected, spec
    if len(whole) > 1:
        begin, state = read(draw.choice(TOPOLOGIES), at := draw.randrange(1, len(whole)))
        end, _ = read(draw.choice(TOPOLOGIES), len(whole) - at, state)
        assert begin + end == whole, spec


@pytest.mark.parametrize("number", mostly_long(range(4), range(2)))
def test_random_selections_are_exact_and_elastic(folder, number):
    check(folder, number)


@pytest.mark.parametrize("number", range(4))
def test_random_passes_are_exact_and_elastic(folder, number):
    check_pass(folder, number)


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 300, 10))
def test_many_random_passes_are_exact_and_elastic(folder, first):
    for number in range(first, first + 10):
        check_pass(folder, number)


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 330, 10))
def test_many_random_selections_are_exact_and_elastic(folder, first):
    """Together 10,350 global batches, each read twice."""
    for number in range(first, first + 10):
        check(folder, number)
