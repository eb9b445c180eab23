"""Locks with the objects that samples name: another version of one is an error, wherever a run continues."""

import io
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys

import pytest
from commandline import environment
from commandline import within as wdspec
from servers.objects import ObjectServer, data_of
from servers.stores import put, use

import wdspec as wds
from wdspec.base.errors import FieldError, UsageError
from wdspec.jobs import lock_objects as job
from wdspec.storage.known_objects import SIZE, KnownObjects, make_record
from wdspec.stores import table
from wdspec.stores.store import ObjectStat

ROWS = 12


def write(folder, root, references=None, entry=None, **source):
    """A spec whose rows name these objects, or 12 of a directory."""
    names = [f"{at}.bin" for at in range(ROWS)] if references is None else references
    rows = [{"__key__": f"{at:03d}", "n": at, "url": name} for at, name in enumerate(names)]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    source = {"name": "a", "shards": "rows.jsonl", "shuffle": 0, "interleave": 1, **source}
    source["fetch"] = {"bin": {"url": "url", "root": root, **(entry or {})}}
    (folder / "s.yaml").write_text(json.dumps({"dataset": [source], "epoch": len(rows)}))


def lock(folder, *options, code=0):
    return "".join(wdspec("lock", "s.yaml", *options, folder=folder, code=code))


def read(folder, workers=0):
    with wds.loader(folder / "s.yaml", lock=folder / "s.lock.json", num_workers=workers) as loader:
        return [sample["bin"] for sample in loader], loader.stats().sources["a"]


def refused(folder, workers=0):
    """The error of a run; it is one of the object."""
    with pytest.raises(FieldError) as caught:
        read(folder, workers)
    assert caught.value.code == "D264"
    return str(caught.value)


class Local:
    """A directory, which is named as it is from the spec."""

    root = "objects"

    def __init__(self, folder):
        self.folder = folder / "objects"
        self.folder.mkdir()

    def put(self, name, data):
        (self.folder / name).write_bytes(data)
        os.utime(self.folder / name, (1e9, 1e9 + data.startswith(b"other")))

    def remove(self, name):
        (self.folder / name).unlink()


@pytest.fixture(params=["local", "http", "s3"])
def store(request, tmp_path, monkeypatch):
    """A store with `ROWS` objects, and a spec that names them."""
    if request.param == "local":
        found = Local(tmp_path)
    elif request.param == "http":
        nginx = request.getfixturevalue("nginx")
        found, path = Local(tmp_path), nginx.root / tmp_path.name
        found.folder.rmdir()
        path.mkdir()
        found.folder, found.root = path, f"{nginx.url}/{tmp_path.name}"
    else:
        server = request.getfixturevalue("s3")
        use(server, monkeypatch)
        found = type("S3", (), {"root": f"{server.root}{tmp_path.name}"})()
        found.put = lambda name, data: put(server, f"{tmp_path.name}/{name}", data)
    for at in range(ROWS):
        found.put(f"{at}.bin", data_of(str(at)))
    write(tmp_path, found.root)
    return found


def test_another_version_of_an_object_is_an_error(store, tmp_path):
    assert ", 12 objects, digest" in lock(tmp_path, "--objects")
    assert (tmp_path / "s.lock.objects").stat().st_size == ROWS * SIZE
    assert not (tmp_path / "s.lock.objects.partial").exists()
    expected = [data_of(str(at)) for at in range(ROWS)]
    assert read(tmp_path)[0] == expected
    assert read(tmp_path, 1)[0] == expected
    basis = "sizes and times" if isinstance(store, Local) and store.root == "objects" else "ETags"
    assert (
        f"as locked; compared: 1 size and time; other bytes are found with checksums, which `wdspec lock --hash` \
records; objects: 12 {basis}\n"
        in lock(tmp_path, "--check", "--objects")
    )
    assert "; 12 objects not compared, which --objects does" in lock(tmp_path, "--check")
    store.put("7.bin", b"other" + expected[7][5:])
    for workers in (0, 1):
        assert "7.bin" in (said := refused(tmp_path, workers))
        assert "is not the one in the lock" in said
    said = lock(tmp_path, "--check", "--objects", code=1)
    assert "7.bin" in said
    assert "1 file not as locked" in said
    lock(tmp_path, "--objects")  # of what is recorded, nothing is asked
    refused(tmp_path)
    lock(tmp_path, "--objects", "--update")
    assert read(tmp_path)[0][7].startswith(b"other")


def test_a_killed_run_that_resumes_with_another_version_ends(store, tmp_path):
    lock(tmp_path, "--objects")
    program = """
import json, os, signal, wdspec
loader = wdspec.loader("s.yaml", lock="s.lock.json", num_workers=1)
batches = iter(loader)
for _ in range(5):
    next(batches)
open("state.json", "w").write(json.dumps(loader.state_dict()))
os.kill(os.getpid(), signal.SIGKILL)
"""
    variables = {name: os.environ[name] for name in os.environ if name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(**variables), timeout=280
    )
    assert done.returncode == -signal.SIGKILL
    state = json.loads((tmp_path / "state.json").read_text())
    store.put("8.bin", b"other" + data_of("8")[5:])
    with wds.loader(tmp_path / "s.yaml", lock=tmp_path / "s.lock.json", num_workers=0) as loader:
        loader.load_state_dict(state)
        samples = iter(loader)
        assert [next(samples)["bin"] for _ in range(3)] == [data_of(str(at)) for at in (5, 6, 7)]
        with pytest.raises(FieldError, match=r"8\.bin.*is not the one in the lock"):
            next(samples)
    with wds.loader(tmp_path / "s.yaml", num_workers=0) as loader:  # without the lock, nothing is known
        loader.load_state_dict(state)
        assert [sample["bin"][:5] for sample in loader][3] == b"other"


@pytest.mark.parametrize("store", ["local"], indirect=True)
def test_what_is_gone_or_new_is_an_error_whatever_may_be_missing(store, tmp_path):
    write(tmp_path, "objects", ["0.bin", "1.bin", "later.bin"], {"missing": "skip"})
    assert ", 2 objects (1 missing), digest" in lock(tmp_path, "--objects")
    store.remove("1.bin")
    assert "but there was one when it was locked" in refused(tmp_path)
    store.put("1.bin", data_of("1"))
    store.put("later.bin", b"new")
    assert "later.bin` is not in the lock" in refused(tmp_path)
    store.remove("0.bin")
    said = lock(tmp_path, "--check", "--objects", code=1)
    assert [line.split()[-1] for line in said.splitlines() if ".bin" in line] == ["gone", "new"]
    spec = json.loads((tmp_path / "s.yaml").read_text()) | {"errors": "skip", "epoch": 1}
    (tmp_path / "s.yaml").write_text(json.dumps(spec))
    found, stats = read(tmp_path)
    assert found == [data_of("1")]
    assert stats.skipped == {"D264": 1}


@pytest.mark.parametrize("store", ["http"], indirect=True)
def test_a_cached_copy_is_compared_without_a_request(store, tmp_path, nginx):
    write(tmp_path, store.root, cache={"dir": "cache"})
    expected = read_unlocked(tmp_path)
    lock(tmp_path, "--objects")
    before = len(nginx.requests())
    assert read(tmp_path)[0] == expected
    assert len(nginx.requests()) == before
    store.put("3.bin", b"other" + expected[3][5:])
    assert read(tmp_path)[0] == expected  # the copy is of the version in the lock
    lock(tmp_path, "--objects", "--update")
    assert read(tmp_path)[0][3].startswith(b"other")  # the copy is not, so it was made again
    shutil.rmtree(tmp_path / "cache")
    assert read(tmp_path)[0][3].startswith(b"other")  # while copies are made
    store.put("3.bin", expected[3])
    shutil.rmtree(tmp_path / "cache")
    assert "3.bin" in refused(tmp_path)


def read_unlocked(folder):
    with wds.loader(folder / "s.yaml", num_workers=0) as loader:
        return [sample["bin"] for sample in loader]


@pytest.mark.parametrize("store", ["local"], indirect=True)
def test_objects_in_the_directory_of_the_spec_are_found_where_it_is_moved(store, tmp_path):
    lock(tmp_path, "--objects")
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("objects", "rows.jsonl", "s.yaml", "s.lock.json", "s.lock.objects"):
        (tmp_path / name).rename(moved / name)
    assert read(moved)[0] == [data_of(str(at)) for at in range(ROWS)]


@pytest.mark.parametrize("store", ["http"], indirect=True)
def test_in_another_store_only_sizes_are_compared(store, tmp_path):
    lock(tmp_path, "--objects")
    mirror = Local(tmp_path)
    for at in range(ROWS):
        mirror.put(f"{at}.bin", data_of(str(at)))
    rule = {"from": f"^{store.root}/", "to": f"{mirror.folder}/"}
    (tmp_path / "m.yaml").write_text(json.dumps({"extends": "s.yaml", "rewrite": [rule]}))

    def read_mirror():
        with wds.loader(tmp_path / "m.yaml", lock=tmp_path / "s.lock.json", num_workers=0) as loader:
            return [sample["bin"] for sample in loader]

    assert read_mirror() == [data_of(str(at)) for at in range(ROWS)]
    mirror.put("5.bin", b"shorter")
    with pytest.raises(FieldError, match="had 2,000 bytes, and has 7"):
        read_mirror()


@pytest.fixture
def server():
    with ObjectServer() as running:
        yield running


def test_each_object_is_asked_about_once_with_many_requests_at_a_time(tmp_path):
    with ObjectServer(together=32) as server:
        names = [f"ok/{at % 64}" for at in range(200)]
        write(tmp_path, server.url, names, where="n < 150")
        assert ", 64 objects" in lock(tmp_path, "--objects")
        assert {*server.requests.values()} == {1}  # a GET, as this server does not know HEAD
        assert server.most_running == 32


def test_an_interrupted_lock_continues(server, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "_AT_ONCE", 4)
    names = [f"ok/{at}" for at in range(9)] + ["status-403/9"]
    write(tmp_path, server.url, names, errors={"retry": "0.1s"})
    said = lock(tmp_path, "--objects", code=1)
    assert "status-403/9" in said
    assert "D263" in said or "cannot be fetched" in said
    assert "objects" not in json.loads((tmp_path / "s.lock.json").read_text())
    asked = dict(server.requests)
    with open(tmp_path / "s.lock.objects.partial", "ab") as file:
        file.write(b"half a record")  # as a kill may leave it
    write(tmp_path, server.url, names[:9])
    assert ", 9 objects" in lock(tmp_path, "--objects")
    again = {name for name, count in server.requests.items() if count > asked.get(name, 0)}
    assert again == {"/ok/8"}  # the others were recorded
    assert len(read(tmp_path)[0]) == 9
    lock(tmp_path, "--objects", "--update")
    assert all(server.requests[f"/{name}"] > asked[f"/{name}"] + 1 for name in names[:8])


def test_objects_that_a_store_refuses_are_counted_if_errors_are_skipped(server, tmp_path):
    write(tmp_path, server.url, ["ok/0", "status-403/1", "ok/2"], errors={"skip": True, "retry": "0.1s"})
    assert ", 2 objects (1 that stores refuse), digest" in lock(tmp_path, "--objects")


class Bare:
    """A store that knows nothing about its objects."""

    def open(self, url):
        return io.BytesIO(b"an object of any version")


class Attic(Bare):
    """A store that says more than its streams do."""

    version = "1"

    def stat(self, url):
        return (24, f"version {self.version}")


def test_of_a_store_without_validators_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "_registered", {})
    wds.store("bare")(Bare)
    write(tmp_path, "bare://box/")
    assert ", 12 objects (nothing is known of 12), digest" in lock(tmp_path, "--objects")
    assert "objects: 12 names without sizes" in lock(tmp_path, "--check", "--objects")
    assert len(read(tmp_path)[0]) == ROWS


def test_a_store_is_asked_if_its_streams_do_not_say_which_version_they_have(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "_registered", {})
    wds.store("attic")(Attic)
    write(tmp_path, "attic://box/")
    lock(tmp_path, "--objects")
    assert len(read(tmp_path)[0]) == ROWS
    monkeypatch.setattr(Attic, "version", "2")
    assert "is another one" in refused(tmp_path)


@pytest.mark.parametrize("store", ["local"], indirect=True)
def test_a_missing_or_damaged_file_is_an_error(store, tmp_path):
    lock(tmp_path, "--objects")
    path = tmp_path / "s.lock.objects"
    whole = path.read_bytes()
    for damaged in (whole[:-SIZE], whole[:-1], b"", whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]):
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match="not those of the lock"):
            read(tmp_path)
    path.unlink()
    with pytest.raises(UsageError, match=r"cannot be read: No such file.*s\.lock\.objects"):
        read(tmp_path)
    assert "cannot be read" in lock(tmp_path, "--check", "--objects", code=1)
    assert "asked about all objects again" in lock(tmp_path, "--objects")
    assert path.read_bytes() == whole


def test_the_command_says_if_there_are_no_objects(tmp_path):
    (tmp_path / "objects").mkdir()
    write(tmp_path, "objects", [""], {"missing": "none"})
    lock(tmp_path)
    assert "has no objects; `wdspec lock --objects SPEC`" in lock(tmp_path, "--check", "--objects", code=1)
    assert ", 0 objects" in lock(tmp_path, "--objects")
    spec = json.loads((tmp_path / "s.yaml").read_text())
    del spec["dataset"][0]["fetch"]
    (tmp_path / "s.yaml").write_text(json.dumps(spec))
    assert "no source has `fetch`" in lock(tmp_path, "--objects", code=1)


def test_neither_file_has_a_secret(server, tmp_path):
    root = server.url.replace("//", "//reader:canary-4711@")
    write(tmp_path, root, ["ok/0"])
    lock(tmp_path, "--objects")
    written = (tmp_path / "s.lock.json").read_bytes() + (tmp_path / "s.lock.objects").read_bytes()
    assert b"canary" not in written
    server.objects["0"] = b"another size"
    assert "canary" not in refused(tmp_path)
    write(tmp_path, server.url.replace("//", "//other:password@"), ["ok/0"])  # another login, the same object
    assert "had 2,000 bytes" in refused(tmp_path)


def test_a_process_maps_the_file(tmp_path):
    urls = [f"s3://bucket/{at}.jpg" for at in range(5000)]
    records = sorted(make_record(url, "/home", url, ObjectStat(at, f'"{at}"')) for at, url in enumerate(urls))
    (tmp_path / "a.objects").write_bytes(b"".join(records))
    known = pickle.loads(pickle.dumps(KnownObjects(str(tmp_path / "a.objects"), "/home", "a")))
    assert all(known.find(url) in records for url in urls[::50])
    assert known.find("s3://bucket/5000.jpg") is None
    assert len(pickle.dumps(known)) < 300
