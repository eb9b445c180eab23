"""Damaged copies: wdspec never makes one, and fetches the shard again, once, if it finds one."""

import gzip
import hashlib
import io
import json
import os
import random
import re
import tarfile
import warnings

import pytest
from cachestores import Caching, Store
from servers.counting import CountingServer
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import FieldError, ShardError

SAMPLES = [(f"{i:04d}", {"txt": random.Random(i).randbytes(1500).hex().encode()}) for i in range(200)]


def lines(count):
    return b"".join(b'{"__key__": "%d", "txt": "%s"}\n' % (i, b"x" * 300) for i in range(count))


@pytest.fixture
def served(tmp_path):
    """A folder that is served, with a shard in each form, and where its copies are."""
    folder = tmp_path / "served"
    write_shard(folder / "a.tar", SAMPLES)
    whole = (folder / "a.tar").read_bytes()
    (folder / "a.tar.gz").write_bytes(gzip.compress(whole, 1))
    (folder / "a.jsonl").write_bytes(lines(500))
    with CountingServer(folder) as server:
        server.copies = tmp_path / "copies"
        yield server


def spec(server, name, **more):
    return {
        "cache": {"dir": str(server.copies)},
        "dataset": [{"name": "a", "shards": f"{server.url}/{name}", "decode": "raw", "shuffle": 0}],
        "epoch": "pass",
        **more,
    }


def keys(spec):
    return [sample["__key__"] for sample in wdspec.compile(spec)]


def copy_of(server, name):
    return server.copies / "http" / server.url.removeprefix("http://") / name


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    damage_silently(path, data)


def damage_silently(path, data):
    """Replace the bytes as a disk does that loses them: the time of the file does not change."""
    before = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("name", ["a.tar.gz", "a.jsonl"])
@pytest.mark.parametrize("announced", [True, False])
def test_incomplete_data_never_becomes_a_copy(tmp_path, served, name, announced):
    data = (served.folder / name).read_bytes()
    url = f"gs://bucket/{name}"
    for bad in (data[: len(data) // 2 + 3], data[:-5]):
        caching = Caching(tmp_path / "c", format="auto")
        assert caching.read(url, Store({url: bad}, seekable=announced)) == bad
        assert caching.files == []
    assert caching.read(url, Store({url: data}, seekable=announced)) == data


@pytest.mark.parametrize("part", range(1, 20))
def test_a_flipped_bit_in_compressed_data_never_becomes_a_copy(tmp_path, served, part):
    data = bytearray((served.folder / "a.tar.gz").read_bytes())
    data[len(data) * part // 20] ^= 1 << part % 8
    url, caching = "gs://bucket/a.tar.gz", Caching(tmp_path / "c")
    assert caching.read(url, Store({url: bytes(data)})) == bytes(data)
    assert caching.files == []


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("damage", ["end", "cut", "flipped"])
@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.jsonl"])
def test_a_shard_that_is_damaged_in_its_store_gives_the_samples_before_the_damage(
    served, name, damage, workers
):
    path = served.folder / name
    data = path.read_bytes()
    if damage == "flipped":
        places = {"a.tar": 150 * 3584 + 3, "a.jsonl": data.find(b"{", 50_000)}  # in a header, and in a line
        flip(path, places.get(name, len(data) * 2 // 3))
    else:
        ends = {"cut": len(data) * 2 // 3, "end": 200 * 3584 if name == "a.tar" else -6}
        path.write_bytes(data[: ends[damage]])

    def read(**more):
        plain = {**spec(served, name), "errors": {"skip": True, "max_rate": 1}, **more}
        with wdspec.loader(plain, num_workers=workers) as loader:
            found = [sample["__key__"] for _ in range(2) for sample in loader]
            return sorted(found), loader.stats().sources["a"].skipped

    expected, skipped = read(cache=False)
    assert len(expected) > 100
    assert skipped
    assert read() == (expected, skipped)
    if damage != "flipped" or name == "a.tar.gz":  # found as it is fetched
        assert not copy_of(served, name).exists()


@pytest.mark.parametrize("damage", ["start", "middle", "end", "cut", "empty"])
@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.jsonl"])
def test_a_damaged_copy_is_skipped_and_made_again(served, name, damage, caplog):
    expected = keys(spec(served, name))
    copy = copy_of(served, name)
    whole = copy.read_bytes()
    damaged = bytearray(whole)
    at = {"start": 20, "middle": len(whole) // 2 // 3584 * 3584 + 100, "end": len(whole) - 6}.get(damage)
    if name == "a.jsonl" and at is not None:
        at = whole.rindex(b"{") if damage == "end" else whole.index(b"{", at - 20)
    if at is not None:
        damaged[at] ^= 0xFF
    if damage == "cut":
        del damaged[len(whole) // 3 :]
    if damage == "empty":
        damaged.clear()
    damage_silently(copy, damaged)
    with caplog.at_level("WARNING"):
        assert keys(spec(served, name)) == expected
    assert str(copy) in caplog.text
    assert "is read from the store again" in caplog.text
    caplog.clear()
    assert keys(spec(served, name)) == expected
    assert copy.read_bytes() == whole
    assert "damaged" not in caplog.text


def test_a_damaged_file_of_the_user_is_skipped_and_kept(served, caplog):
    expected = keys(spec(served, "a.tar", cache=False))
    served.copies.mkdir()
    (served.copies / "a.tar").write_bytes((served.folder / "a.tar").read_bytes()[:100_000])
    for _ in range(2):
        assert keys(spec(served, "a.tar")) == expected
    assert (served.copies / "a.tar").stat().st_size == 100_000
    assert str(served.copies / "a.tar") in caplog.text


def test_a_shard_damaged_in_its_store_is_fetched_again_only_once(tmp_path, served):
    broken = io.BytesIO()
    with tarfile.open(fileobj=broken, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in ("a.txt", "b.txt", "a.txt", "c.txt"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    (served.folder / "twice.tar").write_bytes(broken.getvalue())
    skipping = spec(served, "twice.tar", errors={"skip": True})
    expected = keys({**skipping, "cache": False})
    assert keys(skipping) == expected
    before = sum(served.fetched.values())
    for _ in range(3):
        assert keys(skipping) == expected
    assert sum(served.fetched.values()) - before <= 2
    with pytest.raises(ShardError, match=rf"the key has occurred before.*copy {served.copies}"):
        keys(spec(served, "twice.tar"))


def test_an_error_names_the_copy_if_the_store_is_gone(served):
    expected = keys(spec(served, "a.tar"))
    copy = copy_of(served, "a.tar")
    flip(copy, 3584 * 100 + 150)
    (served.folder / "a.tar").unlink()
    with pytest.raises(ShardError, match=rf"store cannot be read in its place: no such object.*copy {copy}"):
        keys(spec(served, "a.tar"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert keys(spec(served, "a.tar", errors={"skip": True})) == expected[:99]


def decoded(served, **more):
    source = {
        "name": "a",
        "shards": f"{served.url}/fields.tar",
        "decode": {"json": "json"},
        "shuffle": 5,
        **more,
    }
    spec = {"cache": {"dir": str(served.copies)}, "dataset": [source], "epoch": "pass"}
    return {sample["__key__"]: sample["json"] for sample in wdspec.compile(spec)}


@pytest.fixture
def fields(served):
    """A shard of JSON whose copy has a field that is none, which only decoding tells."""
    write_shard(served.folder / "fields.tar", [(f"{n:03d}", {"json": b'{"n": %d}' % n}) for n in range(50)])
    expected = decoded(served)
    flip(copy_of(served, "fields.tar"), 1024 * 20 + 512)
    return expected


@pytest.mark.parametrize(
    "read",
    [
        {},
        {"shuffle": 0},
        {"shuffle": 0, "interleave": 2},
        {"where": "json.n >= 0"},
        {"subset": {"part": "100%", "of": "json.n"}},
    ],
)
def test_an_undecodable_field_from_a_copy_is_fetched_again(served, fields, caplog, read):
    copy = copy_of(served, "fields.tar")
    with caplog.at_level("WARNING"):
        assert decoded(served, **read) == fields
    assert re.search(rf"a sample of a copy cannot be decoded.*copy {copy}, key 020", caplog.text)
    assert not copy.exists()
    assert decoded(served) == fields


def test_an_undecodable_field_of_a_joined_copy_is_fetched_again(served, fields, caplog):
    texts = [(f"{n:03d}", {"txt": b"%d" % n}) for n in range(50)]
    write_shard(served.folder / "texts.tar", texts)
    join = {
        "shards": f"{served.url}/texts.tar",
        "fields": "txt",
        "base": f"{served.url}/",
        "missing": "error",
    }
    del join["base"]
    with caplog.at_level("WARNING"):
        assert decoded(served, join=[join]) == fields
    assert "a sample of a copy cannot be decoded" in caplog.text
    assert not copy_of(served, "fields.tar").exists()


@pytest.mark.parametrize("epoch", ["pass", {"batches": 200}])
@pytest.mark.parametrize(
    "batch",
    [
        {"cost": "json.n + 1", "max_cost": 1, "window": 50},
        {"cost": "2 * json.n + 1", "max_cost": 400, "window": 10, "limits": {"json.n": 900}},
        {"size": 1, "group_by": "json.n", "group_wait": 10},
    ],
)
def test_an_unmeasurable_field_from_a_copy_is_fetched_again(served, fields, batch, epoch):
    copy = copy_of(served, "fields.tar")
    more = {"overlong": "alone"} if "cost" in batch else {}
    spec = {
        "cache": {"dir": str(served.copies)},
        "dataset": [{"name": "a", "shards": f"{served.url}/fields.tar", "shuffle": 0}],
        "batch": {**batch, **more, "ragged": "list"},
        "elastic": {"ranks": 1, "workers": 1},
        "epoch": epoch,
    }
    with wdspec.loader(spec, num_workers=0) as loader:
        found = [key for made in loader for key in made["__key__"]]
    assert set(found) == set(fields)
    if epoch == "pass" and copy.exists():  # made again
        assert copy.read_bytes() == (served.folder / "fields.tar").read_bytes()


def test_a_sample_with_too_high_a_cost_keeps_its_copy(served, fields):
    (served.folder / "fields.tar").write_bytes(copy_of(served, "fields.tar").read_bytes())
    before = sum(served.fetched.values())
    for _ in range(3):
        spec = {
            "cache": {"dir": str(served.copies)},
            "dataset": [{"name": "a", "shards": f"{served.url}/fields.tar", "errors": {"skip": True}}],
            "batch": {"cost": "json.n + 1", "max_cost": 200},
            "elastic": {"ranks": 1, "workers": 1},
            "epoch": "pass",
        }
        with wdspec.loader(spec, num_workers=0) as loader:
            assert sum(made["__size__"] for made in loader) == 49
    assert copy_of(served, "fields.tar").exists()
    assert sum(served.fetched.values()) - before <= 2


@pytest.mark.parametrize("choice", [{}, {"where": "json.n >= 0"}])
def test_a_field_damaged_in_its_store_costs_one_more_read(served, fields, choice):
    (served.folder / "fields.tar").write_bytes(copy_of(served, "fields.tar").read_bytes())
    skipping = {"errors": {"skip": True}, **choice}
    before = sum(served.fetched.values())
    for _ in range(3):
        assert len(decoded(served, **skipping)) == 49
    assert sum(served.fetched.values()) - before <= 2
    with pytest.raises(FieldError, match=rf"copy {copy_of(served, 'fields.tar')}, key 020, field json"):
        decoded(served)


def test_an_undecodable_field_is_reported_if_the_store_is_gone(served, fields):
    (served.folder / "fields.tar").unlink()
    with pytest.raises(
        FieldError, match=r"copy .*, key 020.*store cannot be read in its place: no such object"
    ):
        decoded(served)


def test_a_copy_is_never_continued_with_a_changed_object(served):
    keys(spec(served, "a.tar"))
    flip(copy_of(served, "a.tar"), 3584 * 100 + 150)
    other = [(key, {"txt": fields["txt"][::-1] + b"!"}) for key, fields in SAMPLES]
    write_shard(served.folder / "a.tar", other)
    with pytest.raises(
        ShardError,
        match=r"the store has other bytes than the copy .* or the object has changed; the copy is deleted; resume",
    ):
        keys(spec(served, "a.tar"))
    assert not copy_of(served, "a.tar").exists()
    assert len(keys(spec(served, "a.tar"))) == len(SAMPLES)  # a restart fetches it again


def of_objects(server, **entry):
    """A spec of rows whose objects are cached."""
    return {
        "cache": {"dir": str(server.copies)},
        "dataset": [
            {
                "name": "a",
                "shards": str(server.folder / "rows.jsonl"),
                "shuffle": 0,
                "fetch": {"meta.json": {"url": "url", "root": f"{server.url}/o/", **entry}},
            }
        ],
        "epoch": "pass",
    }


@pytest.fixture
def objects(served):
    """Five objects, of which the copy of the fourth is damaged: what their samples are."""
    (served.folder / "o").mkdir()
    rows = []
    for n in range(5):
        data = b'{"n": %d}' % n
        (served.folder / f"o/{n}.json").write_bytes(data)
        row = {"__key__": str(n), "url": f"{n}.json", "hash": hashlib.sha256(data).hexdigest()}
        rows.append(row | {"urls": [f"{n}.json", "0.json", None]})
    (served.folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    values(of_objects(served))
    damage_silently(copy_of(served, "o/3.json"), b'{"n"? 3}')
    return {str(n): {"n": n} for n in range(5)}


def values(spec):
    return {sample["__key__"]: sample["meta.json"] for sample in wdspec.compile(spec)}


@pytest.mark.parametrize("entry", [{}, {"sha256": "hash"}])
def test_a_damaged_copy_of_an_object_is_fetched_again(served, objects, entry, caplog):
    assert values(of_objects(served, **entry)) == objects
    copy = copy_of(served, "o/3.json")
    assert re.search(rf"copy .*is damaged.*{re.escape(str(copy))}", caplog.text)
    assert not copy.exists()
    assert values(of_objects(served, **entry)) == objects


def test_a_damaged_copy_of_an_object_in_a_list_is_fetched_again(served, objects):
    spec = of_objects(served, url="urls", missing="none")
    assert values(spec) == {key: [value, {"n": 0}, None] for key, value in objects.items()}


@pytest.mark.parametrize("entry", [{}, {"sha256": "hash"}])
def test_an_object_damaged_in_its_store_costs_one_more_read(served, objects, entry):
    (served.folder / "o/3.json").write_bytes(b'{"n"? 3}')
    before = sum(served.fetched.values())
    for _ in range(3):
        found = values({**of_objects(served, **entry), "errors": {"skip": True}})
        assert found == {key: value for key, value in objects.items() if key != "3"}
    assert sum(served.fetched.values()) - before <= 1
    assert copy_of(served, "o/3.json").exists()


def test_a_damaged_copy_of_a_table_is_fetched_again(served, objects):
    (served.folder / "table.jsonl").write_text("".join(f'{{"key": "{n}", "score": {n}}}\n' for n in range(5)))
    spec = {
        "cache": {"dir": str(served.copies)},
        "dataset": [
            {
                "name": "a",
                "shards": str(served.folder / "rows.jsonl"),
                "lookup": {"table": f"{served.url}/table.jsonl", "key": "key", "fields": ["score"]},
            }
        ],
        "epoch": "pass",
    }

    def scores():
        return {sample["__key__"]: sample["score"] for sample in wdspec.compile(spec)}

    found = scores()
    assert found == {str(n): n for n in range(5)}
    copy = copy_of(served, "table.jsonl")
    damage_silently(copy, copy.read_bytes().replace(b'"score": 3', b'"score"? 3'))
    spec["dataset"][0]["lookup"]["fields"] = ["score", "key"]  # another table is made of it
    assert scores() == found
    assert not copy.exists()
