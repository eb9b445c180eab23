"""A full disk, for everything that writes: an error that says so, no file under a final name, and reading continues."""

import contextlib
import json
import resource
import tempfile
from contextlib import closing

import pytest
import torch
from cachestores import Caching, Store, tar_of
from commandline import wdspec as wdspec_command
from commandline import within
from shardmaking import write_source

import wdspec

ROOM = 64 * 1024


@contextlib.contextmanager
def little_room(room=ROOM):
    """No file may grow beyond these bytes, as if the disk were full: the system fails larger writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def samples(count=100):
    for number in range(count):
        yield {"__key__": f"{number:03d}", "bin": bytes([number]) * 5000}


def tar(folder):
    with wdspec.TarWriter(folder / "a.tar") as writer:
        for sample in samples():
            writer.write(sample)


def shards(folder):
    with wdspec.ShardWriter(str(folder / "a-%03d.tar"), maxcount=1000, verbose=0) as writer:
        for sample in samples():
            writer.write(sample)


def records(folder):
    with wdspec.RecordWriter(folder / "a.cbors", format="cbor") as writer:
        for sample in samples():
            writer.write(sample)


@pytest.mark.parametrize("write", [tar, shards, records])
def test_a_writer_leaves_nothing_under_a_final_name(tmp_path, write):
    with little_room(), pytest.raises(OSError, match="File too large"):
        write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == []


def test_create_leaves_nothing_under_a_final_name(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(30):
        (tmp_path / "in" / f"{number}.bin").write_bytes(bytes(10_000))
    (tmp_path / "out").mkdir()
    with little_room():
        _, said = within("create", "in", "-o", "out/a-%03d.tar", folder=tmp_path, code=1)
    assert "File too large" in said
    assert "Traceback" not in said
    assert list((tmp_path / "out").iterdir()) == []


def test_process_leaves_nothing_under_a_final_name(tmp_path):
    urls = write_source(tmp_path, "a", 1, 200)
    spec = {"dataset": [{"name": "a", "shards": urls}], "output": str(tmp_path / "out")}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    with little_room():
        _, said = within("process", "spec.yaml", "--jobs", "0", folder=tmp_path, code=1)
    assert "File too large" in said
    assert "Traceback" not in said
    assert [path.name for path in (tmp_path / "out").iterdir() if path.suffix == ".tar"] == []


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("lock", "spec.yaml"), "spec.lock.json"),
        (("stats", "spec.yaml", "--jobs", "0"), "spec.stats.json"),
        (("croissant", "spec.yaml", "-o", "croissant.json"), "croissant.json"),
        (("fmt", "unformatted.yaml"), "unformatted.yaml"),
        (("diff", "spec.yaml", "other.yaml", "--chart", "chart.svg"), "chart.svg"),
        (("demo", "made"), "made/.wdspec-demo"),
        (("convert", "index.json", "-o", "converted.yaml"), "converted.yaml"),
        (("preview", "single.yaml"), "preview.html"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_commands_name_the_file_that_does_not_fit(tmp_path, monkeypatch, command, name):
    monkeypatch.setattr("wdspec.cli.main._drop_output", lambda: None)  # of a program, as in the next test
    write_specs(tmp_path)
    with little_room(10):
        _, said = within(*command, folder=tmp_path, code=1)
    assert f"{name}: File too large" in said


def test_preview_names_the_shared_memory_that_does_not_fit(tmp_path):
    """In a program: this process may have shared memory that is free."""
    write_specs(tmp_path)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)); "
    _, said = wdspec_command("preview", "spec.yaml", folder=tmp_path, before=limit, code=1)
    assert f"shared memory (a file in {tempfile.gettempdir()} or /dev/shm): File too large" in said


def write_specs(tmp_path):
    """A source, and what the commands read."""
    write_source(tmp_path, "a", 2, 10)
    source = "{name: a, shards: 'a-*.tar', license: MIT}"
    (tmp_path / "spec.yaml").write_text(
        f"wdspec: 1\nname: a\ndescription: a\ndataset: [{source}]\nbatch: 2\n"
    )
    (tmp_path / "other.yaml").write_text(f"wdspec: 1\ndataset: [{source}]\nbatch: 2\nseed: 1\n")
    (tmp_path / "unformatted.yaml").write_text(f"batch: 2\ndataset: [{source}]\nwdspec:   1\n")
    (tmp_path / "index.json").write_text(
        '{"wids_version": 1, "shardlist": [{"url": "a.tar", "nsamples": 1}]}'
    )
    (tmp_path / "single.yaml").write_text(f"wdspec: 1\ndataset: [{source}]\n")


def test_a_full_cache_loses_no_sample_and_keeps_no_partial_file(tmp_path, caplog):
    data = tar_of(500_000)
    store = Store({"gs://b/a.tar": data})
    caching = Caching(tmp_path / "cache")
    with little_room():
        assert caching.read("gs://b/a.tar", store) == data
    assert caching.files == []
    assert "File too large" in caplog.text
    assert caching.read("gs://b/a.tar", store) == data
    assert len(caching.files) == 1


def test_a_skip_log_on_a_full_disk_ends_the_run(tmp_path):
    log = tmp_path / "skips.jsonl"
    log.write_bytes(b"{}\n" * (ROOM // 3) + b"{}")
    urls = write_source(tmp_path, "a", 1, 20)
    source = {"name": "a", "shards": urls, "decode": {"txt": "json"}}
    spec = {"dataset": [source], "errors": {"skip": True, "log": str(log)}, "epoch": "pass"}
    with (
        little_room(),
        pytest.raises(wdspec.UsageError, match=r"skips cannot be written to .*File too large"),
    ):
        list(wdspec.compile(spec))


def test_a_sample_cache_on_a_full_disk_loses_no_sample(tmp_path):
    def read():
        pipeline = wdspec.DataPipeline(list(samples()), wdspec.DBCache(str(tmp_path / "cache.db")))
        return [sample["__key__"] for sample in pipeline]

    whole = [sample["__key__"] for sample in samples()]
    with (
        little_room(),
        pytest.warns(UserWarning, match="cannot store more samples, so this pass is not cached"),
    ):
        assert read() == whole
    assert read() == whole
    assert read() == whole


@pytest.mark.parametrize("refused", ["INSERT", "DELETE"])
def test_a_sample_cache_that_cannot_start_or_clear_loses_no_sample(tmp_path, refused):
    path = str(tmp_path / "cache.db")
    with closing(wdspec.DBCache(path)._connect(path)) as database:
        database.execute("INSERT INTO parts (part, parts, size, count) VALUES (0, 1, 1000, -1)")
        full = "SELECT RAISE(ABORT, 'database or disk is full')"
        database.execute(f"CREATE TRIGGER full BEFORE {refused} ON parts BEGIN {full}; END")
    pipeline = wdspec.DataPipeline(list(samples(3)), wdspec.DBCache(path, 1000))
    with pytest.warns(UserWarning, match="this pass is not cached: database or disk is full"):
        assert [sample["__key__"] for sample in pipeline] == ["000", "001", "002"]


def test_an_upload_without_space_leaves_no_object(tmp_path):
    import fsspec

    def upload():
        with wdspec.TarWriter("memory://full/a.tar") as writer:
            for sample in samples():
                writer.write(sample)

    with little_room(), pytest.raises(OSError, match="File too large"):
        upload()
    assert not fsspec.filesystem("memory").exists("/full/a.tar")


def test_the_previous_checkpoint_stays_if_a_new_one_does_not_fit(tmp_path):
    from examples.frameworks.with_torchrun import write_whole

    write_whole(tmp_path / "run.pt", {"step": 1})
    with little_room(), pytest.raises((OSError, RuntimeError)):
        write_whole(tmp_path / "run.pt", {"step": 2, "model": torch.zeros(100_000)})
    assert torch.load(tmp_path / "run.pt", weights_only=True) == {"step": 1}
    write_whole(tmp_path / "run.pt", {"step": 3})
    assert torch.load(tmp_path / "run.pt", weights_only=True) == {"step": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]
