"""Bytes and requests that `explain` and `price` state, compared with the counters of a real S3 server."""

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler

import pytest
import yaml
from commandline import within
from servers.local import LocalServer, QuietHandler
from servers.stores import CONTAINER
from shardmaking import write_shard, write_source

import wdspec
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
                if self.command == "GET" and ".tar" in self.path:
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


def upload(s3, path):
    """Put a file into the bucket."""
    import boto3

    client = boto3.client("s3", endpoint_url=s3.environ["AWS_ENDPOINT_URL"])
    client.put_object(Bucket=CONTAINER, Key=path.name, Body=path.read_bytes())
    client.close()


@pytest.fixture
def login(s3, monkeypatch):
    for name, value in s3.environ.items():
        if name != "AWS_ENDPOINT_URL":
            monkeypatch.setenv(name, value)


@pytest.fixture
def bucket(s3, login, tmp_path):
    """A folder with shards that are also in S3, a proxy to S3, and the keys of a spec to read them."""
    write_source(tmp_path, "a", shards=3, samples=40)
    write_source(tmp_path, "b", shards=2, samples=70)
    with CountingProxy(s3.port) as proxy:
        for path in tmp_path.glob("*.tar"):
            upload(s3, path)
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


def traffic(folder):
    return json.loads(within("explain", "s.yaml", "--format", "json", folder=folder)[0])["traffic"]


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


def test_the_longest_start_of_a_url_names_the_price():
    from wdspec.cli.price import Prices, StorePrice

    prices = Prices("", {"s3://": StorePrice(), "s3://near": StorePrice(1)})
    assert prices.of("s3://near") == StorePrice(1)
    assert prices.of("s3://far") == StorePrice()
    assert prices.of("gs://near") is None
