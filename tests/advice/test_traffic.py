"""Bytes and requests that `explain` and `price` state, compared with the counters of a real S3 server."""

import http.client
import json
import random
import shutil
import subprocess
import tarfile
import tempfile
import threading
from http.server import BaseHTTPRequestHandler

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from commandline import within
from servers.local import LocalServer, QuietHandler
from servers.stores import CONTAINER
from shardmaking import write_shard, write_source

import wdspec
from wdspec.advice.sizes import KnownSizes
from wdspec.base.amounts import size
from wdspec.spec.files import read_from_disk
from wdspec.stores.object_requests import LONGEST, SEGMENT, SIDES, WHOLE, count_requests

PRICES = """
currency: EUR
stores:
  "s3://": {bytes: 0.10 per GB, requests: 0.0004 per 1000}
  "http://": {bytes: 1/GB}
"""


class CountingProxy(LocalServer):
    """Passes requests on to a server, and counts those for objects, and the bytes of their bodies."""

    def __init__(self, port):
        self.requests = self.bytes = 0
        self._port, self._guard = port, threading.Lock()
        super().__init__(self._handler())

    def reset(self):
        self.requests = self.bytes = 0

    def _handler(proxy):  # noqa: N805
        class Handler(QuietHandler, BaseHTTPRequestHandler):
            def do_GET(self):
                server = http.client.HTTPConnection("127.0.0.1", proxy._port)
                server.request(self.command, self.path, headers=dict(self.headers))
                answer = server.getresponse()
                data = answer.read()
                if self.command == "GET" and "." in self.path:  # not a listing
                    with proxy._guard:
                        proxy.requests += 1
                        proxy.bytes += len(data)
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection", "server", "date"):
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
                server.close()

            do_HEAD = do_GET  # noqa: N815

        return Handler


def upload(s3, *paths):
    """Put files into the bucket."""
    import boto3

    client = boto3.client("s3", endpoint_url=s3.environ["AWS_ENDPOINT_URL"])
    for path in paths:
        client.put_object(Bucket=CONTAINER, Key=path.name, Body=path.read_bytes())
    client.close()


@pytest.fixture
def login(s3, monkeypatch):
    for name, value in s3.environ.items():
        if name != "AWS_ENDPOINT_URL":
            monkeypatch.setenv(name, value)
    for name in (
        "connect_timeout",
        "read_timeout",
    ):  # the library repeats what takes longer: by default, 5 and 15 s
        monkeypatch.setattr(f"s3fs.S3FileSystem.{name}", 250)


@pytest.fixture
def bucket(s3, login, tmp_path):
    """A folder with shards that are also in S3, a proxy to S3, and the keys of a spec to read them."""
    write_source(tmp_path, "a", shards=3, samples=40)
    write_source(tmp_path, "b", shards=2, samples=70)
    with CountingProxy(s3.port) as proxy:
        upload(s3, *tmp_path.glob("*.tar"))
        yield tmp_path, proxy, {"storage": {"endpoint": proxy.url}}


def write(folder, name="s", **keys):
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(keys))


def sources(**more):
    return [
        {"name": "a", "shards": f"s3://{CONTAINER}/a-{{000..002}}.tar", **more},
        {"name": "b", "shards": f"s3://{CONTAINER}/b-{{000..001}}.tar", **more},
    ]


def read(folder, epochs):
    with wdspec.loader(str(folder / "s.yaml"), num_workers=0) as loader:
        for _ in range(epochs):
            for _ in loader:
                pass


def traffic(folder, *arguments, command="explain"):
    return json.loads(within(command, "s.yaml", "--format", "json", *arguments, folder=folder)[0])["traffic"]


def keys_in(path):
    with tarfile.open(path) as tar:
        return sorted({member.name.partition(".")[0] for member in tar})


def check_run(folder, proxy, epochs, off=0.02):
    """Reads some epochs, and compares what the server counted with what `explain` and `simulate` say."""
    said, drawn = traffic(folder), traffic(folder, "--epochs", str(epochs), command="simulate")
    proxy.reset()
    read(folder, epochs)
    (store,) = drawn["from_stores"]
    assert store["bytes"] == pytest.approx(proxy.bytes, rel=off)
    assert store["requests"] == pytest.approx(proxy.requests, rel=off)
    assert said["sources"] == drawn["sources"]
    return said


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_pass_reads_the_bytes_and_makes_the_requests_that_explain_states(bucket, is_cached):
    folder, proxy, keys = bucket
    keys |= {"cache": "copies"} if is_cached else {}
    write(folder, dataset=sources(), batch=5, epoch="pass", stats="stats.json", **keys)
    within("stats", "s.yaml", "-o", "stats.json", "--jobs", "0", folder=folder)
    found = traffic(folder)
    assert found["sizes"] == "stats"
    size = sum(path.stat().st_size for path in folder.glob("*.tar"))
    proxy.reset()
    read(folder, 1)
    (store,) = found["from_stores"]
    assert store["store"] == f"s3://{CONTAINER}"
    assert (store["bytes"], store["requests"]) == (proxy.bytes, proxy.requests) == (size, 5)
    read(folder, 1)
    assert proxy.requests == (5 if is_cached else 10)
    (folder / "prices.yaml").write_text(PRICES)
    arguments = ["price", "s.yaml", "--prices", "prices.yaml", "--epochs", "2"]
    runs = json.loads(within(*arguments, "--format", "json", folder=folder)[0])["runs"]
    assert [run["epochs"] for run in runs] == [1, 2]
    (of_run,) = runs[1]["stores"]
    assert (of_run["bytes"], of_run["requests"]) == (proxy.bytes, proxy.requests)
    assert runs[1]["cost"] == pytest.approx(proxy.bytes * 0.10 / 1e9 + proxy.requests * 0.0004 / 1000)
    assert runs[1]["cached"] == (0.5 if is_cached else 0)
    assert (
        "50.0% of the bytes of 2 epochs are read from the cache" in within(*arguments, folder=folder)[0]
    ) == is_cached


def test_without_measurements_the_sizes_are_those_of_the_lock(bucket):
    folder, _, keys = bucket
    dataset = [{**each, "samples": 120 + 20 * number} for number, each in enumerate(sources())]
    write(folder, dataset=dataset, batch=5, epoch={"samples": 520}, mix={"by": "samples"}, **keys)
    within("lock", "s.yaml", folder=folder)
    found = traffic(folder)
    assert (found["sizes"], found["per"]) == ("lock", "epoch")
    assert found["bytes"] == pytest.approx(2 * sum(path.stat().st_size for path in folder.glob("*.tar")))
    assert [each["passes"] for each in found["sources"]] == [2, 2]


@pytest.mark.parametrize("size", [WHOLE - 1, WHOLE, WHOLE + 1, 3 * WHOLE + 5])
def test_large_objects_take_the_requests_that_are_counted(s3, login, tmp_path, size):
    """A shard of this size, which is mostly one file."""
    path = tmp_path / "a.tar"
    write_shard(path, [("0", {"bin": bytes(max(0, size - 3 * 10240))})])
    upload(s3, path)
    with CountingProxy(s3.port) as proxy:
        write(
            tmp_path,
            dataset=[{"name": "a", "shards": f"s3://{CONTAINER}/a.tar", "decode": "raw"}],
            batch=1,
            epoch="pass",
            stats="stats.json",
            storage={"endpoint": proxy.url},
        )
        within("stats", "s.yaml", "-o", "stats.json", "--jobs", "0", folder=tmp_path)
        found = traffic(tmp_path)
        proxy.reset()
        read(tmp_path, 1)
        (store,) = found["from_stores"]
        assert (store["bytes"], store["requests"]) == (proxy.bytes, proxy.requests)
        assert store["requests"] == count_requests(path.stat().st_size)


def test_requests_follow_from_the_size():
    assert [count_requests(size) for size in (0, 1, WHOLE, WHOLE + 1)] == [1, 1, 1, 2]
    assert count_requests(WHOLE + SIDES * SEGMENT) == 1 + SIDES
    assert count_requests(100 * LONGEST) > 100


def test_partners_and_tables_are_counted_too(s3, bucket, monkeypatch):
    folder, proxy, keys = bucket
    for path in sorted(folder.glob("a-*.tar")):
        write_shard(folder / f"p{path.name}", [(key, {"bin": bytes(700)}) for key in keys_in(path)])
    rows = [f"{key},{number}" for number, key in enumerate(keys_in(folder / "a-000.tar"))]
    (folder / "scores.csv").write_text("\n".join(["key,score", *rows]))
    upload(s3, *folder.glob("pa-*.tar"), folder / "scores.csv")
    monkeypatch.setenv("TMPDIR", str(folder / "first"))
    (folder / "first").mkdir()
    url = f"s3://{CONTAINER}"
    source = {
        **sources()[0],
        "join": {"shards": f"{url}/pa-{{000..002}}.tar"},
        "lookup": {"table": f"{url}/scores.csv", "fields": "score", "missing": "none"},
    }
    write(folder, dataset=[source], batch=5, epoch="pass", stats="stats.json", **keys)
    within("stats", "s.yaml", "-o", "stats.json", "--jobs", "0", folder=folder)
    assert [each["what"] for each in traffic(folder)["unknown"]] == ["join", "lookup"]
    within("lock", "s.yaml", folder=folder)
    found = traffic(folder)
    assert (found["sizes"], found["unknown"]) == ("stats and lock", [])
    assert [each["what"] for each in found["sources"]] == ["shards", "join", "lookup"]
    (folder / "then").mkdir()  # where this run keeps the table
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "then"))
    proxy.reset()
    read(folder, 2)
    drawn = [each for each in found["sources"] if each["what"] != "lookup"]
    (table,) = [each for each in found["sources"] if each["what"] == "lookup"]
    assert 2 * sum(each["read_bytes"] for each in drawn) + table["bytes"] == proxy.bytes
    assert 2 * sum(each["read_requests"] for each in drawn) + table["requests"] == proxy.requests
    (store,) = traffic(folder, "--epochs", "2", command="simulate")["from_stores"]
    assert (store["bytes"], store["requests"]) == (proxy.bytes, proxy.requests)


def test_sizes_in_a_lock_are_found_by_url(tmp_path):
    """A `lookup` or a `join` that was added before the others since the lock moves them all."""
    for name in ("a", "b", "c"):
        write_shard(tmp_path / f"{name}.tar", [("1", {name: bytes(ord(name) * 100)})])
        (tmp_path / f"{name}.csv").write_text(f"key,{name}\n1,{'7' * ord(name)}\n")
    joins = [{"shards": f"{name}.tar"} for name in "bc"]
    lookups = [{"table": f"{name}.csv", "fields": name} for name in "abc"]
    source = {"name": "s", "shards": "a.tar", "join": joins, "lookup": lookups}
    (tmp_path / "s.yaml").write_text(json.dumps({"dataset": [source]}))
    within("lock", "s.yaml", folder=tmp_path)
    source.update(join=joins[1:], lookup=[lookups[2], lookups[0]])
    (tmp_path / "s.yaml").write_text(json.dumps({"dataset": [source]}))
    spec = wdspec.load(str(tmp_path / "s.yaml"))
    known = KnownSizes.read(spec, read_from_disk)
    assert known is not None
    for name in "ac":
        assert known.of_tables(spec.sources[0])[f"{name}.csv"] == (tmp_path / f"{name}.csv").stat().st_size
    assert known.of_partners(spec.sources[0])["c.tar"] == (tmp_path / "c.tar").stat().st_size


SHUFFLED = {"pass": "pad", "reshuffle": True}


@pytest.mark.parametrize(
    ("slots", "epoch", "limit"), [(1, "pass", 100), (4, "pass", None), (3, SHUFFLED, None)]
)
def test_each_slot_of_a_pass_requests_the_shards_of_which_it_reads_a_part(bucket, slots, epoch, limit):
    folder, proxy, keys = bucket
    elastic = {"ranks": 1, "workers": slots}
    keys |= {"limit": limit} if limit else {}
    write(folder, dataset=sources(), batch=5, epoch=epoch, stats="stats.json", elastic=elastic, **keys)
    within("stats", "s.yaml", "-o", "stats.json", "--jobs", "0", folder=folder)
    found = check_run(folder, proxy, 1, off=0)
    assert (sum(each["read_requests"] for each in found["sources"]) > 5) == (slots > 1)
    assert [each["passes"] for each in found["sources"]] == (
        [pytest.approx(100 / 120), 0] if limit else [1, 1]
    )


def test_a_pass_by_cost_is_counted_per_epoch_and_left_out_samples_are_read(tmp_path):
    write_source(tmp_path, "a", shards=2, samples=10)
    source = {"name": "a", "shards": "a-{000..001}.tar", "where": "cls < 5"}
    batch = {"window": 4, "cost": "txt.length", "max_cost": 40}
    size = sum(path.stat().st_size for path in tmp_path.glob("*.tar"))
    for more in ({"batch": batch}, {"batch": 2}):
        write(tmp_path, dataset=[source], epoch="pass", **more)
        within("lock", "s.yaml", folder=tmp_path)
        found = traffic(tmp_path)
        assert (found["per"], found["bytes"], found["sources"][0]["passes"]) == ("epoch", size, 1)


@pytest.mark.parametrize("reshuffle", [False, True])
@pytest.mark.parametrize("is_cached", [False, True])
def test_a_long_pass_by_cost_is_counted_per_epoch(s3, bucket, is_cached, reshuffle):
    folder, _, keys = bucket
    write_source(folder, "long", shards=3, samples=600)
    upload(s3, *folder.glob("long-*.tar"))
    keys |= {"cache": "copies"} if is_cached else {}
    write(
        folder,
        dataset=[
            {
                "name": "a",
                "shards": f"s3://{CONTAINER}/long-{{000..002}}.tar",
                "companions": {"other": {"source": "noise"}},
            }
        ],
        companions={"noise": {"shards": f"s3://{CONTAINER}/a-{{000..002}}.tar"}},
        batch={"window": 100, "cost": "txt.length", "max_cost": 400},
        epoch={"pass": "pad", "reshuffle": True} if reshuffle else "pass",
        stats="stats.json",
        **keys,
    )
    within("stats", "s.yaml", "-o", "stats.json", "--jobs", "0", folder=folder)
    long, noise = (
        sum(path.stat().st_size for path in folder.glob(f"{name}-*.tar")) for name in ("long", "a")
    )
    shown = [traffic(folder)]
    if reshuffle:
        shown.append(traffic(folder, "--epochs", "1", command="simulate"))
    for found in shown:  # costs are counted first, which fills a cache
        assert [(each["source"], each["passes"]) for each in found["sources"]] == [("a", 1), ("noise", 15)]
        (store,) = found["from_stores"]
        times = 1 if is_cached else 15
        assert (store["bytes"], store["requests"]) == (long + times * noise, 3 + times * 3)


def test_slots_without_a_shard_each_read_parts_of_shards(bucket):
    """The slots open their next shards ahead, so there are many passes."""
    folder, proxy, keys = bucket
    source = {**sources()[1], "samples": 140, "shuffle": 0, "interleave": 1}
    elastic, epoch = {"ranks": 1, "workers": 4}, {"samples": 140 * 60}
    write(folder, dataset=[source], batch=70, epoch=epoch, elastic=elastic, **keys)
    within("lock", "s.yaml", folder=folder)
    (found,) = check_run(folder, proxy, 1)["sources"]
    assert (found["passes"], found["read_requests"]) == (60, 2 * 60 * 2)


@pytest.mark.parametrize("is_cached", [False, True])
def test_companions_are_counted_by_how_many_are_drawn(s3, bucket, is_cached):
    folder, proxy, keys = bucket
    write_source(folder, "noise", shards=20, samples=3)
    upload(s3, *folder.glob("noise-*.tar"))
    keys |= {"cache": "copies"} if is_cached else {}

    def write_spec(**options):
        write(
            folder,
            dataset=[{**sources()[0], "repeat": 2, "companions": {"other": {"source": "noise", **options}}}],
            companions={
                "noise": {"shards": f"s3://{CONTAINER}/noise-{{000..019}}.tar", "shuffle": 0, "interleave": 1}
            },
            batch=5,
            epoch="pass",
            stats="stats.json",
            **keys,
        )

    write_spec(count=2)
    within("stats", "s.yaml", "-o", "stats.json", "--jobs", "0", folder=folder)
    found = check_run(folder, proxy, 1)
    assert [(each["source"], each["passes"]) for each in found["sources"]] == [("a", 2), ("noise", 8)]
    assert found["from_stores"][0]["requests"] == (3 + 20 if is_cached else 2 * 3 + 8 * 20)
    write_spec(count=3, chance=0.5)
    assert [each["passes"] for each in traffic(folder)["sources"]] == [2, 6]


def test_what_only_reading_shows_is_named(s3, bucket):
    folder, _, keys = bucket
    (folder / "r.jsonl").write_text('{"__key__": "1", "url": "a"}\n')
    upload(s3, folder / "r.jsonl")
    records = {"name": "r", "shards": f"s3://{CONTAINER}/r.jsonl", "samples": 1}
    fetched = {**records, "fetch": {"jpg": {"url": "url", "root": f"s3://{CONTAINER}/"}}}
    by_name = {**records, "name": "n", "join": {"shards": f"s3://{CONTAINER}/a-000.tar", "on": "url"}}
    table = {**records, "name": "t", "shards": f"s3://{CONTAINER}/t.parquet", "format": "parquet"}
    (folder / "t.parquet").write_bytes(b"PAR1")
    upload(s3, folder / "t.parquet")
    write(folder, dataset=[fetched, by_name, table], batch=1, epoch={"samples": 3}, **keys)
    within("lock", "s.yaml", folder=folder)
    found = traffic(folder)
    unknown = [(each["source"], each["what"]) for each in found["unknown"]]
    assert unknown == [("r", "fetch"), ("n", "join"), ("t", "shards")]
    assert [each["requests"] for each in found["sources"]] == [1, 1]
    shown = " ".join(within("explain", "s.yaml", folder=folder)[0].split())
    assert "excluding the objects of r, the partners of n, t, of which this is unknown" in shown


def write_table(path, rows, size, group):
    rng = random.Random(path.name)
    columns = {name: [rng.randbytes(size) for _ in range(rows)] for name in ("first", "image", "last")}
    table = pa.table({**columns, "text": [f"{path.name} {at}" for at in range(rows)]})
    pq.write_table(table, path, row_group_size=group, compression="none")


@pytest.mark.parametrize("is_cached", [False, True])
@pytest.mark.parametrize(
    ("extensions", "size", "group"),
    [("text", 60_000, 10), ("image", 60_000, 10), ("first text", 20_000, 40), ("image", 400, 10)],
)
def test_of_a_table_the_columns_that_are_read_are_counted(s3, bucket, extensions, size, group, is_cached):
    folder, proxy, keys = bucket
    if is_cached and extensions != "image":
        return  # whole files
    keys |= {"cache": "copies"} if is_cached else {}
    for number in range(3):
        write_table(folder / f"t-{number}.parquet", 4 * group, size, group)
    upload(s3, *folder.glob("t-*.parquet"))
    source = {"name": "t", "shards": f"s3://{CONTAINER}/t-{{0..2}}.parquet", "extensions": extensions}
    write(folder, dataset=[source], batch=5, epoch="pass", stats="stats.json", **keys)
    within("lock", "s.yaml", folder=folder)
    if not is_cached:
        assert [each["what"] for each in traffic(folder)["unknown"]] == ["shards"]
    within("stats", "s.yaml", "-o", "stats.json", "--jobs", "0", folder=folder)
    read(folder, 1)  # this process knows the columns of the first shard from now on
    shutil.rmtree(folder / "copies", ignore_errors=True)
    found = check_run(folder, proxy, 2, off=0.05 if is_cached else 0)
    whole = sum(path.stat().st_size for path in folder.glob("t-*.parquet"))
    (store,) = found["from_stores"]
    if is_cached:
        assert (store["bytes"], store["requests"]) == (whole, 3)
    elif size > 1000:
        assert store["bytes"] < whole / 2


@pytest.mark.parametrize("is_cached", [False, True])
def test_the_log_of_nginx_has_the_bytes_and_requests_that_explain_states(nginx, tmp_path, is_cached):
    """Of tars, the columns of tables, and objects; without listings, as none is a glob."""
    place = f"{nginx.url}/cost-{is_cached}"
    root = nginx.root / f"cost-{is_cached}"
    root.mkdir()
    write_source(root, "a", shards=2, samples=60)
    for number in range(2):
        write_table(root / f"t-{number}.parquet", 8, 160_000, 4)
    rng = random.Random(4)
    rows = [{"__key__": str(at), "url": f"o{at}.bin"} for at in range(24)]  # a copy is made of each, at once
    for row in rows:
        (root / row["url"]).write_bytes(rng.randbytes(rng.randrange(100, 90_000)))
    (tmp_path / "r.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    write(
        tmp_path,
        dataset=[
            {"name": "a", "shards": f"{place}/a-{{000..001}}.tar"},
            {"name": "t", "shards": f"{place}/t-{{0..1}}.parquet", "extensions": "text"},
            {"name": "r", "shards": "r.jsonl", "fetch": {"bin": {"url": "url", "root": f"{place}/"}}},
        ],
        batch=8,
        epoch="pass",
        defaults={"missing": "none"},
        fields="txt text bin",
        stats="stats.json",
        **({"cache": "copies"} if is_cached else {}),
    )
    within("stats", "s.yaml", "-o", "stats.json", "--lengths", "--jobs", "0", folder=tmp_path)
    read(tmp_path, 1)  # this process knows the columns of the first table from now on
    shutil.rmtree(tmp_path / "copies", ignore_errors=True)
    said = traffic(tmp_path, "--epochs", "2", command="simulate")
    before = len(nginx.requests())
    read(tmp_path, 2)
    lines = [line for line in nginx.requests()[before:] if '"GET ' in line]
    sent = sum(int(line.split('" ')[1].split()[1]) for line in lines)
    store = next(each for each in said["from_stores"] if each["store"] == nginx.url)
    most = 0.05 if is_cached else 0.02
    assert said["unknown"] == []
    assert store["bytes"] == pytest.approx(sent, rel=most)
    assert store["requests"] == pytest.approx(len(lines), rel=most)


def test_what_a_table_needs_is_unknown_after_a_change_of_its_columns(s3, bucket):
    folder, _, keys = bucket
    write_table(folder / "t.parquet", 20, 100, 10)
    upload(s3, folder / "t.parquet")
    source = {"name": "t", "shards": f"s3://{CONTAINER}/t.parquet", "extensions": "text"}
    write(folder, dataset=[source], batch=5, epoch="pass", stats="stats.json", **keys)
    within("stats", "s.yaml", "-o", "stats.json", "--jobs", "0", folder=folder)
    assert traffic(folder)["unknown"] == []
    for change in ({"extensions": "image text"}, {"where": "text.length > 3", "extensions": "image"}):
        write(folder, dataset=[source | change], batch=5, epoch="pass", stats="stats.json", **keys)
        assert [each["what"] for each in traffic(folder)["unknown"]] == ["shards"]
        is_counted = "where" in change  # otherwise, the samples are as they were measured
        within("stats", "s.yaml", "-o", "stats.json", "--check", folder=folder, code=int(is_counted))
        within("stats", "s.yaml", "-o", "stats.json", "--jobs", "0", folder=folder)
        assert traffic(folder)["unknown"] == []


@pytest.mark.parametrize("kind", ["ranges", "whole", "cached"])
def test_objects_that_samples_name_are_counted_by_their_number_and_bytes(s3, bucket, kind):
    folder, proxy, keys = bucket
    keys |= {"cache": "copies"} if kind == "cached" else {}
    rng, count = random.Random(kind), 60 if kind == "cached" else 20  # of copies, the count is nearly exact
    sizes = {f"o{number}.bin": rng.randrange(100, 5000) for number in range(count * 3 // 2)}
    for name, length in sizes.items():
        (folder / name).write_bytes(rng.randbytes(length))
    upload(s3, *folder.glob("o*.bin"))
    names = iter(sizes)
    rows = [[next(names) for _ in range(number % 4)] for number in range(count)]
    lines = [
        {"__key__": str(at), "urls": urls, "starts": [3] * len(urls), "stops": [90] * len(urls)}
        for at, urls in enumerate(rows)
    ]
    (folder / "r.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    upload(s3, folder / "r.jsonl")
    entry = {"url": "urls", "root": f"s3://{CONTAINER}/"}
    entry |= {"bytes": ["starts", "stops"]} if kind == "ranges" else {}
    source = {
        "name": "r",
        "shards": f"s3://{CONTAINER}/r.jsonl",
        "fetch": {"bin": entry},
        "where": 'fields["__key__"] != "7"',
    }
    write(folder, dataset=[source], batch=5, epoch="pass", stats="stats.json", **keys)
    within("stats", "s.yaml", "-o", "stats.json", "--jobs", "0", folder=folder)
    if kind != "ranges":
        assert [each["what"] for each in traffic(folder)["unknown"]] == ["fetch"]
        within("stats", "s.yaml", "-o", "stats.json", "--lengths", "--jobs", "0", folder=folder)
    named = [name for at, urls in enumerate(rows) for name in urls if at != 7]
    shutil.rmtree(folder / "copies", ignore_errors=True)  # those of measuring
    proxy.reset()
    found, (store,) = traffic(folder), traffic(folder, "--epochs", "2", command="simulate")["from_stores"]
    assert not proxy.requests
    read(folder, 2)
    times, most = (
        (1, 0.05) if kind == "cached" else (2, 0)
    )  # while many copies are made, objects are read without one
    assert [store["bytes"], store["requests"]] == pytest.approx([proxy.bytes, proxy.requests], rel=most)
    assert store["requests"] == times * (1 + len(named))
    (objects,) = [each for each in found["sources"] if each["what"] == "fetch"]
    assert objects["requests"] == len(named)
    assert objects["bytes"] == sum(87 if kind == "ranges" else sizes[name] for name in named)


def test_simulate_and_diff_show_what_is_read(bucket):
    folder, _, keys = bucket
    write(folder, dataset=sources(), batch=5, epoch="pass", stats="stats.json", **keys)
    within("stats", "s.yaml", "-o", "stats.json", "--jobs", "0", folder=folder)
    write(folder, "t", dataset=sources()[1:], batch=5, epoch="pass", stats="stats.json", **keys)
    write(folder, "u", dataset=sources()[1:], batch=7, epoch="pass", stats="stats.json", **keys)
    a, b = (sum(path.stat().st_size for path in folder.glob(f"{name}-*.tar")) for name in "ab")
    shown = " ".join(within("simulate", "s.yaml", "--epochs", "3", folder=folder)[0].split())
    assert f"{size(3 * (a + b))} of s3://{CONTAINER} in 15 requests, by the sizes of stats" in shown
    found = json.loads(within("diff", "s.yaml", "t.yaml", "--format", "json", folder=folder)[0])["traffic"]
    assert [found[side]["from_stores"][0]["bytes"] for side in ("old", "new")] == [a + b, b]
    assert found["change"] == {"bytes": -a, "from_stores": -a, "requests": -3, "cached": 0}
    shown = within("diff", "s.yaml", "t.yaml", folder=folder)[0]
    (row,) = [line for line in shown.splitlines() if line.startswith(f"s3://{CONTAINER}")]
    assert f"{size(a + b)} → {size(b)}" in row
    assert f"−{size(a)} (−{round(100 * a / (a + b))}%)" in row
    assert "5 → 2" in row
    assert "read of stores" not in within("diff", "t.yaml", "u.yaml", folder=folder)[0]
    (folder / "u.yaml").write_text((folder / "t.yaml").read_text().replace("stats: stats.json", ""))
    shown = within("diff", "t.yaml", "u.yaml", folder=folder)[0]
    assert "the sizes of the shards after are not known" in shown
    assert (
        json.loads(within("diff", "t.yaml", "u.yaml", "--format", "json", folder=folder)[0])["traffic"]["new"]
        is None
    )


def test_a_revision_has_the_sizes_of_its_own_lock(bucket):
    folder, _, keys = bucket

    def git(*arguments):
        subprocess.run(
            ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=b", *arguments], check=True
        )

    write(folder, dataset=[{**sources()[1], "samples": 140}], batch=5, epoch={"samples": 140}, **keys)
    within("lock", "s.yaml", folder=folder)
    git("init", "-q", ".")
    git("add", "s.yaml", "s.lock.json")
    git("commit", "-qm", "first")
    write(folder, dataset=[{**sources()[0], "samples": 120}], batch=5, epoch={"samples": 120}, **keys)
    within("lock", "s.yaml", folder=folder)
    arguments = ("diff", "HEAD:s.yaml", "s.yaml", "--format", "json")
    found = json.loads(within(*arguments, folder=folder)[0])["traffic"]
    sizes = [sum(path.stat().st_size for path in folder.glob(f"{name}-*.tar")) for name in "ba"]
    assert [found[side]["bytes"] for side in ("old", "new")] == sizes


def test_a_cache_without_room_counts_as_none(bucket):
    folder, _, keys = bucket
    write(
        folder,
        dataset=sources(),
        batch=5,
        epoch="pass",
        stats="stats.json",
        cache={"dir": "copies", "size": 1000},
        **keys,
    )
    within("stats", "s.yaml", "-o", "stats.json", "--jobs", "0", folder=folder)
    assert [each["is_cached"] for each in traffic(folder)["sources"]] == [False, False]
    shown = within("explain", "s.yaml", folder=folder)[0]
    assert f"of s3://{CONTAINER} in 5 requests per epoch, by the sizes of stats\n" in shown


def test_local_files_cost_nothing_and_unknown_sizes_are_named(tmp_path):
    write_source(tmp_path, "a", shards=2, samples=10)
    write(tmp_path, dataset=[{"name": "a", "shards": "a-{000..001}.tar"}], batch=5, epoch="pass")
    (tmp_path / "prices.yaml").write_text(PRICES)
    assert traffic(tmp_path) is None
    arguments = ["price", "s.yaml", "--prices", "prices.yaml"]
    assert (
        "the sizes of the shards are not known; run `wdspec lock SPEC`"
        in within(*arguments, folder=tmp_path, code=1)[1]
    )
    within("lock", "s.yaml", folder=tmp_path)
    found = traffic(tmp_path)
    assert found["from_stores"] == [{"store": "local files", "bytes": found["bytes"], "requests": 0}]
    shown = within(*arguments, folder=tmp_path)[0]
    assert shown.splitlines()[0].split() == ["of", "store", "bytes", "requests", "EUR"]
    assert shown.splitlines()[1].split()[-1] == "0.0000"
    write_source(tmp_path, "a", shards=3, samples=10)
    write(tmp_path, dataset=[{"name": "a", "shards": "a-{000..002}.tar"}], batch=5, epoch="pass")
    shown = within(*arguments, folder=tmp_path, code=1)[0]
    assert "warning: what is read of a is unknown, and counts as 0" in shown


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "stores: {s3: {bytes: 0.1 per GBit}}",
            "1:22: E202 `bytes` takes a price per unit, but this is `GBit`",
        ),
        (
            "stores: {s3: {bytes: 0.1}}",
            "1:22: E202 `bytes` takes a price per unit, but this is the number 0.1",
        ),
        (
            "stores: {s3: {requests: 1 per GB}}",
            "1:25: E202 `requests` takes a price per unit, but this is `GB`",
        ),
        ("stores: {s3: {egress: 1 per GB}}", "1:15: E201 unknown key `egress` in a price list"),
        ("store: {s3: {}}", "1:1: E201 unknown key `store` in a price list"),
        ("currency: USD", "1:1: E206 the price list has no `stores`"),
        ("[1]", "1:1: E202 a price list is a map"),
        ("stores: {s3: 1}", "1:14: E202 expected a map with the prices of `s3`"),
        ("a: [", "E005"),
    ],
)
def test_wrong_price_lists_are_errors_with_their_place(tmp_path, text, problem):
    write_source(tmp_path, "a", shards=1, samples=4)
    write(tmp_path, dataset=[{"name": "a", "shards": "a-000.tar"}])
    (tmp_path / "prices.yaml").write_text(text)
    said = within("price", "s.yaml", "--prices", "prices.yaml", folder=tmp_path, code=1)[1]
    assert f"prices.yaml:{problem}" in said or (problem == "E005" and "E005" in said)


def test_a_store_has_no_login():
    from wdspec.advice.traffic import store_of_location

    locations = (
        "https://me:PASS@host:1/a.tar",
        "s3://b/a.tar",
        "/a.tar",
        "file:a.tar",
        "pipe:cat x",
        "ais+gs://b/x",
    )
    stores = ["https://host:1", "s3://b", "local files", "local files", "pipe:", "ais+gs://b"]
    assert [store_of_location(each) for each in locations] == stores


def test_without_the_number_of_samples_the_remedy_is_stats(bucket):
    folder, _, keys = bucket
    keys |= {"dataset": sources(), "batch": 5, "epoch": {"samples": 260}}
    write(folder, **keys)
    (folder / "prices.yaml").write_text(PRICES)
    within("lock", "s.yaml", folder=folder)
    price, remedy = (
        ["price", "s.yaml", "--prices", "prices.yaml"],
        "run `wdspec stats SPEC -o stats.json`, and",
    )
    for command in ("explain", "simulate"):
        assert f"unknown of a, b; {remedy}" in " ".join(within(command, "s.yaml", folder=folder)[0].split())
    assert f"unknown, and counts as 0; {remedy}" in within(*price, folder=folder, code=1)[0]
    within("stats", "s.yaml", "-o", "stats.json", "--jobs", "0", folder=folder)
    write(folder, **keys, stats="stats.json")
    for command in ("explain", "simulate"):
        assert f"of s3://{CONTAINER} in 5 requests" in within(command, "s.yaml", folder=folder)[0]
    within(*price, folder=folder)


def test_several_epochs_of_an_endless_spec_have_no_price(tmp_path):
    write_source(tmp_path, "a", shards=2, samples=10)
    write(tmp_path, dataset=[{"name": "a", "shards": "a-{000..001}.tar"}], batch=5)
    (tmp_path / "prices.yaml").write_text(PRICES)
    within("lock", "s.yaml", folder=tmp_path)
    arguments = ["price", "s.yaml", "--prices", "prices.yaml", "--epochs", "3"]
    assert (
        "the spec is endless (no `epoch`), so --epochs has no meaning"
        in within(*arguments, folder=tmp_path, code=2)[1]
    )


def test_the_longest_start_of_a_url_names_the_price():
    from wdspec.cli.price import Prices, StorePrice

    prices = Prices("", {"s3://": StorePrice(), "s3://near": StorePrice(1)})
    assert prices.of("s3://near") == StorePrice(1)
    assert prices.of("s3://far") == StorePrice()
    assert prices.of("gs://near") is None
