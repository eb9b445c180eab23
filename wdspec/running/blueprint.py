"""Everything a process needs to read its part of a run: describes only, and pickles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wdspec.planning.finite_pass import SourceCount
from wdspec.reading.source_parts import SourceParts
from wdspec.spec.language.models import Spec
from wdspec.urls.sequence import UrlSequence


@dataclass(frozen=True)
class Blueprint:
    """A checked spec with its shards listed and the parts that read them."""

    spec: Spec
    shards: Mapping[str, UrlSequence]
    """The frozen shard list of every source."""
    parts: Mapping[str, SourceParts]
    counts: Mapping[str, SourceCount] | None = None
    """The samples of every source; only with `epoch: pass`."""
