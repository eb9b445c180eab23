"""The words of the spec language that several rooms must agree on; those of decoders come from their table."""

from __future__ import annotations

from typing import Literal, get_args

from wdspec.decoders.table import BY_NAME

DECODERS = frozenset(name for name, row in BY_NAME.items() if not row.left_out)
"""Every decoder name."""

LEFT_OUT_DECODERS = frozenset(BY_NAME) - DECODERS
"""Decoders of webdataset that wdspec leaves out on purpose: its own binary format for lists of arrays."""

IMAGE_DECODERS = frozenset(name for name, row in BY_NAME.items() if row.image)
"""What reads images, and so can rescale them."""

PICKLE_DECODERS = frozenset(name for name, row in BY_NAME.items() if row.pickle)
"""Decoders that run what the data says: they need ``allow: [pickle]``."""

SECURE_REFUSES = frozenset(name for name, row in BY_NAME.items() if row.is_pickle)
"""What WDS_SECURE forbids: a torch file is a pickle, even where a restricted unpickler reads it."""

PACKINGS = frozenset({"gz", "bz2", "xz", "zst"})
"""Last parts of a suffix that are undone before decoding: ``json.gz`` is read as ``json``."""

DEFAULT_SCALE = (0.5, 2.0)
"""The range of ``scale`` where only ``scaleprob`` is given."""

RESERVED_VARIABLES = frozenset({"REWRITE", "CACHE", "CACHE_SIZE", "SECURE"})
"""Names no ``${variable}`` may have: ``WDS_`` before them spells one of wdspec's own settings."""

SkipCause = Literal["shard", "decode", "map"]
"""What ``errors: {skip: …}`` may name. The first two are in the data, and what plain ``skip`` means."""

SKIP_CAUSES: tuple[SkipCause, ...] = get_args(SkipCause)

Format = Literal["tar", "cbor", "msgpack", "jsonl"]
"""What ``format`` may say of shards, beside ``auto``."""

SUFFIXES: dict[Format, tuple[str, ...]] = {
    "tar": (".tar",),
    "cbor": (".cbors", ".cbor"),
    "msgpack": (".msgpack", ".mps", ".mp"),
    "jsonl": (".jsonl", ".ndjson"),
}
"""Format → ends of the names of its shards, before `.gz` and the like."""

MASK = "__mask__"
"""The field of every sample of a pass: True for a sample, False for padding."""

ALLOWABLE = frozenset({"pickle"})
"""What ``allow:`` may switch on."""
