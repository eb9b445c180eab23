"""wdspec compared with the clients of object stores: megabytes per second from distant stores, in one process.

    python benchmarks/object_stores.py                 # S3; two minutes
    python benchmarks/object_stores.py --store gs az   # the emulators that are installed
    python benchmarks/object_stores.py --quick         # checks that it runs, says nothing about speed

The stores are those of the tests (moto, gcp-storage-emulator, azurite), each through a proxy in a separate process
that waits 20 ms before each answer. All contenders read the same objects whole and in order, in turns; the bytes are
compared.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from servers import stores

LATENCY = 0.020
SMALL, LARGE = 5, 100
"""Megabytes of an object."""


def _proxy(upstream: str, latency: float, rate: float | None, pipe: Connection) -> None:
    from servers.fault_proxy import FaultProxy

    with FaultProxy(upstream, latency, rate) as proxy:
        pipe.send(proxy.url)
        pipe.recv()


def ours(urls: list[str]) -> Iterator[bytes]:
    """As the engine reads: each shard opened ahead while the one before is read."""
    from wdspec.storage.ahead import Ahead
    from wdspec.storage.environment import Environment
    from wdspec.storage.storage import Storage
    from wdspec.urls.urls import ShardUrl

    ahead = Ahead(Storage.of(Environment.read()))
    shards = [ShardUrl(url, "/") for url in urls]
    for number, shard in enumerate(shards):
        with ahead.open(shard) as file:
            ahead.expect(shards[number + 1 : number + 2])
            parts = []
            while piece := file.read(1 << 20):
                parts.append(piece)
        yield b"".join(parts)


def boto(urls: list[str]) -> Iterator[bytes]:
    import boto3

    client = boto3.client("s3")
    for url in urls:
        bucket, _, key = url.removeprefix("s3://").partition("/")
        yield client.get_object(Bucket=bucket, Key=key)["Body"].read()


def torch_connector(urls: list[str]) -> Iterator[bytes]:
    from s3torchconnector import S3IterableDataset

    for each in S3IterableDataset.from_objects(
        urls, region="us-east-1", endpoint=os.environ["AWS_ENDPOINT_URL"]
    ):
        yield each.read()


def object_store(urls: list[str]) -> Iterator[bytes]:
    import obstore

    options = {
        "endpoint": os.environ["AWS_ENDPOINT_URL"],
        "allow_http": True,
        "virtual_hosted_style_request": False,
    }
    store = obstore.store.S3Store(
        stores.CONTAINER,
        config=options,
        region="us-east-1",
        access_key_id="testing",
        secret_access_key="testing",
    )
    for url in urls:
        yield bytes(obstore.get(store, url.removeprefix(f"s3://{stores.CONTAINER}/")).bytes())


def file_system(urls: list[str]) -> Iterator[bytes]:
    """fsspec's own `cat_file`, which asks for each object whole."""
    import fsspec

    for url in urls:
        system, path = fsspec.core.url_to_fs(url)
        yield system.cat_file(path)


SIDES: dict[str, dict[str, Callable[[list[str]], Iterator[bytes]]]] = {
    "s3": {
        "wdspec": ours,
        "boto3": boto,
        "s3fs": file_system,
        "s3torchconnector": torch_connector,
        "obstore": object_store,
    },
    "gs": {"wdspec": ours, "gcsfs": file_system},
    "az": {"wdspec": ours, "adlfs": file_system},
}
STARTS = {
    "s3": (stores.start_s3, stores.make_bucket),
    "gs": (stores.start_gcs, None),
    "az": (stores.start_azure, stores.make_container),
}


def timed(read: Callable[[list[str]], Iterator[bytes]], urls: list[str], digests: list[str]) -> float:
    """Seconds to read all."""
    begin = time.perf_counter()
    data = list(read(urls))
    seconds = time.perf_counter() - begin
    assert [hashlib.md5(each).hexdigest() for each in data] == digests
    return seconds


def measure(kind: str, turns: int, cases: list[tuple[int, int]], rate: float | None) -> None:
    start, prepare = STARTS[kind]
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as place:
        store = start(Path(place))
        # gcsfs would ask an emulator by gRPC first, for a minute each time.
        os.environ |= {**store.environ, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
        try:
            if prepare:
                prepare(store)
            import fsspec

            if store.settings:
                fsspec.config.conf["gcs"] = dict(store.settings)
            for size, count in cases:
                names = [f"{size}-{number:03d}.bin" for number in range(count)]
                data = os.urandom(size * 1_000_000)
                bodies = [data[number:] + data[:number] for number in range(count)]
                digests = [hashlib.md5(body).hexdigest() for body in bodies]
                for name, body in zip(names, bodies, strict=True):
                    stores.put(store, name, body)
                run(kind, store, [store.root + name for name in names], digests, size, turns, rate)
        finally:
            store.stop()


def run(
    kind: str,
    store: stores.Store,
    urls: list[str],
    digests: list[str],
    size: int,
    turns: int,
    rate: float | None,
) -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    proxy = context.Process(
        target=_proxy, args=(f"http://127.0.0.1:{store.port}", LATENCY, rate, there), daemon=True
    )
    proxy.start()
    before = dict(os.environ)
    try:
        far = here.recv()
        for name, value in store.environ.items():
            os.environ[name] = value.replace(f"http://127.0.0.1:{store.port}", far)
        forget_clients()
        seconds: dict[str, list[float]] = {}
        for turn in range(turns + 1):
            sides = list(SIDES[kind].items())
            for name, read in sides if turn % 2 else reversed(sides):
                try:
                    taken = timed(read, urls, digests)
                except ImportError:
                    continue
                if turn:  # the first one connects
                    seconds.setdefault(name, []).append(taken)
        megabytes = size * len(urls)
        own = megabytes / statistics.median(seconds["wdspec"])
        for name, times in seconds.items():
            speed = megabytes / statistics.median(times)
            print(f"| {kind} | {size} MB | {name} | {speed:.1f} | {own / speed:.2f}x |", flush=True)
    finally:
        os.environ.clear()
        os.environ |= before
        forget_clients()
        here.send("end")
        proxy.join(5)


def forget_clients() -> None:
    """The next reader opens the store again."""
    import fsspec

    from wdspec.base.process import KeyedValues
    from wdspec.stores import filesystems

    filesystems._systems.value = KeyedValues()
    fsspec.AbstractFileSystem.clear_instance_cache()
    for kind in list(fsspec.registry.values()):
        kind.clear_instance_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", nargs="+", choices=list(SIDES), default=["s3"])
    parser.add_argument("--quick", action="store_true", help="a few MB and one turn")
    parser.add_argument("--turns", type=int, default=3, help="timed turns of each side (default: 3)")
    parser.add_argument("--rate", type=float, help="bytes a second of each connection, as stores limit them")
    options = parser.parse_args()
    cases = [(1, 2)] if options.quick else [(SMALL, 30), (LARGE, 3)]
    print("| store | objects of | reader | MB/s | wdspec is |\n|--|--:|--|--:|--:|")
    for kind in options.store:
        measure(kind, 1 if options.quick else options.turns, cases, options.rate)


if __name__ == "__main__":
    main()
