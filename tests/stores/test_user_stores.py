"""Stores that users write: one class, and everything that reads, lists, writes and explains URLs knows it."""

import io
import json
import pickle
import tarfile

import pytest
from commandline import within as program
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import FieldError, MissingShardError, ShardError, UsageError
from wdspec.shards.listing import list_texts
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage
from wdspec.stores import table as user_stores

OBJECTS = {}
"""URL -> bytes."""


class Attic:
    """A store with all four verbs, over `OBJECTS`."""

    def open(self, url):
        if url not in OBJECTS:
            raise FileNotFoundError(url)
        return io.BytesIO(OBJECTS[url])

    def list(self, root):
        return [url[len(root) :] for url in OBJECTS if url.startswith(root)]

    def output(self, url, overwrite):
        if url in OBJECTS and not overwrite:
            raise FileExistsError(url)
        return Upload(url)

    def describe(self, url):
        return "a box under the roof"


class Upload(io.BytesIO):
    """Appears when it is closed, unless it was aborted."""

    def __init__(self, url):
        super().__init__()
        self.url = url

    def close(self):
        if not self.closed:
            OBJECTS[self.url] = self.getvalue()
        super().close()

    def abort(self):
        super().close()


@pytest.fixture(autouse=True)
def attic(monkeypatch):
    monkeypatch.setattr(user_stores, "_registered", {})
    OBJECTS.clear()
    wdspec.store("attic")(Attic)


def shard(tmp_path, name, samples=3):
    write_shard(tmp_path / name, [(f"{name[0]}{i}", {"txt": b"x", "cls": b"%d" % i}) for i in range(samples)])
    return (tmp_path / name).read_bytes()


def test_a_spec_lists_and_reads_it(tmp_path):
    for name in ("b", "a"):
        OBJECTS[f"attic://box/{name}.tar"] = shard(tmp_path, f"{name}.tar")
    OBJECTS["attic://box/.hidden.tar"] = b""
    OBJECTS["attic://box/deep/c.tar"] = shard(tmp_path, "c.tar")
    spec = {"dataset": [{"shards": "attic://box/", "order": "sequential", "shuffle": 0}]}
    assert [s.text for s in wdspec.plan(spec).sources[0].shards] == [
        "attic://box/a.tar",
        "attic://box/b.tar",
    ]
    spec["dataset"][0]["shards"] = "attic://box/**/?.tar"
    assert len(wdspec.plan(spec).sources[0].shards) == 3
    assert next(iter(wdspec.compile(spec)))["__key__"] == "a0"


def test_writes_to_it_are_atomic(tmp_path):
    with wdspec.TarWriter("attic://box/new.tar") as writer:
        writer.write({"__key__": "0", "txt": "hello"})
        assert not OBJECTS
    with tarfile.open(fileobj=io.BytesIO(OBJECTS["attic://box/new.tar"])) as tar:
        assert tar.getnames() == ["0.txt"]
    with pytest.raises(FieldError), wdspec.TarWriter("attic://box/half.tar") as writer:
        writer.write({"__key__": "0", "txt": object()})
    assert list(OBJECTS) == ["attic://box/new.tar"]


def test_commands_use_it(tmp_path):
    OBJECTS["attic://box/a.tar"] = shard(tmp_path, "a.tar")
    shown, _ = program("ls", "-s", "attic://box/*.tar", "--format", "json")
    assert json.loads(shown)["shards"][0]["samples"] == 3
    program("sort", "attic://box/a.tar", "-o", "attic://box/sorted.tar")
    assert "attic://box/sorted.tar" in OBJECTS
    assert "a box under the roof" in program("resolve", "attic://box/a.tar")[0]


def test_workers_use_it():
    storage = pickle.loads(pickle.dumps(Storage.of(Environment.read())))
    OBJECTS["attic://box/a.tar"] = b"bytes"
    with storage.open_location("attic://box/a.tar") as file:
        assert file.read() == b"bytes"


def test_a_missing_object_is_a_missing_shard_error():
    with pytest.raises(MissingShardError, match=r"test_user_stores:Attic` failed: FileNotFoundError"):
        Storage.of(Environment.read()).open_location("attic://box/none.tar")


def test_a_store_that_cannot_list_is_an_error():
    wdspec.opener("attic")(lambda url: io.BytesIO())
    with pytest.raises(
        ShardError,
        match=r"globs and directories cannot be listed there \(the opener `tests\.stores\.test_user",
    ):
        list_texts(["attic://box/*.tar"], "/", Storage.of(Environment.read()))


@pytest.mark.parametrize("names", [["/a.tar"], [""], [3], [b"a.tar"]])
def test_invalid_names_are_rejected(names, monkeypatch):
    monkeypatch.setattr(Attic, "list", lambda self, root: names)
    with pytest.raises(ShardError, match=r"`list` of the store `tests\.stores\.test_user_stores:Attic` gave"):
        list_texts(["attic://box/"], "/", Storage.of(Environment.read()))


def test_an_invalid_output_is_rejected(monkeypatch):
    monkeypatch.setattr(Attic, "output", lambda self, url, overwrite: "text")
    with pytest.raises(UsageError, match=r"`output` of the store .* returned 'str'; return a file opened"):
        wdspec.TarWriter("attic://box/a.tar")


def test_an_invalid_store_is_rejected():
    with pytest.raises(UsageError, match="has no method `open`"):
        wdspec.store("attic")(dict)
    with pytest.raises(UsageError, match="cannot be the scheme of"):
        wdspec.store("file")(Attic)


def test_outputs_can_be_listed_and_deleted(monkeypatch):
    storage = Storage.of(Environment.read())
    OBJECTS["attic://box/a.tar"] = b"bytes"
    assert storage.is_written("attic://box/a.tar")
    assert not storage.is_written("attic://box/b.tar")
    with pytest.raises(UsageError, match=r"test_user_stores:Attic` has no `delete`"):
        storage.delete("attic://box/a.tar")
    monkeypatch.setattr(Attic, "exists", lambda self, url: url.endswith("b.tar"), raising=False)
    monkeypatch.setattr(Attic, "delete", lambda self, url: OBJECTS.pop(url), raising=False)
    assert storage.is_written("attic://box/b.tar")
    storage.delete("attic://box/a.tar")
    assert not OBJECTS
    with pytest.raises(ShardError, match="Attic` failed: KeyError"):
        storage.delete("attic://box/a.tar")


def test_a_failed_series_names_the_remaining_files(tmp_path):
    OBJECTS["attic://box/a.tar"] = shard(tmp_path, "a.tar")
    (tmp_path / "plan").write_text("1.txt text:1\n2.txt text:2\n3.txt missing\n")
    _, said = program(
        "create", str(tmp_path / "plan"), "-o", "attic://box/n-%d.tar", "--maxcount", "1", code=1
    )
    assert "attic://box/n-0.tar cannot be deleted: the store" in said
    assert "has no `delete`" in said


def test_an_existing_name_is_a_usage_error(tmp_path):
    OBJECTS["attic://box/a.tar"] = b"bytes"
    with pytest.raises(UsageError, match="an object of this name exists"):
        wdspec.TarWriter("attic://box/a.tar", overwrite=False)


def test_errors_in_user_code_name_the_store(monkeypatch):
    def fails(*_):
        raise ValueError("no box")

    monkeypatch.setattr(Attic, "describe", fails)
    storage = Storage.of(Environment.read())
    OBJECTS["attic://box/a.tar"] = b"bytes"
    assert "Attic` failed: ValueError: no box" in storage.describe("attic://box/a.tar")
    for verb, arguments in (("seek", (1,)), ("tell", ()), ("seekable", ())):
        broken = type("Broken", (io.BytesIO,), {verb: fails})
        monkeypatch.setattr(Attic, "open", lambda self, url, broken=broken: broken())
        with pytest.raises(ShardError, match=r"Attic` failed: ValueError: no box"):
            getattr(storage.open_location("attic://box/a.tar"), verb)(*arguments)


def test_an_output_with_only_commit_and_abort_is_rejected(monkeypatch):
    half = type("Half", (), {"commit": lambda self: None, "abort": lambda self: None})
    monkeypatch.setattr(Attic, "output", lambda self, url, overwrite: half())
    with pytest.raises(UsageError, match=r"`output` of the store .* returned 'Half'"):
        wdspec.TarWriter("attic://box/a.tar")


def test_a_class_that_needs_arguments_is_rejected():
    class Needs:
        def __init__(self, box):
            pass

        def open(self, url):
            pass

    with pytest.raises(UsageError, match=r"`attic`, .*Needs, cannot be made without arguments: TypeError"):
        wdspec.store("attic")(Needs)


def test_an_opener_without_output_is_an_error_that_names_no_variable():
    wdspec.opener("attic")(lambda url: io.BytesIO())
    with pytest.raises(
        UsageError, match=r"only opens, and nothing else writes to attic://; register a store"
    ) as caught:
        wdspec.TarWriter("attic://box/a.tar")
    assert "WDS_SECURE" not in str(caught.value)


def test_an_opener_alone_leaves_writing_to_wdspec(tmp_path):
    wdspec.opener("memory")(lambda url: io.BytesIO(b"read by the opener"))
    storage = Storage.of(Environment.read())
    output = storage.output("memory://user-stores/a.bin")
    output.write(b"written by fsspec")
    output.commit()
    assert storage.is_written("memory://user-stores/a.bin")
    with storage.open_location("memory://user-stores/a.bin") as file:
        assert file.read() == b"read by the opener"
    storage.delete("memory://user-stores/a.bin")
    assert not storage.is_written("memory://user-stores/a.bin")
