"""Whether the store of each source answers: its first shard is opened, and its first bytes are read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from wdspec.base.errors import WdspecError
from wdspec.base.redaction import redacted_urls
from wdspec.shards.listing import shards_of
from wdspec.spec.spec import Spec
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage


class Reached(NamedTuple):
    """What came of one source."""

    source: str
    shards: int
    url: str
    location: str
    """Where its bytes come from, after rewriting."""
    seconds: float
    """Until the first bytes were there."""
    error: str | None = None


def reach(spec: Spec) -> Iterator[Reached]:
    """Opens the first shard of each source as training would, without the cache; runs the commands of `pipe:`."""
    for source in spec.sources:
        found, url, location = 0, "", ""
        began = time.perf_counter()
        try:
            storage = Storage.of(Environment.read(), spec, source)
            shards = shards_of(source, storage)
            found, first = len(shards), shards[0]
            url, resolution = first.text, storage.resolve(first)
            location = resolution.location
            began = time.perf_counter()
            with storage.open_location(location) as file:
                file.read(1)
        except WdspecError as error:
            seconds = time.perf_counter() - began
            yield Reached(
                source.name, found, redacted_urls(url), redacted_urls(location), seconds, str(error)
            )
            continue
        seconds = time.perf_counter() - began
        yield Reached(source.name, found, redacted_urls(url), redacted_urls(location), seconds)
