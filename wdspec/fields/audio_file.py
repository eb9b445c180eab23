"""`AudioFile`: a recording of a companion, which is decoded when something asks for it, whole or in part.

`read/companions.py` has decoders leave recordings in their files. A step of `make` gets an `AudioFile` if it takes only
a part (`Recipe.in_parts`); all else gets the decoded recording.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

from wdspec.fields.values import Audio


class AudioFile:
    """A recording that is still in its file.

    Args:
        length: the samples of each channel of the decoded recording, as the header of the file says.
        read: (first, stop) → that part of the decoded recording.
    """

    again: Callable[[], Audio]
    """Decodes the sample of the recording anew, and returns the whole recording, or raises what its source raises."""

    def __init__(self, length: int, read: Callable[[int, int], Audio]) -> None:
        self.length, self._read = length, read
        self._whole: Audio | None = None

    def part(self, first: int, stop: int) -> Audio | None:
        """Return a part; None if that cannot be decoded, so that `whole` says why."""
        try:
            found = self._read(first, stop)
        except Exception:
            return None
        return found if found.samples.shape[1] == stop - first else None

    def whole(self) -> Audio:
        """Return all of it, each time the same object. Raises as `again`."""
        if self._whole is None:
            self._whole = self.part(0, self.length) or self.again()
        return self._whole


class _Current(threading.local):
    leaves_audio = False
    """Whether decoders in this thread leave recordings in their files, where any part can be read alone."""


current = _Current()


def open_audio(companion: Any, fields: Collection[Any] = ()) -> Any:
    """Decode the recordings of a companion, or of each in a list, that are still in their files, and return it.

    Args:
        companion: it is changed.
        fields: only in these; all if there are none. What is no field of it has no effect.
    """
    if isinstance(companion, list):
        return [open_audio(each, fields) for each in companion]
    for field in fields or companion or ():
        value = companion.get(field)
        if value.__class__ is AudioFile:
            companion[field] = value.whole()
    return companion
