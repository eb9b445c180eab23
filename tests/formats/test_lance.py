"""Lance data sets, compared with what Lance's own library reads of them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import lancedata
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import within
from lancedata import expected, lance, random_dataset, write
from speed import mostly_long

import wdspec
import wdspec.stores.lance
from wdspec.base.errors import MissingShardError, ShardError, StoreError, UnusableStoreError, UsageError
from wdspec.formats.lance import LanceTable
from wdspec.formats.samples import no_field
from wdspec.formats.tables import TableSamples
from wdspec.run import libraries
from wdspec.stores.lance import LanceStore, _options_of
from wdspec.stores.store import StoreSettings
from wdspec.testing import difference
from wdspec.urls.urls import ShardRun, UrlSequence, has_lance, lance_url, parse_shards

ORDERED = {"order": "sequential", "shuffle": 0, "interleave": 1}


def spec_of(shards, **keys):
    return {"dataset": [{"name": "a", "shards": str(shards), **ORDERED, **keys}], "epoch": "pass"}


def loaded(shards, workers=0, **keys):
    with wdspec.loader(spec_of(shards, **keys), num_workers=workers) as loader:
        return list(loader)


def plain(samples):
    about = ("__url__", "__source__", "__mask__")
    return [{name: value for name, value in each.items() if name not in about} for each in samples]


def numbers(count, start=0):
    return pa.table(
        {"n": range(start, start + count), "txt": [f"text {n}" for n in range(start, start + count)]}
    )


def read(location, **options):
    """The samples of a fragment before the first error, and the error."""
    file = LanceStore().open(str(location), StoreSettings())
    found = []
    with closing(TableSamples(file, LanceTable, **options)) as samples:
        try:
            found += samples
        except ShardError as error:
            return found, error
    return found, None


@pytest.mark.parametrize("seed", mostly_long(range(100), range(8)))
def test_samples_are_those_that_the_library_reads(seed, tmp_path):
    dataset = random_dataset(tmp_path / "a.lance", seed)
    found = plain(loaded(tmp_path / "a.lance", missing="skip"))
    assert difference(expected(dataset), found) is None


def test_worker_processes_read_the_same_after_this_process_has_read(tmp_path):
    write(tmp_path / "a.lance", numbers(50))
    alone = plain(loaded(tmp_path / "a.lance"))
    assert [each["n"] for each in alone] == list(range(50))
    assert sorted(each["n"] for each in loaded(tmp_path / "a.lance", workers=1)) == list(range(50))


@pytest.mark.parametrize("place", ["a later shard", pytest.param("companions", marks=pytest.mark.long)])
def test_worker_processes_read_what_is_not_the_first_shard(place, tmp_path):
    write(tmp_path / "b.lance", numbers(20))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"n": 100 + n}) + "\n" for n in range(20)))
    source = {"shards": [str(tmp_path / "a.jsonl"), str(tmp_path / "b.lance")], "shuffle": 0}
    spec = {"dataset": [source], "epoch": "pass", "batch": 4, "elastic": {"ranks": 1, "workers": 2}}
    if place == "companions":
        source["shards"].pop()
        source["companions"] = {"other": "b"}
        spec["companions"] = {"b": {"shards": str(tmp_path / "b.lance")}}
        source["make"] = {"m": {"take": "other.n"}}

    def read(workers):
        with wdspec.loader(spec, num_workers=workers) as loader:
            return plain(loader)

    assert difference(read(0), read(1)) is None


def test_a_forked_process_gets_an_error_and_its_memory_stays_whole(tmp_path):
    """The library crashed in forked children: when it read there, and when objects of the parent were freed."""
    write(tmp_path / "a.lance", numbers(60), 20)
    with wdspec.loader(spec_of(tmp_path / "a.lance"), num_workers=0) as loader:
        samples = iter(loader)
        next(samples)
        for _ in range(3):
            child = os.fork()
            if not child:
                is_right = False
                try:
                    with pytest.raises(UsageError, match="spawn"):
                        loaded(tmp_path / "a.lance")
                    is_right = True
                finally:
                    os._exit(0 if is_right else 1)
            assert os.waitpid(child, 0)[1] == 0
        assert [each["n"] for each in samples] == list(range(1, 60))


def test_a_fragment_is_read_from_any_row_and_in_part(tmp_path):
    dataset = write(tmp_path / "a.lance", numbers(40), 40)
    dataset.delete("n % 5 = 2")
    location = f"{tmp_path}/a.lance?version=2&fragment=0"
    whole, error = read(location)
    assert error is None
    assert [each["n"] for each in whole] == [n for n in range(40) if n % 5 != 2]
    file = LanceStore().open(location, StoreSettings())
    first = TableSamples(file, LanceTable)
    places = [(0, 0), *((first.next_offset, first.next_index) for _ in first)]
    for offset, index in places:
        assert read(location, offset=offset, index=index) == (whole[index:], None)
        assert read(location, offset=offset, index=index, stride=3, residue=1) == (
            [each for n, each in enumerate(whole) if n >= index and n % 3 == 1],
            None,
        )


def test_large_rows_are_read_in_small_parts_and_from_the_part_of_a_row(tmp_path):
    table = pa.table({"n": range(60), "raw": [os.urandom(300_000) for _ in range(60)]})
    write(tmp_path / "a.lance", table, 100)
    location = f"{tmp_path}/a.lance?version=1&fragment=0"
    sizes = []
    assert [each["n"] for each in read(location, on_read=sizes.append)[0]] == list(range(60))
    assert len(sizes) > 3
    assert max(sizes) < 8_000_000
    sizes.clear()
    assert [each["n"] for each in read(location, offset=52, index=55, on_read=sizes.append)[0]] == list(
        range(55, 60)
    )
    assert sum(sizes) < 10 * 310_000


def test_columns_that_no_field_needs_are_not_read(tmp_path):
    table = pa.table({"n": range(100), "raw": [bytes(10_000)] * 100})
    write(tmp_path / "a.lance", table, 100)
    location = f"{tmp_path}/a.lance?version=1&fragment=0"
    sizes = []
    found, _ = read(location, field_of=lambda name: name if name == "n" else None, on_read=sizes.append)
    assert found[7] == {"__key__": "7", "n": 7}
    assert sum(sizes) < 100 * 100
    sizes.clear()
    assert len(read(location, field_of=no_field, on_read=sizes.append)[0]) == 100
    assert not sizes


def test_blobs_are_bytes_and_are_read_only_if_they_are_needed(tmp_path):
    schema = pa.schema(
        [("n", pa.int64()), pa.field("video", pa.large_binary(), metadata={"lance-encoding:blob": "true"})]
    )
    values = [b"%d" % n * 50_000 for n in range(8)]
    table = pa.table([pa.array(range(8)), pa.array(values, pa.large_binary())], schema=schema)
    write(tmp_path / "a.lance", table, 100, data_storage_version="2.1")
    assert [each["video"] for each in loaded(tmp_path / "a.lance")] == values
    sizes = []
    location = f"{tmp_path}/a.lance?version=1&fragment=0"
    read(location, field_of=lambda name: name if name == "n" else None, on_read=sizes.append)
    assert sum(sizes) < 1000


def test_a_version_is_named_by_its_number_or_a_tag(tmp_path):
    folder = tmp_path / "a.lance"
    dataset = write(folder, numbers(20))
    write(folder, numbers(10, 20), mode="append").tags.create("good", 2)
    dataset = lance.dataset(str(folder))
    dataset.delete("n < 5")
    for query, right in (
        ("", range(5, 30)),
        ("?version=1", range(20)),
        ("?version=2", range(30)),
        ("?version=good", range(30)),
        ("?version=1&fragment=1", range(7, 14)),
        ("?version=1&fragment={0,2}", [*range(7), *range(14, 20)]),
        ("/", range(5, 30)),
    ):
        assert [each["n"] for each in loaded(f"{folder}{query}")] == list(right), query
    urls = {each["__url__"] for each in loaded(f"{folder}?version=good")}
    assert urls == {f"{folder}?version=2&fragment={n}" for n in range(5)}
    assert [each["n"] for each in loaded(f"file://{folder}?version=1")] == list(range(20))


def test_a_new_version_is_noticed_and_the_old_one_can_be_named(tmp_path):
    folder = tmp_path / "a.lance"
    write(folder, numbers(20))

    def spec(query=""):
        return {
            "dataset": [{"name": "a", "shards": f"{folder}{query}"}], "batch": 2, "epoch": {"batches": 30}, "seed": 4
        }  # fmt: skip

    with wdspec.loader(spec(), num_workers=0) as loader:
        whole = [batch["n"].tolist() for batch in loader]
    with wdspec.loader(spec(), num_workers=0) as loader:
        batches = iter(loader)
        start = [next(batches)["n"].tolist() for _ in range(7)]
        state = json.loads(json.dumps(loader.state_dict()))
    write(folder, numbers(5, 20), mode="append")
    with (
        wdspec.loader(spec(), num_workers=0) as loader,
        pytest.raises(wdspec.WdspecError, match="shards"),
    ):
        loader.load_state_dict(state)
    with wdspec.loader(spec("?version=1"), num_workers=0) as loader:
        loader.load_state_dict(state)
        assert start + [batch["n"].tolist() for batch in loader] == whole


def test_a_lock_keeps_the_version_and_notices_other_files(tmp_path):
    folder = tmp_path / "a.lance"
    write(folder, numbers(20))
    (tmp_path / "s.yaml").write_text(json.dumps(spec_of("a.lance")))
    within("lock", "s.yaml", folder=tmp_path)
    within("lock", "s.yaml", "--hash", folder=tmp_path)
    write(folder, numbers(5, 20), mode="append")
    with wdspec.loader(tmp_path / "s.yaml", lock=tmp_path / "s.lock.json", num_workers=0) as loader:
        assert [each["n"] for each in loader] == list(range(20))
    within(
        "lock", "s.yaml", "--check", "--hash", folder=tmp_path, code=1
    )  # the list of shards is another one
    shutil.rmtree(folder)
    write(folder, numbers(20))
    out, err = within("lock", "s.yaml", "--check", folder=tmp_path, code=1)
    assert "fragment" in out + err


def test_processing_writes_a_shard_for_each_fragment(tmp_path):
    write(tmp_path / "a.lance", numbers(20), 8)
    (tmp_path / "s.yaml").write_text(json.dumps(spec_of("a.lance")))
    within("process", "s.yaml", "--output", "out", "--jobs", "0", folder=tmp_path)
    names = sorted(path.name for path in (tmp_path / "out").glob("*.parquet"))
    assert names == ["a-0.parquet", "a-1.parquet", "a-2.parquet"]
    rows = [row for name in names for row in pq.read_table(tmp_path / "out" / name).to_pylist()]
    assert [(row["__key__"], row["n"]) for row in rows] == [(f"a-{n // 8}/{n % 8}", n) for n in range(20)]


@pytest.mark.parametrize(
    ("shards", "kind", "words"),
    [
        ("none.lance", MissingShardError, "no Lance data set is there"),
        ("forbidden.lance", MissingShardError, "no Lance data set is there"),
        ("unauthorized/x.lance", MissingShardError, "no Lance data set is there"),
        ("a.lance?version=9", MissingShardError, "no version 9"),
        ("a.lance?version=best", MissingShardError, "no version best"),
        ("a.lance?version=1&fragment=7", MissingShardError, "no fragment 7"),
        ("file.lance", ShardError, "cannot be opened or read"),
        ("empty.lance", ShardError, "has no rows"),
        ("?.lance", ShardError, "pattern for files"),
        ("a.lance/data/*.lance", ShardError, "is a folder"),
        ("https://host/x.lance", StoreError, "cannot do so from https://"),
        ("hf://datasets/a/b/x.lance", StoreError, "cannot do so from hf://"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_it(shards, kind, words, tmp_path):
    write(tmp_path / "a.lance", numbers(5))
    write(tmp_path / "empty.lance", numbers(0))
    (tmp_path / "file.lance").write_text("text")
    with pytest.raises(kind, match=words) as caught:
        loaded(shards if "://" in shards else tmp_path / shards)
    assert ".rs:" not in str(caught.value)
    assert "source a" in str(caught.value)


def test_a_cluster_that_serves_the_store_is_an_error(tmp_path):
    spec = spec_of("s3://bucket/x.lance") | {"aistore": {"endpoint": "http://localhost:1", "use_for": "s3"}}
    with pytest.raises(StoreError, match="through AIStore"):
        wdspec.loader(spec, num_workers=0)


def test_without_the_library_an_error_says_what_to_install(tmp_path, monkeypatch):
    write(tmp_path / "a.lance", numbers(5))
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(UsageError, match=r"needs lance.*\[lance\]"):
        loaded(tmp_path / "a.lance")
    (tmp_path / "s.yaml").write_text("dataset:\n  - {name: a, shards: 'a.lance?version=7'}\n")
    within("validate", "s.yaml", "--strict", folder=tmp_path)


def test_other_names_with_the_format_are_a_problem(tmp_path):
    (tmp_path / "s.yaml").write_text("dataset:\n  - {shards: [a.lance, b], format: lance}\n")
    out, _ = within("validate", "s.yaml", folder=tmp_path, code=1)
    assert "E346" in out
    assert '"b"' in out


def test_names_of_data_sets_and_fragments():
    assert lance_url("s3://b/a.lance") == ("s3://b/a.lance", None, None)
    assert lance_url("a.lance/?version=v1") == ("a.lance", "v1", None)
    assert lance_url("x/a.lance?version=7&fragment=12") == ("x/a.lance", "7", 12)
    for text in (
        "a.lance.tar",
        "a.lance/data/x",
        "a.lance?v=1",
        "pipe:cat a.lance",
        "lance",
        "a.lance?version=1&fragment=x",
    ):
        assert lance_url(text) is None, text


def test_links_and_rewrites_lead_to_data_sets(tmp_path):
    write(tmp_path / "a.lance", numbers(9))
    os.symlink(tmp_path / "a.lance", tmp_path / "b.lance")
    assert len(loaded(tmp_path / "b.lance")) == 9
    spec = spec_of("gs://bucket/a.lance") | {"rewrite": [{"from": "gs://bucket/", "to": f"{tmp_path}/"}]}
    with wdspec.loader(spec, num_workers=0) as loader:
        assert {each["__url__"] for each in loader} == {
            f"gs://bucket/a.lance?version=1&fragment={n}" for n in range(2)
        }


def test_a_data_set_in_s3_is_read_by_its_library_with_our_settings(s3, tmp_path, monkeypatch, capfd):
    import boto3

    write(tmp_path / "a.lance", numbers(30))
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    bucket = s3.root.removeprefix("s3://").strip("/")
    for path in (tmp_path / "a.lance").rglob("*"):
        if path.is_file():
            client.upload_file(str(path), bucket, f"tables/{path.relative_to(tmp_path)}")
    shards = f"{s3.root}tables/a.lance"
    assert [each["n"] for each in loaded(shards)] == list(range(30))
    assert [each["n"] for each in loaded(shards, cache=str(tmp_path / "cache"))] == list(range(30))
    with pytest.raises(MissingShardError):
        loaded(f"{shards}?version=5")
    endpoint = s3.environ["AWS_ENDPOINT_URL"]
    for name in s3.environ:
        monkeypatch.delenv(name)
    monkeypatch.setenv("THE_KEY", "testing")
    monkeypatch.setenv("THE_SECRET", "canary-5571")
    login = {"endpoint": endpoint, "region": "us-east-1", "env": {"key": "THE_KEY", "secret": "THE_SECRET"}}
    with wdspec.loader(spec_of(shards) | {"storage": login}, num_workers=0) as loader:
        assert [each["n"] for each in loader] == list(range(30))
        assert "canary-5571" not in json.dumps(loader.state_dict()) + repr(loader)
    with pytest.raises(StoreError, match="no setting like `profile`"):
        wdspec.loader(spec_of(shards) | {"storage": login | {"profile": "me"}}, num_workers=0)
    assert "canary-5571" not in "".join(capfd.readouterr())


def test_a_data_file_that_is_cut_in_half_is_truncated(tmp_path):
    write(tmp_path / "a.lance", numbers(20), 20)
    file = next((tmp_path / "a.lance" / "data").iterdir())
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(ShardError, match="truncated") as caught:
        loaded(tmp_path / "a.lance")
    assert caught.value.code == "D107"


def test_a_damaged_list_of_deleted_rows_is_damage(tmp_path):
    dataset = write(tmp_path / "a.lance", numbers(20), 20)
    dataset.delete("n = 3")
    next((tmp_path / "a.lance" / "_deletions").glob("*.arrow")).write_bytes(b"x" * 200)
    with pytest.raises(ShardError, match="deleted rows") as caught:
        loaded(tmp_path / "a.lance")
    assert caught.value.code == "D121"


def test_too_many_open_files_are_no_damage(tmp_path, monkeypatch):
    write(tmp_path / "a.lance", numbers(20))

    def fail(path):
        raise UnusableStoreError("this process has too many open files", location=path)

    monkeypatch.setattr(wdspec.stores.lance, "open_file", fail)
    with pytest.raises(UnusableStoreError, match="too many open files"):
        loaded(tmp_path / "a.lance", errors="skip")


@pytest.mark.parametrize(
    ("message", "kind", "code"),
    [
        ("LanceError(IO): Too many open files (os error 24)", UnusableStoreError, "D102"),
        ("LanceError(IO): Generic S3 error: 400 Bad Request: <Code>ExpiredToken</Code>", UnusableStoreError, "D102"),
        ("LanceError(IO): Generic S3 error: error sending request", ShardError, "D102"),
        ("External error: Not found: a.lance/data/x.lance", MissingShardError, "D101"),
        ("Encountered corrupt file: forbidden", ShardError, "D121"),
    ],
)  # fmt: skip
def test_an_error_of_the_store_within_a_scan_is_no_damage(message, kind, code, tmp_path, monkeypatch):
    write(tmp_path / "a.lance", numbers(20), 20)

    def fail(*_, **__):
        raise OSError(message)

    monkeypatch.setattr(lance.LanceFragment, "take", fail)
    _, error = read(f"{tmp_path}/a.lance?version=1&fragment=0")
    assert type(error) is kind
    assert error.code == code


def test_a_list_names_data_sets_and_fragments(tmp_path):
    write(tmp_path / "a.lance", numbers(9))
    (tmp_path / "all.txt").write_text("a.lance\n")
    assert [each["n"] for each in loaded(f"@{tmp_path}/all.txt")] == list(range(9))
    (tmp_path / "some.txt").write_text("a.lance?version=1&fragment=1\n")
    assert [each["n"] for each in loaded(f"@{tmp_path}/some.txt")] == [7, 8]


def test_workers_are_spawned_also_if_the_library_is_used_only_later(tmp_path):
    """The first loader was made in a process that had not yet used the library: its later workers were forked."""
    write(tmp_path / "a.lance", numbers(20))
    (tmp_path / "s.py").write_text(
        f"""
import wdspec, sys
def main():
    spec = {{"dataset": [{{"name": "a", "shards": "{tmp_path}/a.lance?version=1&fragment={{0..2}}"}}], "epoch": "pass"}}
    with wdspec.loader(spec, num_workers=1) as first:
        assert len(list(first)) == 20
        with wdspec.loader(spec, num_workers=0) as other:
            assert len(list(other)) == 20
        assert len(list(first)) == 20
if __name__ == "__main__":
    main()
"""
    )
    done = subprocess.run([sys.executable, tmp_path / "s.py"], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]


def test_whether_shards_are_fragments_is_found_without_looking_at_all_others():
    def shards(text):
        return UrlSequence(ShardRun(part.braces, "", "/") for part in parse_shards([text], "/"))

    many = shards("a-{000000000..099999999}.tar")
    assert not has_lance(many)
    assert has_lance(UrlSequence([*many.parts, *shards("a.lance?version=1&fragment={0..3}").parts]))
    assert has_lance(shards("{a.tar,b.lance?version=1&fragment=2}"))
    assert not has_lance(shards("a.lance/{0..3}.tar"))


def test_threads_open_more_data_sets_than_are_kept(tmp_path, monkeypatch):
    write(tmp_path / "a.lance", numbers(3))

    class Slow(dict):
        """Lets another thread in between looking for the first key and removing it."""

        def __iter__(self):
            first = next(super().__iter__())
            time.sleep(0.05)
            return iter([first])

    monkeypatch.setattr(wdspec.stores.lance, "_MOST_OPEN", 1)
    monkeypatch.setattr(wdspec.stores.lance._open, "value", Slow())
    for n in range(5):
        os.symlink(tmp_path / "a.lance", tmp_path / f"{n}.lance")
    with ThreadPoolExecutor(5) as threads:
        list(threads.map(lambda n: read(f"{tmp_path}/{n}.lance?version=1&fragment=0"), range(5)))
    assert len(wdspec.stores.lance._open.value) == 1


def test_nodes_that_read_must_have_the_same_version_of_the_library():
    assert "pylance" in libraries.IF_BOTH


@pytest.mark.parametrize("seeds", mostly_long([range(10), range(10, 260)], [range(10)]))
def test_damage_is_an_error_or_stays_in_the_values(seeds, tmp_path):
    """The files have few checksums, and some damage ends the library's process: no error, but never silent either."""
    left, ends = list(seeds), []
    while left:
        done = subprocess.run(
            [sys.executable, lancedata.__file__, tmp_path, *map(str, left)],
            capture_output=True, text=True, timeout=120 + len(left),
        )  # fmt: skip
        found = [json.loads(line) for line in done.stdout.splitlines()]
        for each in found:
            assert each["memory"] < 1000, each
            assert each["code"] is not None or each["count"] == each["right"], each
            assert each["code"] in (None, "D101", "D102", "D107", "D121", "D122", "D123"), each
        if len(found) < len(left):
            assert done.returncode in (-signal.SIGABRT, -signal.SIGSEGV), done.stderr[-2000:]
            ends.append(left[len(found)])
        left = left[len(found) + 1 :]
    assert len(ends) <= max(2, len(seeds) // 25), ends


def test_the_arguments_of_fsspec_that_errors_name_reach_the_library(monkeypatch):
    from fsspec.config import conf

    monkeypatch.setitem(conf, "gcs", {"token": "anon"})
    monkeypatch.setitem(conf, "abfs", {"account_name": "us"})
    assert _options_of("gs://bucket/a.lance", StoreSettings())["google_skip_signature"] == "true"
    assert _options_of("az://bucket/a.lance", StoreSettings())["azure_storage_account_name"] == "us"
