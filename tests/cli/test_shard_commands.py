"""`wdspec ls`, `cat`, `split` and `sort`: shards in, shards out, nothing lost, nothing half-written."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile

import pytest
from commandline import PROGRAM, environment
from commandline import within as wdspec
from servers.aistore_double import AisDouble
from shardmaking import write_shard, write_source

import wdspec as wds
from wdspec.formats.tar.reader import TarSamples


@pytest.fixture
def folder(tmp_path):
    write_source(tmp_path, "a", shards=3, samples=5)
    return tmp_path


def read(path):
    with open(path, "rb") as file:
        return list(TarSamples(file))


def keys(path):
    return [sample["__key__"] for sample in read(path)]


def all_of(folder, pattern="a-{:03d}.tar"):
    return [sample for n in range(3) for sample in read(folder / pattern.format(n))]


def test_ls_lists_samples_with_fields_and_sizes(folder):
    shown, _ = wdspec("ls", "a-{000..001}.tar", folder=folder)
    lines = shown.splitlines()
    assert lines[0].split() == ["key", "bytes", "fields", "shard"]
    assert lines[1].split() == ["a0000000", "6", "txt,", "cls", "a-000.tar"]
    assert len(lines) == 11
    shown, _ = wdspec("ls", "a-000.tar", "--format", "json", folder=folder)
    assert json.loads(shown)["samples"][0] == {
        "key": "a0000000", "url": "a-000.tar", "bytes": 6, "fields": {"txt": 5, "cls": 1},
    }  # fmt: skip


def test_ls_summarizes_shards(folder):
    shown, _ = wdspec("ls", "-s", "a-*.tar", "--format", "json", folder=folder)
    assert [(s["url"], s["samples"], s["fields"]) for s in json.loads(shown)["shards"]] == [
        (f"a-{n:03d}.tar", 5, {"txt": 5, "cls": 5}) for n in range(3)
    ]


def test_ls_lists_members_of_every_type_with_their_offsets(folder):
    with tarfile.open(folder / "m.tar", "w") as tar:
        for name, kind in (("d", tarfile.DIRTYPE), ("a.txt", tarfile.REGTYPE), ("b.txt", tarfile.SYMTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "x"
            info.size = 3 if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(b"abc"))
    shown, _ = wdspec("ls", "--members", "m.tar", "--format", "json", folder=folder)
    members = json.loads(shown)["members"]
    assert [(m["name"], m["type"], m["bytes"]) for m in members] == [
        ("d", "directory", 0), ("a.txt", "file", 3), ("b.txt", "symbolic link", 0),
    ]  # fmt: skip
    assert (folder / "m.tar").read_bytes()[members[1]["offset"] :][:3] == b"abc"


def test_the_exit_code_of_ls_shows_whether_a_shard_is_valid(folder):
    whole = (folder / "a-000.tar").read_bytes()
    (folder / "cut.tar").write_bytes(whole[:3000])
    for arguments in ([], ["--members"], ["-s"]):
        _, said = wdspec("ls", "cut.tar", *arguments, folder=folder, code=1)
        assert "truncated" in said
        assert "cut.tar" in said
    assert "no such file" in wdspec("ls", "missing.tar", folder=folder, code=1)[1]


def test_cat_writes_all_samples_in_order_to_a_pipe_or_file(folder):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "cat", "a-*.tar"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        check=True,
    )
    piped = list(TarSamples(io.BytesIO(done.stdout)))
    assert [s["__key__"] for s in piped] == [s["__key__"] for s in all_of(folder)]
    wdspec("cat", "a-*.tar", "-o", "all.tar.gz", folder=folder)
    assert wdspec("ls", "-s", "all.tar.gz", folder=folder)[0].split()[5] == "15"


def test_cat_selects_samples_and_fields(folder):
    wdspec("cat", "a-*.tar", "-o", "b.tar", "--skip", "4", "-n", "3", "--extensions", "cls", folder=folder)
    assert read(folder / "b.tar") == [{"__key__": s["__key__"], "cls": s["cls"]} for s in all_of(folder)[4:7]]


def test_cat_keeps_the_spelling_of_names(folder):
    write_shard(folder / "upper.tar", [("K", {"JPG": b"x", "Seg.PNG": b"y"})])
    wdspec("cat", "upper.tar", "-o", "b.tar", folder=folder)
    with tarfile.open(folder / "b.tar") as tar:
        assert tar.getnames() == ["K.JPG", "K.Seg.PNG"]


def test_duplicate_keys_and_damaged_shards_leave_no_output(folder):
    shutil.copy(folder / "a-000.tar", folder / "copy.tar")
    for command in ("cat", "sort", "split --shards 1"):
        said = wdspec(*command.split(), "a-000.tar", "copy.tar", "-o", "b-%d.tar", folder=folder, code=1)[1]
        assert "the key occurs more than once, in `a-000.tar`, `copy.tar`" in said
        assert "`map` that sets `__key__`" in said
    (folder / "copy.tar").unlink()
    whole = (folder / "a-002.tar").read_bytes()
    (folder / "a-002.tar").write_bytes(whole[:2000])
    wdspec("cat", "a-*.tar", "-o", "b.tar", folder=folder, code=1)
    wdspec("split", "a-*.tar", "-o", "b-%d.tar", "--maxcount", "2", folder=folder, code=1)
    wdspec("sort", "a-*.tar", "-o", "b.tar", folder=folder, code=1)
    assert sorted(os.listdir(folder)) == ["a-000.tar", "a-001.tar", "a-002.tar"]


@pytest.mark.parametrize(
    ("arguments", "counts"),
    [(["--maxcount", "6"], [6, 6, 3]), (["--shards", "4"], [3, 4, 4, 4]), (["--maxsize", "1MB"], [15])],
)
def test_split_writes_shards_of_another_size(folder, arguments, counts):
    wdspec("split", "a-*.tar", "-o", "b-%d.tar", *arguments, folder=folder)
    found = [keys(folder / f"b-{n}.tar") for n in range(len(counts))]
    assert list(map(len, found)) == counts
    assert sum(found, []) == [s["__key__"] for s in all_of(folder)]  # noqa: RUF017


def test_split_needs_a_limit_and_a_pattern(folder):
    wdspec("split", "a-*.tar", "-o", "b-%d.tar", folder=folder, code=2)
    assert (
        "put %06d in place"
        in wdspec("split", "a-*.tar", "-o", "b.tar", "--maxcount", "2", folder=folder, code=1)[1]
    )


def test_a_shard_of_0_bytes_is_refused(folder):
    for command in ("split", "sort"):
        limits = ("-o", "b-%d.tar", "--maxsize", "0")
        assert "no room for a sample" in wdspec(command, "a-*.tar", *limits, folder=folder, code=1)[1]
    (folder / "in").mkdir()
    (folder / "in" / "a.txt").write_text("x")
    assert "no room for a sample" in wdspec("create", "in", *limits, folder=folder, code=1)[1]


def test_sort_orders_by_key_with_little_memory(folder):
    names = [f"k{n * 7 % 50}" for n in range(50)]
    write_shard(folder / "u.tar", [(name, {"txt": name.encode() * 100}) for name in names])
    wdspec("sort", "u.tar", "-o", "s.tar", "--memory", "3kB", folder=folder)
    assert keys(folder / "s.tar") == sorted(names)
    assert sorted(s["txt"] for s in read(folder / "s.tar")) == sorted(name.encode() * 100 for name in names)
    wdspec("sort", "s.tar", "-o", "r-%d.tar", "--reverse", "--natural", "--maxcount", "30", folder=folder)
    assert keys(folder / "r-0.tar") + keys(folder / "r-1.tar") == [f"k{n}" for n in reversed(range(50))]


def test_records_are_converted_in_both_directions(folder):
    with wds.RecordWriter(folder / "r.jsonl", "jsonl") as writer:
        for n in range(4):
            writer.write({"__key__": f"{n}", "cls": n, "json": {"a": [n]}})
    wdspec("cat", "r.jsonl", "-o", "r.tar", folder=folder)
    assert read(folder / "r.tar")[2] == {"__key__": "2", "cls": b"2", "json": b'{"a": [2]}'}
    wdspec("cat", "r.tar", "-o", "back.jsonl", "--decode", folder=folder)
    assert (folder / "back.jsonl").read_bytes() == (folder / "r.jsonl").read_bytes()
    assert "use `.cbors`" in wdspec("cat", "r.tar", "-o", "no.jsonl", folder=folder, code=1)[1]
    wdspec("split", "r.tar", "-o", "c-%d.cbors", "--maxcount", "2", folder=folder)
    assert wdspec("ls", "-s", "c-*.cbors", folder=folder)[0].count("cls, json") == 2


@pytest.mark.parametrize("command", ["cat", "split", "sort"])
def test_existing_files_are_not_replaced_without_force(folder, command):
    more = ["--maxcount", "100"] if command == "split" else []
    name = "b-%d.tar" if command == "split" else "b-0.tar"
    (folder / "b-0.tar").write_bytes(b"old")
    _, said = wdspec(command, "a-*.tar", "-o", name, *more, folder=folder, code=1)
    assert "a file of this name exists" in said
    assert (folder / "b-0.tar").read_bytes() == b"old"
    wdspec(command, "a-*.tar", "-o", name, *more, "--force", folder=folder)
    assert len(keys(folder / "b-0.tar")) == 15


def test_a_reader_that_closes_early_ends_cat_silently(folder):
    write_shard(folder / "big.tar", [(f"{n}", {"bin": bytes(100_000)}) for n in range(100)])
    done = subprocess.run(
        f"{sys.executable} -c '{PROGRAM}' cat big.tar | head -c 1000 > /dev/null; echo ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", cwd=folder, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == "141"
    assert "Traceback" not in done.stderr


COMMANDS = {
    "ls": ["--summary", "--format", "json"],
    "cat": ["-o", "out.tar"],
    "split": ["-o", "out-%06d.tar", "--maxcount", "4"],
    "sort": ["-o", "out.tar"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_shards_are_read_through_the_cluster_and_the_cache_of_the_environment(folder, command):
    with AisDouble() as double:
        for n in range(3):
            double.put(f"gs://imgs/a-{n:03d}.tar", (folder / f"a-{n:03d}.tar").read_bytes())
        variables = {"AIS_ENDPOINT": double.endpoint, "USE_AIS_FOR": "gs", "WDS_CACHE": str(folder / "cache")}
        wdspec(command, "gs://imgs/*.tar", *COMMANDS[command], folder=folder, **variables)
    assert sorted(path.name for path in (folder / "cache").rglob("*.tar")) == [
        f"a-{n:03d}.tar" for n in range(3)
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_proxies_from_the_environment_are_used(folder, command):
    url = "http://nowhere.invalid/a.tar"
    _, said = wdspec(
        command, url, *COMMANDS[command], folder=folder, code=1, HTTP_PROXY="socks5://127.0.0.1:1"
    )
    assert "only http and https proxies are supported" in said


def test_ls_continues_after_a_damaged_shard_and_reports_it_at_the_end(tmp_path):
    import json

    from commandline import within
    from shardmaking import write_source

    write_source(tmp_path, "a", shards=3, samples=4)
    whole = (tmp_path / "a-001.tar").read_bytes()
    (tmp_path / "a-001.tar").write_bytes(whole[: len(whole) // 4])
    (tmp_path / "a-002.tar").rename(tmp_path / "a-003.tar")
    shown, said = within("ls", "a-{000..003}.tar", folder=tmp_path, code=1)
    listed = [line.split()[0] for line in shown.splitlines()[1:]]
    assert listed[:4] == [f"a000{n:04d}" for n in range(4)]
    assert listed[-4:] == [f"a002{n:04d}" for n in range(4)]
    assert 8 < len(listed) < 12  # what comes before the damage
    assert "a-001.tar" in said
    assert "a-002.tar" in said
    report = json.loads(
        within("ls", "-s", "--format", "json", "a-{000..003}.tar", folder=tmp_path, code=1)[0]
    )
    assert [shard["samples"] for shard in report["shards"]] == [4, len(listed) - 8, 0, 4]
    assert len(report["errors"]) == 2
    within("ls", "--members", "a-001.tar", "a-003.tar", folder=tmp_path, code=1)
    within("ls", "a-000.tar", folder=tmp_path)
