"""Packed rows as a page shows them: which sample each part of a row is from, and what is padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wdspec.cli.samples import first_batches
from wdspec.spec.spec import Spec

ROWS = 6
"""Rows to show: the first ones of rank 0."""
_SEGMENTS = "__segments__"


@dataclass(frozen=True)
class Piece:
    """A part of a row: a sample, or padding."""

    key: str
    """Empty for padding."""
    source: str
    size: int
    """In elements of the packed fields."""


@dataclass(frozen=True)
class PackedRow:
    """A row, from its start to its end."""

    pieces: tuple[Piece, ...]

    @property
    def length(self) -> int:
        """In elements."""
        return sum(piece.size for piece in self.pieces)

    @property
    def in_words(self) -> str:
        """The pieces with their sizes."""
        return ", ".join(f"{piece.key or 'padding'} {piece.size:,}" for piece in self.pieces)


def read_rows(spec: Spec, step: int = 0) -> list[PackedRow]:
    """Read the rows of the first batches of rank 0, or from a step on; none if the spec does not pack.

    Raises:
        WdspecError: what training would raise.
    """
    if spec.batch is None or spec.batch.pack is None:
        return []
    pack = spec.batch.pack
    name = pack.segment_ids or _SEGMENTS
    batch = spec.batch.model_copy(update={"pack": pack.model_copy(update={"segment_ids": name})})
    as_dict = spec.model_copy(update={"batch": batch, "to_tuple": None})
    return [_row(each, name) for each in first_batches(as_dict, step, ROWS)]


def _row(batch: dict[str, Any], name: str) -> PackedRow:
    segments = np.asarray(batch[name]).ravel()
    keys, sources = batch.get("__key__", ()), batch.get("__source__", ())
    ends = [*np.flatnonzero(np.diff(segments)) + 1, len(segments)] if len(segments) else []
    pieces, start = [], 0
    for end in map(int, ends):
        number = int(segments[start])
        key = str(keys[number - 1]) if number else ""
        pieces.append(Piece(key, str(sources[number - 1]) if number else "", end - start))
        start = end
    return PackedRow(tuple(pieces))
