"""`wdspec dedup`, `process --drop` and `check --same-keys`, compared with tarfile and dicts."""

import hashlib
import io
import json
import random
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from commandline import within
from PIL import Image
from shardmaking import write_shard

import wdspec
from wdspec.jobs import groups
from wdspec.jobs.dedup import read_drops

SPEC = """
dataset:
  - {name: a, shards: "a-{000..002}.tar"}
  - {name: b/x, shards: ["b-{000..001}.tar", "a-000.tar"]}
"""


def members(path):
    """The samples of a tar, in order: key, and files by suffix."""
    found = {}
    with tarfile.open(path) as tar:
        for member in tar:
            key, _, suffix = member.name.partition(".")
            found.setdefault(key, {})[suffix] = tar.extractfile(member).read()
    return list(found.items())


def write_random(folder, seed=0):
    """Shards with repeated keys and contents; the same key may have other contents."""
    rng = random.Random(seed)
    for name in ("a-000", "a-001", "a-002", "b-000", "b-001"):
        shared = rng.sample(range(60), 15)  # the keys of a shard are unique
        samples = []
        for number in range(30):
            key = f"k{shared[number // 2]:03d}" if number % 2 else f"{name}-{number:02d}"
            samples.append((key, {"txt": b"%d" % rng.randrange(90), "cls": b"%d" % rng.randrange(2)}))
        write_shard(folder / f"{name}.tar", samples)
    (folder / "s.yaml").write_text(SPEC)


SHARDS = [("a", f"a-00{n}.tar") for n in range(3)] + [
    ("b/x", name) for name in ("b-000.tar", "b-001.tar", "a-000.tar")
]
BY = {
    "key": lambda key, files: key,
    "content": lambda key, files: tuple(sorted(files.items())),
    "txt": lambda key, files: files["txt"],
}


def expected(folder, by, each_source=False, keep=lambda files: True):
    """All samples that the spec keeps, in order, and whether each is repeated."""
    seen, rows = set(), []
    for source, shard in SHARDS:
        for index, (key, files) in enumerate(members(folder / shard)):
            if keep(files):
                identity = (BY[by](key, files), source if each_source else "")
                rows.append((source, shard, index, key, identity in seen))
                seen.add(identity)
    return rows


@pytest.fixture
def folder(tmp_path):
    write_random(tmp_path)
    return tmp_path


def dedup(folder, *arguments, code=0):
    shown, said = within(
        "dedup", "s.yaml", "--jobs", "0", "--format", "json", *arguments, folder=folder, code=code
    )
    return json.loads(shown) if shown else said


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("options", [[], ["--each-source"]])
@pytest.mark.parametrize("parts", [groups.PARTS, 3])
def test_all_but_the_first_of_equal_samples_are_found(folder, monkeypatch, by, options, parts):
    if parts == 3:  # each block of a file has few records
        monkeypatch.setattr(groups, "_PENDING", 7)
    found = dedup(folder, "--by", by, "-o", "lists", *options)
    rows = expected(folder, by, bool(options))
    repeated = [row[:4] for row in rows if row[4]]
    drops = read_drops(folder / "lists/drop.tsv")
    assert [
        (source, shard, index, key) for (source, shard), of in drops.items() for index, key in of.items()
    ] == repeated
    stays = {(row[0], row[3]) for row in rows if not row[4]}
    for source in ("a", "b/x"):
        own = [row for row in rows if row[0] == source]
        counts = found["sources"][source]
        listed = [key for name, _, _, key in repeated if name == source and (source, key) not in stays]
        assert counts == {
            "samples": len(own),
            "not_compared": 0,
            "repeated": sum(row[4] for row in own),
            "listed": len(listed),
        }
        path = folder / f"lists/{source.replace('/', '.')}.txt"
        assert (path.read_text().splitlines() if path.exists() else []) == listed
        assert found["lists"].get(source) == (f"lists/{path.name}" if listed else None)
    assert found["repeated"] == len(repeated)
    first = found["examples"][0]
    assert (first["source"], first["shard"], first["key"]) == (repeated[0][0], repeated[0][1], repeated[0][3])


def keys_of(spec):
    with wdspec.loader({**spec, "epoch": "pass", "batch": 1}, num_workers=0) as loader:
        return [batch["__key__"][0] for batch in loader]


def test_lists_leave_out_what_they_say_and_process_all_repeated_samples(folder, monkeypatch):
    monkeypatch.chdir(folder)
    dedup(folder, "--by", "txt", "-o", "lists")
    rows = expected(folder, "txt")
    dataset = [
        {"name": "a", "shards": "a-{000..002}.tar", "exclude": "@lists/a.txt"},
        {"name": "b/x", "shards": ["b-{000..001}.tar", "a-000.tar"], "exclude": "@lists/b.x.txt"},
    ]
    listed = {
        (source, key)
        for source in ("a", "b/x")
        for key in (folder / f"lists/{source.replace('/', '.')}.txt").read_text().split()
    }
    assert Counter(keys_of({"dataset": dataset})) == Counter(
        key for source, _, _, key, _ in rows if (source, key) not in listed
    )
    assert {(source, key) for source, _, _, key, again in rows if not again} & listed == set()
    (folder / "clean.yaml").write_text(
        "dataset:\n  - {name: a, shards: 'a-{000..002}.tar'}\n"
        "  - {name: b/x, shards: ['b-{000..001}.tar', 'a-000.tar']}\n"
        "output: {from: '(a|b)', to: 'clean/\\1'}\n"
    )
    (folder / "one.yaml").write_text(SPEC.replace(', "a-000.tar"', ""))
    within("dedup", "one.yaml", "--by", "txt", "-o", "ones", "--jobs", "0", folder=folder)
    shown, _ = within(
        "process", "one.yaml", "--drop", "ones/drop.tsv", "--output", "clean", "--jobs", "0", folder=folder
    )
    assert " --drop" not in shown
    first = {}
    for _, shard in SHARDS[:5]:
        for key, files in members(folder / shard):
            first.setdefault(files["txt"], (key, files["cls"]))
    written = [sample for _, shard in SHARDS[:5] for sample in members(folder / "clean" / shard)]
    assert [(key, files["cls"]) for key, files in written] == list(first.values())
    # What was written has no repeated samples, and the same texts.
    (folder / "new.yaml").write_text("dataset: [{name: n, shards: 'clean/*.tar'}]\n")
    again = within("dedup", "new.yaml", "--by", "txt", "--jobs", "0", "--format", "json", folder=folder)[0]
    assert json.loads(again)["repeated"] == 0


def test_samples_that_the_spec_leaves_out_do_not_count(folder):
    (folder / "s.yaml").write_text(SPEC + "defaults: {where: 'cls == 1'}\n")
    found = dedup(folder, "--by", "txt", "-o", "lists")
    rows = expected(folder, "txt", keep=lambda files: files["cls"] == b"1")
    assert found["repeated"] == sum(row[4] for row in rows)
    assert found["sources"]["a"]["samples"] == sum(row[0] == "a" for row in rows)


@pytest.mark.parametrize("engine", [["--jobs", "2"], ["--jobs", "0"]])
def test_processes_find_the_same(folder, engine):
    shown = within("dedup", "s.yaml", "-o", "lists", "--format", "json", *engine, folder=folder)[0]
    digest = hashlib.sha256((folder / "lists/drop.tsv").read_bytes()).hexdigest()
    assert dedup(folder, "-o", "again") | {"lists": 0, "drops": 0} == json.loads(shown) | {
        "lists": 0,
        "drops": 0,
    }
    assert hashlib.sha256((folder / "again/drop.tsv").read_bytes()).hexdigest() == digest


def image(form, array, **options):
    data = io.BytesIO()
    Image.fromarray(array).save(data, form, **options)
    return data.getvalue()


def test_images_with_equal_pixels_are_found_whatever_their_format(tmp_path):
    one, two = (np.random.default_rng(seed).integers(0, 255, (9, 7, 3), np.uint8) for seed in (0, 1))
    opaque = np.concatenate([one, np.full((9, 7, 1), 255, np.uint8)], axis=2)
    clear = np.concatenate([one, np.full((9, 7, 1), 9, np.uint8)], axis=2)
    palette = io.BytesIO()
    Image.fromarray(one[:1, :1]).convert("P", palette=Image.Palette.ADAPTIVE).save(palette, "PNG")
    samples = [
        ("0", {"png": image("PNG", one)}),
        ("1", {"bmp": image("BMP", one)}),
        ("2", {"png": image("PNG", one, compress_level=1)}),
        ("3", {"png": image("PNG", two)}),
        ("4", {"png": image("PNG", opaque)}),
        ("5", {"png": image("PNG", clear)}),
        ("6", {"png": b"damaged"}),
        ("7", {"png": b"damaged"}),
        ("8", {"txt": b"no image"}),
        ("9", {"png": palette.getvalue()}),
    ]
    write_shard(tmp_path / "a.tar", samples)
    (tmp_path / "s.yaml").write_text("dataset: [{name: a, shards: a.tar, decode: raw}]\n")
    found = dedup(tmp_path, "--by", "pixels", "-o", "lists")
    assert (tmp_path / "lists/a.txt").read_text().split() == ["1", "2", "4"]
    assert found["sources"]["a"] == {"samples": 10, "not_compared": 3, "repeated": 3, "listed": 3}
    said = dedup(tmp_path, "--by", "jpg", code=1)
    assert "no sample has a field `jpg`" in said


def test_a_damaged_shard_leaves_no_lists(folder):
    (folder / "b-000.tar").write_bytes((folder / "b-000.tar").read_bytes()[:1800])
    found = dedup(folder, "-o", "lists", code=1)
    assert [each["shard"] for each in found["failed"]] == ["b-000.tar"]
    assert not (folder / "lists").exists() or not list((folder / "lists").iterdir())


def test_lists_of_other_shards_are_refused(folder):
    dedup(folder, "-o", "lists")
    (folder / "few.yaml").write_text("dataset: [{name: a, shards: 'a-{000..001}.tar'}]\n")
    arguments = ["--drop", "lists/drop.tsv", "--output", "clean", "--jobs", "0"]
    said = within("process", "few.yaml", *arguments, folder=folder, code=1)[1]
    assert "that the spec does not read, such as `" in said
    (folder / "one.yaml").write_text(SPEC.replace(', "a-000.tar"', ""))
    within("dedup", "one.yaml", "-o", "ones", "--by", "txt", "--jobs", "0", folder=folder)
    samples = members(folder / "b-000.tar")
    write_shard(folder / "b-000.tar", [("new", {"txt": b"?", "cls": b"1"}), *samples])
    arguments = ["--drop", "ones/drop.tsv", "--output", "clean", "--jobs", "0", "--retries", "0"]
    shown = within("process", "one.yaml", *arguments, folder=folder, code=1)[0]
    assert "the shard has changed; repeat `wdspec dedup`" in shown
    for text, what in (("a\tb\n", "is not a list of `wdspec dedup`"), (None, "cannot be read")):
        if text is not None:
            (folder / "bad.tsv").write_text(text)
        name = "bad.tsv" if text else "gone.tsv"
        said = within("process", "one.yaml", "--drop", name, "--output", "x", folder=folder, code=1)[1]
        assert what in said
    head = (folder / "ones/drop.tsv").read_text().splitlines()[0]
    (folder / "bad.tsv").write_text(f"{head}\na\tb\tc\td\n")
    assert (
        "bad.tsv:2: expected source"
        in within("process", "one.yaml", "--drop", "bad.tsv", "--output", "x", folder=folder, code=1)[1]
    )


def test_a_new_list_is_another_job(folder):
    (folder / "one.yaml").write_text(SPEC.replace(', "a-000.tar"', ""))
    within("dedup", "one.yaml", "-o", "lists", "--by", "txt", "--jobs", "0", folder=folder)
    within("process", "one.yaml", "--output", "clean", "--jobs", "0", folder=folder)
    arguments = ["process", "one.yaml", "--output", "clean", "--drop", "lists/drop.tsv", "--jobs", "0"]
    assert "differ from what this job would write" in within(*arguments, folder=folder, code=1)[1]
    within(*arguments, "--changed", "redo", folder=folder)
    shown = within(*arguments, folder=folder)[0]
    assert "5 shards already existed" in shown


def test_keys_with_odd_letters_are_in_the_list_of_drops(tmp_path):
    rows = [{"__key__": "a\tb\\n\\c", "x": 1}, {"__key__": "plain", "x": 1}, {"__key__": "a\nb", "x": 1}]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "b.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "s.yaml").write_text("dataset: [{name: a, shards: a.jsonl}, {name: b, shards: b.jsonl}]\n")
    found = dedup(tmp_path, "--by", "key", "-o", "lists")
    assert read_drops(tmp_path / "lists/drop.tsv") == {
        ("b", "b.jsonl"): {number: row["__key__"] for number, row in enumerate(rows)}
    }
    assert found["sources"]["b"]["listed"] == 2  # a list has a key in each line
    assert (tmp_path / "lists/b.txt").read_text() == "a\tb\\n\\c\nplain\n"


def test_keys_of_two_specs_are_compared(folder):
    (folder / "b.yaml").write_text(
        "dataset: [{name: o, shards: ['b-{000..001}.tar', 'a-001.tar'], where: 'txt.length > 1'}]\n"
    )
    arguments = ["check", "s.yaml", "--against", "b.yaml", "--same-keys", "--jobs", "0"]
    shown, _ = within(*arguments, "--format", "json", "--differences", "d.txt", folder=folder, code=1)
    mine = {key for _, shard in SHARDS for key, _ in members(folder / shard)}
    theirs = {
        key
        for shard in ("b-000.tar", "b-001.tar", "a-001.tar")
        for key, files in members(folder / shard)
        if len(files["txt"]) > 1
    }
    lines = (folder / "d.txt").read_text().splitlines()
    assert {line[2:] for line in lines if line[0] == "<"} == mine - theirs
    assert {line[2:] for line in lines if line[0] == ">"} == theirs - mine
    assert len(lines) == len(mine ^ theirs)
    found = json.loads(shown)
    assert (found["only_here"]["keys"], found["only_there"]["keys"]) == (
        len(mine - theirs),
        len(theirs - mine),
    )
    text = within(
        "check", "b.yaml", "--against", "s.yaml", "--same-keys", "--jobs", "0", folder=folder, code=1
    )[0]
    assert f"{len(mine - theirs)} keys of s.yaml that this spec lacks" in text
    same = within("check", "s.yaml", "--against", "s.yaml", "--same-keys", "--jobs", "0", folder=folder)[0]
    assert same == "0 keys of this spec that s.yaml lacks\n0 keys of s.yaml that this spec lacks\n"
    assert "--same-keys needs --against" in within("check", "s.yaml", "--same-keys", folder=folder, code=2)[1]
    assert "--differences needs" in within("check", "s.yaml", "--differences", "x", folder=folder, code=2)[1]


def test_the_text_says_how_to_leave_samples_out(folder):
    shown, _ = within("dedup", "s.yaml", "--by", "txt", "-o", "lists", "--jobs", "0", folder=folder)
    assert 'for `exclude: "@lists/b.x.txt"` in `b/x`' in shown
    assert "for `wdspec process --drop lists/drop.tsv`" in shown
    assert "Examples:" in within("dedup", "--help", folder=folder)[0]


PEAK = """
import sys, numpy as np
from wdspec.jobs.groups import SampleGroups
count, each = int(sys.argv[1]), 10_000
rng = np.random.default_rng(0)
with SampleGroups(count // each) as groups:
    for shard in range(count // each):
        hashes = rng.integers(0, count * 4, (each, 2), np.uint64)
        hashes[:, 1] = hashes[:, 0]
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        groups.add(shard, np.arange(each, dtype=np.uint64), hashes, hashes[:, 0].copy())
    found = sum(len(each.indexes) for each in groups.repeated())
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))
print(found, peak)
"""


def peak(count):
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(count)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    found, megabytes = map(int, done.stdout.split())
    # Of n draws from m values, n - m (1 - e^(-n/m)) are repeated; here m is 4 n.
    assert abs(found / count - (1 - 4 * (1 - np.exp(-1 / 4)))) < 0.02
    return megabytes


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
def test_memory_stays_the_same_for_ten_times_as_many_samples():
    few, many = peak(100_000), peak(1_000_000)
    assert many < few + 60


@pytest.mark.long
def test_memory_stays_the_same_for_ten_million_samples():
    few, many = peak(1_000_000), peak(10_000_000)
    assert many < few + 30
