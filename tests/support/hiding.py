"""Hide installed libraries from a test."""

import sys

import pytest

from wdspec.fields.codecs import text as msgpack_and_cbor


def hide_library(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Makes an import of a module fail during a test, also for codecs that have imported it before."""
    monkeypatch.setitem(sys.modules, module, None)
    for cached in ("_unpackb", "_load"):
        monkeypatch.setattr(msgpack_and_cbor, cached, getattr(msgpack_and_cbor, cached).__wrapped__)
