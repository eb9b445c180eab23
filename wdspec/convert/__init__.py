"""Specs of other tools, written anew as wdspec's: what they say of sources and shares, and notes of what is lost.

A file goes in as text, a plain dict in the spec language and notes come out (`dialect.py`). Nothing is run, no data is
read; of local folders only what their tools keep beside the shards. Each tool is one module, and a row below.
"""

from __future__ import annotations

from wdspec.convert import (
    energon,
    huggingface,
    internvl,
    llava,
    nemo,
    olmo,
    openclip,
    streaming,
    torchtune,
    veomni,
    webdataset,
)
from wdspec.convert.dialect import Dialect, Given

DIALECTS: tuple[Dialect, ...] = (
    energon.FOLDER,
    energon.METADATASET,
    webdataset.SHARDS,
    webdataset.SOURCES,
    llava.DIALECT,
    streaming.DIALECT,
    nemo.DIALECT,
    olmo.DIALECT,
    veomni.DIALECT,
    torchtune.DIALECT,
    internvl.DIALECT,
    huggingface.DIALECT,
    openclip.DIALECT,
)
"""In the order in which a file is compared with them."""


def recognised(given: Given) -> Dialect | None:
    """The first dialect that a file is of; None where it is of none."""
    return next((each for each in DIALECTS if each.recognises(given)), None)
