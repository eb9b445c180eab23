"""Stores in memory that count what is fetched from them, and a cache before them."""

import contextlib
import io
import os
import tarfile
from pathlib import Path

from wdspec.cache.fill import CopyRules
from wdspec.cache.names import CacheNames
from wdspec.cache.shard_cache import ShardCache
from wdspec.urls.urls import ShardUrl


def tar_of(size=100_000, seed=0):
    """The bytes of a tar with one member."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        info = tarfile.TarInfo("0000.bin")
        info.size = size
        tar.addfile(info, io.BytesIO(bytes((seed + i) % 251 for i in range(256)) * (size // 256 + 1)))
    return out.getvalue()


class Stream(io.RawIOBase):
    """The bytes of an object, in small pieces; fails at a given place."""

    def __init__(self, data, piece=1 << 18, seekable=True, fails_at=None, error=None, wait=None):
        self.data, self.piece, self.can_seek = data, piece, seekable
        self.fails_at, self.error, self.wait = fails_at, error, wait
        self.at = 0

    def readable(self):
        return True

    def seekable(self):
        return self.can_seek

    def seek(self, offset, whence=0):
        assert self.can_seek
        self.at = offset + (len(self.data) if whence == 2 else self.at if whence == 1 else 0)
        return self.at

    def read(self, size=-1):
        if self.wait is not None:
            self.wait()
        if self.fails_at is not None and self.at >= self.fails_at:
            raise self.error
        end = self.at + min(size, self.piece)
        if self.fails_at is not None:
            end = min(end, self.fails_at)
        data = self.data[self.at : end]
        self.at += len(data)
        return data


class Store:
    """Objects by URL; `fetched` lists what was opened."""

    def __init__(self, objects=(), **how):
        self.objects, self.how = dict(objects), how
        self.fetched = []

    def fetch(self, url):
        def fetch():
            self.fetched.append(url)
            return Stream(self.objects[url], **self.how)

        return fetch


class Caching:
    """A cache in a directory; `open` gives the stream of a URL of a store."""

    def __init__(self, directory, limit=None, ambiguous=None, **rules):
        self.directory = Path(directory)
        self.names = CacheNames(str(directory), ambiguous=ambiguous)
        self.cache = ShardCache(self.names, CopyRules(limit, **rules))

    def copies(self, url):
        return self.names(ShardUrl(url, "/"), url)

    def path(self, url):
        return Path(self.copies(url).path)

    def open(self, url, store):
        return self.cache.open(self.copies(url), store.fetch(url))

    def read(self, url, store):
        with self.open(url, store) as stream:
            return drained(stream)

    @property
    def files(self):
        """All files with bytes in the directory, except the tag, the index and its total."""
        found = [path for path in self.directory.rglob("*") if path.is_file() and path.stat().st_size]
        return sorted(
            str(path.relative_to(self.directory))
            for path in found
            if path.name not in ("CACHEDIR.TAG", "total") and path.parent.name != "index"
        )


def drained(stream):
    """All bytes of a stream from where it is."""
    return b"".join(iter(lambda: stream.read(70_000), b""))


def bytes_in(directory):
    """Bytes of all files in a directory, some of which may vanish meanwhile: never more than there are at one moment.

    So a file that is deleted before the walk ends does not count: another one may have taken its place.
    """
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                found[path] = os.stat(path)
    total = 0
    for path, before in found.items():
        with contextlib.suppress(FileNotFoundError):
            total += before.st_size if os.stat(path).st_ino == before.st_ino else 0
    return total
