"""Finding token ids that were written as numbers of another width than `tokens: {dtype: …}` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from wdspec.formats.tokens import FIELD
from wdspec.jobs.check.facts import SamplePlace
from wdspec.spec.language.options import TokenOptions

MOST_IDS = 1 << 24
"""No vocabulary is larger: two ids that are read as one number nearly always are."""
MOST_UPPER = 16
"""The upper half of an id of 32 bits is below this number in vocabularies of up to a million."""
LEAST_PADDING = 1 << 16
"""Ids below 0 stand for padding; no one writes one below the negative of this number."""
LEAST_IDS = 64
"""Ids of a sample that are enough to judge by."""


class TokenWidths:
    """Looks at the samples of a file of bare numbers until one looks wrong.

    Args:
        dtype: how the numbers are read.
        report: called with the message, the place and the field of the first sample that looks wrong.
    """

    def __init__(self, dtype: str, report: Callable[[str, SamplePlace, str], None]) -> None:
        self._dtype, self._report = dtype, report
        self._is_done = False

    @classmethod
    def of(
        cls, tokens: TokenOptions | None, report: Callable[[str, SamplePlace, str], None]
    ) -> TokenWidths | None:
        """Return what looks at the samples of a source; None if nothing is to be judged, or `vocabulary` does."""
        if tokens is None or tokens.dtype is None or tokens.vocabulary is not None:
            return None
        return cls(tokens.dtype, report)

    def look(self, raw: Mapping[str, Any], place: SamplePlace) -> None:
        """Look at a sample."""
        ids = raw.get(FIELD)
        if self._is_done or ids is None:
            return
        other = find_width(ids, self._dtype)
        if other is not None:
            self._is_done = True
            self._report(
                f"ids are from {ids.min():,} to {ids.max():,}, read as `dtype: {self._dtype}`, and look like numbers "
                f"of {other}: if they are, write `tokens: {{dtype: {other}}}`; otherwise set `vocabulary`",
                place,
                FIELD,
            )


def find_width(ids: npt.NDArray[np.int64], dtype: str) -> str | None:
    """The type that ids were probably written in; None if that is the one they were read as."""
    if len(ids) < LEAST_IDS:
        return None
    width = np.dtype(dtype).itemsize
    if width >= 4:
        if ids.min() >= -LEAST_PADDING and ids.max() < MOST_IDS:
            return None
        halves = ids.astype(dtype).view(f"u{width // 2}")
        return f"uint{4 * width}" if halves.max() < MOST_IDS else "uint16"
    if width == 2:
        for upper, lower in ((ids[1::2], ids[::2]), (ids[::2], ids[1::2])):
            if upper.min() >= 0 and upper.max() < MOST_UPPER <= lower.max():
                return "uint32"
    return None
