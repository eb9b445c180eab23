"""How many samples a source may have and how big they are, from the headers of its first shard."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from wdspec.base.errors import WdspecError
from wdspec.formats.compression import format_of
from wdspec.formats.decompress import decompressed
from wdspec.formats.tar.keys import splitter
from wdspec.formats.tar.members import iter_members
from wdspec.spec.measurements import MeasuredSource
from wdspec.spec.spec import Source
from wdspec.storage.storage import Storage
from wdspec.stores.local import open_file
from wdspec.urls.urls import UrlSequence, local_path

MOST_MEMBERS = 100_000
"""Headers read of a shard (about half a second); beyond, the rest is taken to be like the part read."""
MOST_UNPACKED = 64 * 1024 * 1024
"""Bytes read of a compressed shard, which cannot be skipped through."""


@dataclass(frozen=True)
class Measure:
    """What the headers of one shard say."""

    samples: float
    """Samples of the shard."""
    sample_bytes: float
    """Mean size of a sample's wanted members."""
    whole: bool = True
    """Whether all headers were read."""
    suffixes: frozenset[str] = frozenset()
    """Of the files in it, wanted or not, in lower case."""


def measure(
    source: Source, shards: UrlSequence, storage: Storage, field_of: Callable[[str], str | None]
) -> Measure | WdspecError | None:
    """Measures the first shard of a source.

    Args:
        source: the source.
        shards: its shards, listed.
        storage: of this source.
        field_of: None for the suffix of a member that no field wants.

    Returns:
        The measure; the error that reading would meet; None for a shard that is not local, no regular file, or no tar,
        whose samples can only be counted by reading them.
    """
    try:
        location = storage.resolve(shards[0]).location
        path = local_path(location)
        if path is None or (os.path.exists(path) and not os.path.isfile(path)):
            return None
        if format_of(location, source.format) != "tar" and os.path.exists(path):
            return None
        return _measured(path, source, field_of)
    except WdspecError as error:
        return error.at(source=source.name, url=shards[0].text)


def measured_before(totals: MeasuredSource, field_of: Callable[[str], str | None]) -> Measure | None:
    """The same from what `wdspec stats` has found out about all shards of a source."""
    if not totals.samples or not totals.measured:
        return None
    wanted = (
        spread.count * spread.mean for name, spread in totals.fields.items() if field_of(name) is not None
    )
    return Measure(
        totals.samples / totals.measured, sum(wanted) / totals.samples, suffixes=frozenset(totals.fields)
    )


def _measured(path: str, source: Source, field_of: Callable[[str], str | None]) -> Measure:
    split = splitter(source.key)
    samples, wanted, members = 0, 0, 0
    last: bytes | None = None
    suffixes: set[bytes] = set()
    with open_file(path) as raw:
        total = os.fstat(raw.fileno()).st_size
        file = decompressed(raw)
        most_bytes = total if file is raw else MOST_UNPACKED
        rules = {"lenient_end": source.tar.end == "lenient", "may_be_empty": source.empty == "allow"}
        for member in iter_members(file, **rules):
            parts = split(member.name) if member.may_be_sampled else None
            if parts is None:
                continue
            key, suffix = parts
            suffixes.add(suffix)
            if key != last:
                if members >= MOST_MEMBERS or member.offset > most_bytes:
                    read = max(1, raw.tell())
                    return Measure(
                        samples * max(1.0, total / read),
                        wanted / samples,
                        whole=False,
                        suffixes=_texts(suffixes),
                    )
                samples, last = samples + 1, key
            members += 1
            if field_of(suffix.decode("utf-8", "surrogateescape")) is not None:
                wanted += member.size
    return Measure(samples, wanted / samples if samples else 0.0, suffixes=_texts(suffixes))


def _texts(suffixes: set[bytes]) -> frozenset[str]:
    return frozenset(suffix.decode("utf-8", "surrogateescape").lower() for suffix in suffixes)


def memory_of_machine() -> int | None:
    """Bytes of memory that this machine, or its container, has; None where that cannot be found out."""
    sizes = []
    with suppress(AttributeError, OSError, ValueError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError), open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
        sizes.append(int(file.read()))
    return min(sizes) if sizes else None
