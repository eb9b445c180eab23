"""The part of a shard that a reader asks for."""

from __future__ import annotations

from dataclasses import dataclass

from wdspec.urls.sequence import ShardUrl


@dataclass(frozen=True)
class Piece:
    """The samples of a shard with index ≡ residue (mod stride), from one of them on."""

    shard: ShardUrl
    stride: int = 1
    residue: int = 0
    offset: int = 0
    """Byte offset in the uncompressed shard of the sample to begin with; 0 is the shard's start."""
    index: int = 0
    """Index in the shard of that sample."""
