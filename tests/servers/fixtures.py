"""Fixtures that start real servers; each worker of pytest-xdist has its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from servers.fault_proxy import FaultProxy
from servers.nginx import Nginx, nginx_program, start_nginx


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
