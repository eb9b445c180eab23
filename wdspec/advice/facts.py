"""The facts that advice needs, and what a rule that needs them gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from wdspec.advice.measure import KeptSamples, Measure, SourceFiles, UnfoundTable, WindowFacts, look_at_files
from wdspec.advice.staying_boxes import StayingBoxes, find_staying_boxes
from wdspec.advice.tries import Tries, try_samples
from wdspec.advice.values import Values, read_values
from wdspec.base.errors import WdspecError
from wdspec.planning.plan import Plan
from wdspec.shards.shards import Shards
from wdspec.spec.spec import Source, Spec


class HeldMemory(NamedTuple):
    """What the reading processes of a machine hold."""

    shuffled: float
    """Bytes that one process needs for shuffling."""
    buffers: int
    """Bytes that one process buffers of its open shards."""
    workers: int
    """Reading processes."""
    machine: int | None
    """Bytes of memory of this machine; None if unknown."""


@dataclass(frozen=True)
class Facts:
    """What a command knows of a spec and its data. A rule names the facts that it needs; None is unknown."""

    spec: Spec
    shards: Shards
    measures: Mapping[str, Measure]
    """What was measured of sources, by name."""
    errors: tuple[tuple[Source, WdspecError], ...] = ()
    """Errors of reading first shards."""
    looks: bool = False
    """Whether to look whether local shards exist."""
    plan: Plan | None = None
    selected: Mapping[str, KeptSamples] = field(default_factory=dict)
    """What the selections of sources keep, by name, if they were tried."""
    unfound: Mapping[str, Sequence[UnfoundTable]] = field(default_factory=dict)
    """Tables of `lookup` that have no row for the first samples of a source, by name."""
    samples: float | None = None
    """Samples of all sources together."""
    windows: WindowFacts | None = None
    memory: HeldMemory | None = None

    @cached_property
    def files(self) -> Mapping[str, SourceFiles] | None:
        """The local files of the sources that are read, by name."""
        return look_at_files(self.spec, self.shards) if self.looks else None

    @cached_property
    def values(self) -> Mapping[str, Values] | None:
        """Values of samples of local sources, by name."""
        return read_values(self.spec, self.shards) if self.looks else None

    @cached_property
    def staying(self) -> Mapping[str, StayingBoxes] | None:
        """Boxes of local sources next to images that are moved, by name."""
        return find_staying_boxes(self.spec, self.shards) if self.looks else None

    @cached_property
    def tries(self) -> Tries | None:
        """What the first samples of local sources do not fit."""
        return try_samples(self.spec, self.shards) if self.looks else None


class Advice(NamedTuple):
    """What a rule that needs facts has found."""

    message: str
    """What was seen."""
    hint: str = ""
    """What to do about it."""
    source: Source | None = None
    """The source that it is about."""


Advices = Iterator[Advice]
