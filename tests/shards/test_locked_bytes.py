"""Locks with checksums: other bytes are found, wherever they are, and each comparison says what it compared."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from commandline import within as wdspec
from shardmaking import write_source

import wdspec as wds
from wdspec.base.errors import ShardError, UsageError
from wdspec.jobs import lock as job
from wdspec.shards.lock import Lock

SPEC = """
vars: {data: here}
dataset:
  - {name: a, shards: "${data}/a-{000..002}.tar", license: MIT}
"""


@pytest.fixture
def folder(tmp_path):
    write_source(tmp_path / "here", "a", shards=3, samples=3)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    write(tmp_path)
    return tmp_path


def write(folder, more=""):
    (folder / "s.yaml").write_text(SPEC + more)


def lock(folder, *options, code=0):
    return "".join(wdspec("lock", "s.yaml", *options, folder=folder, code=code))


def change_a_byte(path):
    """Other bytes, but the same size and time."""
    stat, data = path.stat(), bytearray(path.read_bytes())
    data[600] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def sums(folder):
    return [hashlib.sha256((folder / f"a-{n:03d}.tar").read_bytes()).hexdigest() for n in range(3)]


def test_the_comparison_says_that_it_knows_no_checksums(folder):
    lock(folder)
    change_a_byte(folder / "here" / "a-001.tar")
    said = lock(folder, "--check")
    assert "as locked; compared: 3 sizes and times; other bytes are found with checksums" in said
    assert "`wdspec lock --hash` records" in said
    assert "has no checksums; `wdspec lock --hash SPEC`" in lock(folder, "--check", "--hash", code=1)


def test_checksums_find_other_bytes_of_the_same_size_and_time(folder):
    assert ", 3 checksums, digest" in lock(folder, "--hash")
    locked = json.loads((folder / "s.lock.json").read_text())
    assert locked["sources"]["a"]["sha256"] == sums(folder / "here")
    assert "as locked; compared: 3 checksums\n" in lock(folder, "--check")
    change_a_byte(folder / "here" / "a-001.tar")
    said = lock(folder, "--check", code=1)
    assert "a-001.tar  SHA-256 " in said
    assert "1 shard not as locked; compared: 3 checksums" in said
    [file] = json.loads(wdspec("lock", "s.yaml", "--check", "--format", "json", folder=folder, code=1)[0])
    assert file["compared"] == {"checksum": 3}


def test_shards_that_were_written_again_with_the_same_bytes_are_as_locked(folder):
    """Such as by a checkout or by a copy without times. Without checksums, the times are all that is known."""
    lock(folder)
    shard = folder / "here" / "a-001.tar"
    os.utime(shard, ns=(0, 1_700_000_000 * 10**9 + 5))
    said = lock(folder, "--check", code=1)
    assert "now\n" in said
    assert "mtime 2023-11-14 22:13:20.000000005 now" in said
    (folder / "s.lock.json").unlink()
    lock(folder, "--hash")
    for number in range(3):
        os.utime(folder / "here" / f"a-{number:03}.tar", ns=(0, 1_800_000_000 * 10**9))
    assert "as locked; compared: 3 checksums" in lock(folder, "--check")
    assert "as locked; compared: 3 checksums" in lock(folder, "--check", "--hash")
    change_a_byte(shard)
    assert "a-001.tar  SHA-256" in lock(folder, "--check", code=1)
    shard.write_bytes(shard.read_bytes()[:-512])
    assert "bytes then" in lock(folder, "--check", code=1)


def test_copies_in_another_place_are_compared_by_their_bytes(folder):
    lock(folder, "--hash")
    rewrite = {"WDS_REWRITE": "here/=there/"}
    assert (
        "as locked; compared: 3 checksums" in wdspec("lock", "s.yaml", "--check", folder=folder, **rewrite)[0]
    )
    change_a_byte(folder / "there" / "a-002.tar")
    assert "a-002.tar  SHA-256" in wdspec("lock", "s.yaml", "--check", folder=folder, code=1, **rewrite)[0]
    (folder / "s.lock.json").unlink()
    lock(folder)
    said = wdspec("lock", "s.yaml", "--check", folder=folder, **rewrite)[0]
    assert "compared: 3 sizes; only sizes are comparable in another store" in said


def test_an_interrupted_command_continues(folder, monkeypatch):
    read = []
    whole = job._hash

    def fail_at_the_last(task):
        read.append(task.shard.text)
        return whole(task) if len(read) < 3 else ShardError("the disk is gone")

    monkeypatch.setattr(job, "_hash", fail_at_the_last)
    assert "the disk is gone" in lock(folder, "--hash", "--jobs", "0", code=1)
    assert json.loads((folder / "s.lock.json").read_text())["sources"]["a"]["sha256"][2] is None
    monkeypatch.setattr(job, "_hash", lambda task: read.append(task.shard.text) or whole(task))
    lock(folder, "--hash")
    assert [text[-9:] for text in read[3:]] == ["a-002.tar"]
    assert json.loads((folder / "s.lock.json").read_text())["sources"]["a"]["sha256"] == sums(folder / "here")


def test_a_shard_that_changed_since_the_lock_gets_no_checksum_before_an_update(folder):
    lock(folder)
    shard = folder / "here" / "a-000.tar"
    shard.write_bytes(shard.read_bytes() + bytes(10240))
    said = lock(folder, "--hash", code=1)
    assert "a-000.tar" in said
    assert "the shard is not as it was locked" in said
    assert "`wdspec lock --update` locks it as it is now" in said
    lock(folder, "--hash", "--update")
    assert Lock.read(folder / "s.lock.json").sources["a"].hashes == tuple(sums(folder / "here"))


def test_an_update_keeps_the_checksums_of_unchanged_shards(folder):
    lock(folder, "--hash")
    os.utime(folder / "here" / "a-001.tar", (1, 1))
    lock(folder, "--update")
    known = Lock.read(folder / "s.lock.json").sources["a"].hashes
    assert known == (sums(folder / "here")[0], None, sums(folder / "here")[2])


def test_an_update_with_checksums_reads_all_shards_again(folder):
    lock(folder, "--hash")
    change_a_byte(folder / "here" / "a-001.tar")
    assert "1 shard not as locked" in lock(folder, "--check", code=1)
    lock(folder, "--update", "--hash")
    assert Lock.read(folder / "s.lock.json").sources["a"].hashes == tuple(sums(folder / "here"))
    assert "as locked; compared: 3 checksums" in lock(folder, "--check")


def test_the_digest_is_of_the_data_and_a_license_must_fit(folder):
    lock(folder)
    before = Lock.read(folder / "s.lock.json")
    spec = folder / "s.yaml"
    spec.write_text(spec.read_text().replace("MIT", "CC0-1.0"))
    with pytest.raises(UsageError, match="another license"):
        wds.plan(spec, lock=folder / "s.lock.json")
    lock(folder)
    assert Lock.read(folder / "s.lock.json").digest == before.digest
    page = (Path(__file__).parents[2] / "docs" / "ci.md").read_text(encoding="utf-8")
    assert "a digest of the shards, their sizes, ETags and checksums" in " ".join(page.split())


def test_validate_checks_the_lock_in_each_environment(folder):
    more = "environments:\n  cloud: {vars: {data: there}}\n  small: {batch: 2}\n"
    write(folder, more)
    lock(folder)
    said = wdspec("validate", "--locked", "s.yaml", folder=folder, code=1)[0]
    assert said.count("E403") == 1
    assert "the lock does not fit in the environment `cloud`: the source `a` has other `shards`" in said
    assert "`wdspec lock SPEC --env cloud -o s.cloud.lock.json`" in said
    lock(folder, "--env", "cloud", "-o", "s.cloud.lock.json")
    wdspec("validate", "--locked", "s.yaml", folder=folder)
    wdspec("validate", "--locked", "s.yaml", "--env", "cloud", folder=folder)
    assert wds.plan(folder / "s.yaml", env="cloud", lock=folder / "s.cloud.lock.json")
    (folder / "s.lock.json").unlink()
    said = wdspec("validate", "--locked", "s.yaml", folder=folder, code=1)[0]
    assert said.count("E403") == 1  # once, not for each environment


def test_croissant_has_the_checksums_of_the_lock(folder):
    def checksum():
        text = wdspec("croissant", "s.yaml", "--lock", "s.lock.json", folder=folder)[0]
        return json.loads(text)["distribution"][0]

    lock(folder)
    assert "the list of their names" in checksum()["description"]
    lock(folder, "--hash")
    lines = "".join(f"{each}  here/a-{n:03d}.tar\n" for n, each in enumerate(sums(folder / "here")))
    assert checksum()["sha256"] == hashlib.sha256(lines.encode()).hexdigest()
    assert "`sha256sum`" in checksum()["description"]
