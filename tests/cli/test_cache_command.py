"""`wdspec cache`: what it lists, finds damaged, deletes and keeps."""

import json
import os
import re
import time

import pytest
from cachestores import tar_of
from click.testing import CliRunner
from commandline import within
from servers.counting import CountingServer

from wdspec.cli.cache import cache


@pytest.fixture
def served(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    for n in range(4):
        (folder / f"{n}.tar").write_bytes(tar_of(50_000, seed=n))
    with CountingServer(folder) as server:
        yield server


@pytest.fixture
def spec(tmp_path, served, monkeypatch):
    for name in ("WDS_CACHE", "WDS_CACHE_SIZE", "WDS_REWRITE"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "spec.yaml"
    path.write_text(f"cache: copies\ndataset:\n  - shards: {served.url}/{{0..3}}.tar\n")
    return path


@pytest.fixture
def copies(tmp_path, spec):
    run("prefetch", spec)
    return tmp_path / "copies"


def run(*arguments, code=0):
    done = CliRunner().invoke(cache, [str(each) for each in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code, done.output
    return done.output


def names(folder):
    return sorted(path.name for path in folder.glob("http/*/*.tar"))


def test_prefetch_fetches_missing_shards(spec, served, tmp_path):
    assert run("prefetch", spec, "--jobs", 2) == "4 fetched (0.2 MB), 0 already cached\n"
    assert names(tmp_path / "copies") == ["0.tar", "1.tar", "2.tar", "3.tar"]
    assert run("prefetch", spec) == "0 fetched (0.0 MB), 4 already cached\n"
    assert set(served.fetched.values()) == {1}


def test_prefetch_names_shards_that_fail_or_do_not_fit(spec, served, tmp_path):
    (served.folder / "2.tar").unlink()
    limited = f"cache={{dir: {tmp_path}/copies, size: 120kB}}"
    said = run("prefetch", spec, "--set", limited, "--format", "json", code=1)
    shards = json.loads(said[said.index("{") :])["shards"]
    assert [each["outcome"] for each in shards if each["url"].endswith("2.tar")] == ["failed"]
    assert len(names(tmp_path / "copies")) <= 2
    assert "no cache; add" in run("prefetch", spec, "--set", "cache=false", code=2)


def test_ls_lists_by_last_use(copies, spec, served):
    newest = next(copies.glob("http/*/1.tar"))
    listed = json.loads(run("ls", copies, "--format", "json"))["copies"]
    assert sorted(each["url"] for each in listed) == [f"{served.url}/{n}.tar" for n in range(4)]
    entry = next(path for path in (copies / ".wdspec" / "index").iterdir() if "/1.tar" in path.read_text())
    os.utime(entry, (time.time() + 5, time.time() + 5))
    lines = run("ls", spec).splitlines()
    assert lines[0].split() == ["used", "MB", "copy"]
    assert lines[4].endswith(str(newest))
    assert lines[-1] == "4 copies, 0.2 MB"


def test_verify_finds_a_damaged_copy_and_removes_it(copies):
    assert run("verify", copies) == "4 intact, 0 damaged\n"
    damaged = next(copies.glob("http/*/1.tar"))
    data = bytearray(damaged.read_bytes())
    data[3] ^= 0xFF
    damaged.write_bytes(bytes(data))
    short = next(copies.glob("http/*/2.tar"))
    short.write_bytes(short.read_bytes()[:-512])
    said = run("verify", copies, code=1)
    assert f"{damaged}: " in said
    assert f"{short}: " in said
    assert said.endswith("2 intact, 2 damaged\n")
    assert run("verify", copies, "--remove", code=1).endswith("2 intact, 2 damaged and deleted\n")
    assert run("verify", copies) == "2 intact, 0 damaged\n"


def test_verify_checks_whether_objects_in_stores_have_changed(copies, spec, served):
    assert run("verify", spec, "--store") == "4 intact, 0 damaged or changed\n"
    (served.folder / "1.tar").write_bytes(tar_of(60_000, seed=1))
    (served.folder / "2.tar").unlink()
    assert run("verify", spec) == "4 intact, 0 damaged\n"
    said = run("verify", spec, "--store", "--remove", code=1)
    assert re.search(
        r"1\.tar: the object has changed: it has [\d,]+ bytes there and [\d,]+ in the copy\n", said
    )
    assert "2.tar: the object has changed: the object no longer exists\n" in said
    assert said.endswith("2 intact, 2 damaged or changed and deleted\n")
    assert names(copies) == ["0.tar", "3.tar"]
    assert "name a spec" in run("verify", copies, "--store", code=2)


def test_prune_keeps_recent_copies_and_foreign_files(copies):
    (copies / "mine.tar").write_bytes(bytes(10**6))
    index = copies / ".wdspec" / "index"
    for entry in index.iterdir():
        number = int(entry.read_text().split("\n")[0][-5])
        os.utime(entry, (1000 + number, 1000 + number))
    assert run("prune", copies, "--size", "130kB") == "0.1 MB deleted, 0.1 MB left\n"
    assert names(copies) == ["2.tar", "3.tar"]
    run("prune", copies, "--older-than", "30d")
    assert names(copies) == []
    assert (copies / "mine.tar").exists()


def test_prune_removes_leftovers_of_a_killed_process(copies):
    (copies / ".wdspec" / "parts" / ("0" * 32)).write_bytes(bytes(1000))
    (copies / ".wdspec" / "index" / f"{'0' * 32}-5000").write_text("gone\n")
    run("prune", copies, "--size", "1GB", "--older-than", "0s")
    assert list((copies / ".wdspec" / "parts").iterdir()) == []
    assert names(copies) == []


def test_a_directory_without_our_tag_is_rejected(tmp_path):
    (tmp_path / "x.tar").write_bytes(b"x")
    for command in (("ls",), ("verify",), ("prune", "--size", "0")):
        assert "is not a cache of wdspec" in run(*command, tmp_path, code=2)
    assert (tmp_path / "x.tar").exists()


def test_wds_cache_is_the_default_directory(copies):
    out, _ = within("cache", "ls", WDS_CACHE=str(copies))
    assert out.endswith("4 copies, 0.2 MB\n")
    _, said = within("cache", "ls", code=2)
    assert "name a cache directory or a spec, or set WDS_CACHE" in said
    _, said = within("cache", "prune", str(copies), code=2)
    assert "--size 100GB, or --older-than 30d" in said
    _, said = within("cache", "prune", str(copies), "--size", "lots", code=2)
    assert "is not a size" in said


def test_prefetch_of_a_damaged_shard_fails(spec, served):
    path = served.folder / "2.tar"
    path.write_bytes(path.read_bytes()[:5000])
    said = run("prefetch", spec, code=1)
    assert "the shard is damaged or incomplete, so no copy was made; `wdspec check` says where" in said
