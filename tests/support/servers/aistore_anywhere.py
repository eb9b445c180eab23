"""An AIStore for tests that hold for any cluster: the double, or the one named by WDSPEC_TEST_AIS_ENDPOINT."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aistore.sdk import Client

from servers.aistore_double import AisDouble

REAL = os.environ.get("WDSPEC_TEST_AIS_ENDPOINT", "").strip()


@dataclass(frozen=True)
class AnyAis:
    """A cluster with a separate bucket, in which tests may do anything."""

    endpoint: str
    bucket: str
    client: Client

    def url(self, name: str) -> str:
        return f"ais://{self.bucket}/{name}"

    def put(self, name: str, data: bytes) -> str:
        """Stores an object, and gives its URL."""
        self.client.bucket(self.bucket).object(name).get_writer().put_content(data)
        return self.url(name)


@contextmanager
def any_ais(endpoint: str) -> Iterator[AnyAis]:
    """A fresh bucket in a cluster, which is removed in the end."""
    client = Client(endpoint, token=os.environ.get("AIS_AUTHN_TOKEN") or None)
    name = f"wdspec-test-{uuid.uuid4().hex[:12]}"
    client.bucket(name).create()
    try:
        yield AnyAis(endpoint.rstrip("/"), name, client)
    finally:
        client.bucket(name).delete(missing_ok=True)


@contextmanager
def ais_of_kind(kind: str) -> Iterator[AnyAis]:
    """The `real` cluster, or a new `double`."""
    if kind == "real":
        with any_ais(REAL) as ais:
            yield ais
        return
    with AisDouble(page_size=7) as double, any_ais(double.endpoint) as ais:
        yield ais
    assert not double.violations
