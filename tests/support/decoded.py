"""Decoding one field, in tests."""

from __future__ import annotations

from typing import Any

from wdspec.fields.samples import SampleFields

PLACE = {"__key__": "0001", "__url__": "a.tar", "__source__": "a"}


def decode(suffix: str, data: bytes, **options: Any) -> Any:
    """The value of a field, with the options of `SampleFields`; not secure unless they say so."""
    sample = SampleFields(**{"secure": False, **options})({**PLACE, suffix: data})
    assert sample is not None
    return sample[suffix]
