"""Conversion of other tools' specs: their sources and shares become a spec, and notes say what is lost.

A dialect takes the text of a file, and fills a plain dict in the spec language and a list of notes (`dialect.py`).
Nothing is run and no data is read, except files that a tool keeps next to local shards. Each tool is a module, and a
row below.
"""

from __future__ import annotations

from wdspec.convert import (
    axolotl,
    energon,
    huggingface,
    internvl,
    lhotse,
    litdata,
    llamafactory,
    llava,
    nemo,
    olmo,
    openclip,
    openinstruct,
    opensora,
    streaming,
    torchtune,
    veomni,
    webdataset,
)
from wdspec.convert.dialect import Dialect, Given

DIALECTS: tuple[Dialect, ...] = (
    energon.FOLDER,
    energon.METADATASET,
    energon.CALL,
    webdataset.SHARDS,
    webdataset.SOURCES,
    webdataset.INDEX,
    llava.DIALECT,
    streaming.DIALECT,
    nemo.DIALECT,
    olmo.DIALECT,
    veomni.DIALECT,
    axolotl.DIALECT,
    llamafactory.DIALECT,
    torchtune.DIALECT,
    internvl.DIALECT,
    lhotse.DIALECT,
    opensora.DIALECT,
    openinstruct.DIALECT,
    litdata.DIALECT,
    huggingface.DIALECT,
    openclip.DIALECT,
)
"""All dialects, in the order in which they are tried."""


def find_dialect(given: Given) -> Dialect | None:
    """Find the dialect of a file; None if it is unknown."""
    return next((each for each in DIALECTS if each.recognises(given)), None)
