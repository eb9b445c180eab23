"""Real object stores for tests: S3 (moto), Google Cloud Storage (gcp-storage-emulator), Azure blobs (azurite).

Clients find them as users' programs find theirs: by environment variables alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from servers.processes import started, stop
from wdspec.base.process import KeyedValues
from wdspec.stores import filesystems as filesystem

FOLDER = Path(__file__).parent
AZURITE = FOLDER / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
CONTAINER = "shards"
"""The bucket or container that each store has from the start."""

_AZURE_ACCOUNT = "devstoreaccount1"
# The key that azurite's documentation publishes for everybody's local use.
_AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass
class Store:
    """A running store."""

    scheme: str
    port: int
    process: subprocess.Popen[bytes]
    environ: Mapping[str, str]
    """What a client's environment must hold."""
    settings: Mapping[str, str]
    """The same for fsspec, which reads its part of the environment only when it is imported."""

    @property
    def root(self) -> str:
        """URL of the bucket, ends with `/`."""
        return f"{self.scheme}://{CONTAINER}/"

    def stop(self) -> None:
        stop(self.process)


def start_s3(home: Path) -> Store:
    """moto's server."""
    process, port = started(
        lambda port: [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        home / "moto.log",
    )
    environ = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    return Store("s3", port, process, environ, {})


def start_gcs(home: Path) -> Store:
    """gcp-storage-emulator, which gcsfs can read (without its gRPC part).

    By itself it serves one connection at a time, and would wait forever for the request of one that a client closed
    before it asked anything while a child of the client, forked meanwhile, still has a copy of the socket.
    """
    program = (
        "from http import server\n"
        "server.HTTPServer = server.ThreadingHTTPServer\n"
        "from gcp_storage_emulator.__main__ import main\n"
        "main()"
    )
    process, port = started(
        lambda port: [
            sys.executable,
            "-c",
            program,
            "start",
            "--host=127.0.0.1",
            f"--port={port}",
            "--in-memory",
            f"--default-bucket={CONTAINER}",
        ],
        home / "gcs.log",
    )
    settings = {"token": "anon"}
    return Store(
        "gs",
        port,
        process,
        {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}", "FSSPEC_GCS_TOKEN": "anon"},
        settings,
    )


def start_azure(home: Path) -> Store:
    """azurite; `scripts/servers` installs it."""
    node = shutil.which("node")
    assert node, "node is not installed"
    process, port = started(
        lambda port: [
            node,
            str(AZURITE),
            *("--blobHost", "127.0.0.1", "--blobPort", str(port)),
            *("--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"),
        ],
        home / "azurite.log",
    )
    connection = (
        f"DefaultEndpointsProtocol=http;AccountName={_AZURE_ACCOUNT};AccountKey={_AZURE_KEY};"
        f"BlobEndpoint=http://127.0.0.1:{port}/{_AZURE_ACCOUNT};"
    )
    return Store("az", port, process, {"AZURE_STORAGE_CONNECTION_STRING": connection}, {})


def make_bucket(store: Store) -> None:
    """Makes the bucket of an S3 store."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=store.environ["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    client.create_bucket(Bucket=CONTAINER)
    client.close()


def make_container(store: Store) -> None:
    """Makes the container of an Azure store."""
    from azure.storage.blob import ContainerClient

    with ContainerClient.from_connection_string(
        store.environ["AZURE_STORAGE_CONNECTION_STRING"], CONTAINER
    ) as client:
        client.create_container()


def use(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets this process, and what it starts, find a store."""
    import fsspec

    for name, value in store.environ.items():
        monkeypatch.setenv(name, value)
    if store.settings:
        monkeypatch.setitem(fsspec.config.conf, "gcs", dict(store.settings))
    monkeypatch.setattr(filesystem._systems, "value", KeyedValues())


def put(store: Store, name: str, data: bytes) -> None:
    """Writes an object; the store must be in `use`."""
    system, path = filesystem.filesystem_of(store.root + name)
    system.pipe_file(path, data)
