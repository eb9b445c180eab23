"""Samples read many at once equal those read one by one: the same content, offsets and errors."""

from __future__ import annotations

import io
import random

import pytest

from wdspec.base.errors import ShardError
from wdspec.formats import blocks
from wdspec.formats.tar import runs as sample_runs
from wdspec.formats.tar.reader import TarSamples
from wdspec.spec.language.samples import KeyRule

SUFFIXES = ("txt", "json", "cls", "seg.png", "JPG")
RULES = (KeyRule(), KeyRule(kind="last_dot"), KeyRule(kind="regex", regex=r"(.*)[.](\w+)"))


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch):
    monkeypatch.setattr(blocks, "CHUNK", 24 * 1024)
    monkeypatch.setattr(sample_runs, "FEWEST_MEMBERS", 6)
    monkeypatch.setattr(sample_runs, "FEWEST_SAMPLES", 3)


def trace(data, *, offset=0, index=0, **options):
    """The trace of a reading: each sample with the offset after it, errors where they occur, and how it ends."""
    seen = []
    report = (lambda error: seen.append(str(error))) if options.pop("go_on", False) else None
    samples = TarSamples(
        io.BytesIO(data), offset=offset, index=index, constants={"__url__": "u"}, on_error=report, **options
    )
    try:
        for sample in samples:
            seen.append((list(sample.items()), samples.next_offset, samples.next_index))
    except ShardError as error:
        seen.append(str(error))
    return [*seen, (samples.next_offset, samples.next_index)]


def one_by_one(monkeypatch, *arguments, **options):
    with monkeypatch.context() as patch:
        patch.setattr(sample_runs, "FEWEST_MEMBERS", 1 << 60)
        return trace(*arguments, **options)


@pytest.fixture
def runs(monkeypatch):
    """The samples of all runs that were found."""
    found = []

    def find(self, *arguments):
        run = original(self, *arguments)
        found.append(run.length if run else 0)
        return run

    original = sample_runs.SampleRuns.find
    monkeypatch.setattr(sample_runs.SampleRuns, "find", find)
    return found


def key_of(rng, number):
    return rng.choice((f"{number:06}", f"{number}", f"./{number}", f"d.x/{number}-é", f"d/{number:040}"))


def shard(rng, pack, oddity):
    """Mostly regular samples; of the odd kinds of members and damage each shard has one, or none."""
    suffixes = rng.sample(SUFFIXES, rng.randint(1, 4))
    style = rng.random() < 0.7 and rng.choice((f"{{:0{rng.randint(1, 8)}}}", "./{}", "d.x/{:05}", "__{}"))
    files = []
    for number in range(rng.randint(60, 200)):
        key = style.format(number) if style else key_of(rng, number)
        mine = [(f"{key}.{suffix}", rng.randbytes(rng.randrange(600))) for suffix in suffixes]
        if oddity and rng.random() < 0.01:
            mine = oddity(rng, mine, files)
        files += mine
    data = pack(files, mtime=rng.randrange(1 << 30))
    if rng.random() < 0.2:
        at = rng.randrange(len(data))
        data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    return data[: rng.randrange(len(data))] if rng.random() < 0.1 else data


ODDITIES = {
    "none": None,
    "a member less": lambda rng, mine, files: mine[1:],
    "a member more": lambda rng, mine, files: [*mine, (mine[0][0].partition(".")[0] + ".more", b"x")],
    "others first": lambda rng, mine, files: mine[::-1],
    "a member twice": lambda rng, mine, files: [*mine, mine[0]],
    "a key that comes back": lambda rng, mine, files: [*mine, rng.choice(files or mine)],
    "of no sample": lambda rng, mine, files: (
        [rng.choice((("README", b""), ("d/", b""), (".x.y", b""))), *mine]
    ),
    "of a long name": lambda rng, mine, files: [("n" * rng.randint(90, 96) + ".txt", b"1"), *mine],
    "large": lambda rng, mine, files: [*mine[:-1], (mine[-1][0], bytes(60_000))],
    "a tar": lambda rng, mine, files: [*mine[:-1], (mine[-1][0], HEADERS)],
    "a meta name": lambda rng, mine, files: [("__a__.txt", b"1"), ("__a__.txt__", b"2"), *mine],
}
HEADERS = b""


@pytest.mark.parametrize("name", ODDITIES)
@pytest.mark.parametrize("rounds", [4, pytest.param(200, marks=pytest.mark.long)])
def test_reading_runs_equals_reading_one_by_one(rounds, name, pack, runs, monkeypatch):
    monkeypatch.setitem(globals(), "HEADERS", pack([(f"{n}.txt", b"1") for n in range(40)]))
    rng = random.Random(name)
    for _ in range(rounds):
        data = shard(rng, pack, ODDITIES[name])
        options = {"key_rule": rng.choice(RULES[:2]), "go_on": rng.random() < 0.5}
        options["stride"] = rng.choice((1, 1, 2, 5))
        options["residue"] = rng.randrange(options["stride"])
        wanted = rng.choice((str.lower, str.lower, {"txt": "text", "JPG": "image"}.get))
        asked = one_by_one(monkeypatch, data, field_of=wanted, **options)
        assert trace(data, field_of=wanted, **options) == asked
        places = [entry[1:] for entry in asked[:-1] if isinstance(entry, tuple)]
        if places:
            offset, index = rng.choice(places)
            arguments = {"offset": offset, "index": index, "field_of": wanted, **options}
            assert trace(data, **arguments) == one_by_one(monkeypatch, data, **arguments)
    assert sum(runs) > 5 * rounds


def test_samples_named_by_a_regex_are_read_one_by_one(pack, runs):
    data = pack([(f"{number:05}.txt", b"x") for number in range(300)])
    assert len(trace(data, key_rule=RULES[2])) == 301
    assert not runs


def test_without_runs_the_reader_stops_looking_for_them(pack, runs):
    rng = random.Random(1)
    files = [(f"{number:05}.{rng.choice(SUFFIXES)}", bytes(300)) for number in range(1000)]
    assert len(trace(pack(files))) == 1001
    assert runs == [0, 0, 0]


def test_nearly_all_samples_of_a_regular_shard_are_read_in_runs(pack, runs):
    data = pack([(f"{n:05}.{suffix}", bytes(300)) for n in range(1000) for suffix in ("txt", "json")])
    assert len(trace(data)) == 1001
    assert sum(runs) > 900


def test_a_repeated_file_at_the_end_of_a_run_is_found(pack, monkeypatch):
    for number in range(60, 100):
        names = [f"{n:05}.txt" for n in range(100)]
        data = pack([(name, b"x") for name in sorted([*names, names[number]])])
        asked = one_by_one(monkeypatch, data)
        assert trace(data) == asked
        assert "duplicate member" in asked[-2]


def test_a_shard_can_start_with_files_that_belong_to_no_sample(pack, runs, monkeypatch):
    data = pack([("README", b""), *((f"{n:05}.txt", b"x") for n in range(200))])
    assert trace(data) == one_by_one(monkeypatch, data)
    assert sum(runs) > 100
