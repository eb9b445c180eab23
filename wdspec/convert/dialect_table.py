"""The table of dialects, in the order in which a file is compared with them."""

from __future__ import annotations

from wdspec.convert.dialect import Dialect
from wdspec.convert.dialects import (
    energon,
    energon_folder,
    huggingface,
    internvl,
    llava,
    nemo,
    olmo,
    openclip,
    streaming,
    torchtune,
    veomni,
    webdataset_ds,
    webdataset_shards,
)
from wdspec.convert.given import Given

DIALECTS: tuple[Dialect, ...] = (
    energon_folder.DIALECT,
    energon.DIALECT,
    webdataset_shards.DIALECT,
    webdataset_ds.DIALECT,
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


def recognised(given: Given) -> Dialect | None:
    """The first dialect that a file is of; None where it is of none."""
    return next((each for each in DIALECTS if each.recognises(given)), None)
