"""Fixtures that start real servers; each worker of pytest-xdist has its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servers.fault_proxy import FaultProxy
from servers.nginx import Nginx, nginx_program, start_nginx
from servers.ssh import Sshd, sshd_program, start_sshd
from servers.stores import (
    AZURITE,
    Store,
    make_bucket,
    make_container,
    start_azure,
    start_gcs,
    start_s3,
)


def missing(what: str, remedy: str) -> None:
    """Skips where a program is not installed; in CI nothing is skipped."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{what} is not installed: {remedy}")


@pytest.fixture(scope="session")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    """A running nginx; files go into its `root`."""
    if nginx_program() is None:
        missing("nginx", "apt-get install nginx-light")
    server = start_nginx(tmp_path_factory.mktemp("nginx"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def proxy(nginx: Nginx) -> Iterator[FaultProxy]:
    """A fault proxy before the nginx."""
    with FaultProxy(nginx.url) as running:
        yield running


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """moto's S3, with a bucket."""
    for package in ("moto", "s3fs", "flask"):
        needs_package(package)
    yield from running(start_s3, make_bucket, tmp_path_factory.mktemp("s3"))


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """An emulator of Google Cloud Storage, with a bucket."""
    for package in ("gcp_storage_emulator", "gcsfs"):
        needs_package(package)
    yield from running(start_gcs, lambda store: None, tmp_path_factory.mktemp("gcs"))


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """azurite, with a container."""
    needs_package("adlfs")
    if shutil.which("node") is None:
        missing("node", "apt-get install nodejs npm")
    if not AZURITE.exists():
        missing("azurite", "bash scripts/servers")
    yield from running(start_azure, make_container, tmp_path_factory.mktemp("azure"))


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A running sshd."""
    if sshd_program() is None:
        missing("sshd", "apt-get install openssh-server openssh-client")
    server = start_sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


def running(start: Callable[[Path], Store], prepare: Callable[[Store], None], home: Path) -> Iterator[Store]:
    """A store from its start to its end."""
    store = start(home)
    try:
        prepare(store)
        yield store
    finally:
        store.stop()


def needs_package(name: str) -> None:
    """Skips where a Python package is not installed; in CI nothing is skipped."""
    if importlib.util.find_spec(name) is None:
        missing(name, "pip install -c constraints.txt -e '.[test]'")
