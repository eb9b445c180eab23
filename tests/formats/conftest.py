"""Tars made in memory, the reader under test, and a slow, obvious reader based on `tarfile` to compare with."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from wdspec.base.errors import ShardError
from wdspec.formats.tar.reader import TarSamples

Files = Sequence[tuple[str, bytes]]
Samples = list[dict[str, Any]]

_NAME = re.compile(rb"((?:.*/|)[^./][^./]*)[.]([^/]*)", re.DOTALL)


class Trickle(io.RawIOBase):
    """A stream as a pipe gives it: forward only, and few bytes at a time."""

    def __init__(self, data: bytes, step: int = 1000) -> None:
        self._file = io.BytesIO(data)
        self._step = step

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._file.read(min(size, self._step))


def _pack(files: Files, format: int = tarfile.USTAR_FORMAT, **fields: Any) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format, errors="surrogateescape") as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for field, value in fields.items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _read(data: bytes, **options: Any) -> tuple[Samples, ShardError | None]:
    """The samples before the first error, and the error."""
    samples: Samples = []
    try:
        for sample in TarSamples(io.BytesIO(data), **options):
            samples.append(sample)
    except ShardError as error:
        return samples, error
    return samples, None


def _reference(data: bytes) -> Samples:
    """Adjacent members with the same key, as tarfile reads them; a second member of a name replaces the first."""
    samples: Samples = []
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:", errors="surrogateescape") as tar:
        for info in tar:
            if not 0 <= info.size <= len(data):  # tarfile would loop forever, or allocate that memory
                raise tarfile.ReadError("a size that cannot be")
            if not (info.isreg() or info.islnk() or info.type not in tarfile.SUPPORTED_TYPES):
                continue
            name = info.name.encode("utf-8", "surrogateescape")
            match = _NAME.fullmatch(name)
            if not match or re.match(rb"__[^/]*__(/|\Z)", name):
                continue
            key = match[1].decode("utf-8", "surrogateescape")
            field = match[2].decode("utf-8", "surrogateescape").lower()
            if not samples or samples[-1]["__key__"] != key:
                samples.append({"__key__": key})
            samples[-1][field] = tar.extractfile(info).read()
    return samples


@pytest.fixture(scope="session")
def pack() -> Callable[..., bytes]:
    return _pack


@pytest.fixture(scope="session")
def read() -> Callable[..., tuple[Samples, ShardError | None]]:
    return _read


@pytest.fixture(scope="session")
def reference() -> Callable[[bytes], Samples]:
    return _reference


@pytest.fixture(scope="session")
def trickle() -> type[Trickle]:
    return Trickle
