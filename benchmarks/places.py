"""Remote places for the shards of `python -m benchmarks`: a web server on a slow line, an object store."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.samples import FAR, files_of, repeated
from benchmarks.slow_server import SlowServer

LATENCY, RATE = 0.020, 50e6
"""Seconds before an answer; bytes a second of the line to the web server."""
_PROXY = """
import sys
from servers.fault_proxy import FaultProxy
with FaultProxy(sys.argv[1], float(sys.argv[2])) as proxy:
    print(proxy.url, flush=True)
    for line in sys.stdin:
        print(len(proxy.requests), flush=True)
"""


@contextmanager
def served(place: str, folder: Path, name: str) -> Iterator[Mapping[str, str]]:
    """The environment of a process that reads a collection from a place; "" is local."""
    if place == "http":
        with SlowServer(repeated(folder, name, 1, of="far"), LATENCY, RATE) as server:
            yield {FAR: server.url}
    elif place == "s3":
        with far_s3({os.path.basename(path): Path(path) for path in files_of(folder, name)}) as store:
            yield {**store.environment, FAR: store.root.rstrip("/")}
    else:
        yield {}


@dataclass(frozen=True)
class FarStore:
    """An object store that answers late."""

    root: str
    """URL of its bucket, with a `/`."""
    environment: Mapping[str, str]
    """By which clients find it."""
    requests: Callable[[], int]
    """How many there were so far."""


@contextmanager
def far_s3(objects: Mapping[str, Path]) -> Iterator[FarStore]:
    """The S3 of the tests, through their proxy, with files in it."""
    support = Path(__file__).parents[1] / "tests" / "support"
    sys.path.insert(0, str(support))
    import boto3
    from servers import stores

    with tempfile.TemporaryDirectory() as home:
        store = stores.start_s3(Path(home))
        try:
            stores.make_bucket(store)
            near = store.environ["AWS_ENDPOINT_URL"]
            client = boto3.client(
                "s3",
                endpoint_url=near,
                region_name=store.environ["AWS_DEFAULT_REGION"],
                aws_access_key_id=store.environ["AWS_ACCESS_KEY_ID"],
                aws_secret_access_key=store.environ["AWS_SECRET_ACCESS_KEY"],
            )
            for name, path in objects.items():
                client.upload_file(
                    str(path), stores.CONTAINER, name, ExtraArgs={"ACL": "public-read"}
                )  # for curl
            client.close()
            proxy = subprocess.Popen(
                [sys.executable, "-c", _PROXY, near, str(LATENCY)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(support)},
                text=True,
            )
            with proxy:  # which closes its input, and so ends it
                asked, said = proxy.stdin, proxy.stdout
                assert asked is not None
                assert said is not None
                far = said.readline().strip()

                def requests() -> int:
                    print(file=asked, flush=True)
                    return int(said.readline())

                yield FarStore(store.root, {**store.environ, "AWS_ENDPOINT_URL": far}, requests)
        finally:
            store.stop()
