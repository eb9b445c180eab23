"""What a dialect is: how a file of another tool is recognised, and how it is converted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wdspec.convert.given import Given
from wdspec.convert.new_spec import NewSpec


@dataclass(frozen=True)
class Dialect:
    """A row of the table. Describes only."""

    name: str
    """For `--from`."""
    title: str
    """What it is, for people: `an Energon metadataset`."""
    recognises: Callable[[Given], bool]
    """Whether a file is of this kind, by what stands in it."""
    convert: Callable[[Given, NewSpec], None]
    """Fills the new spec."""
