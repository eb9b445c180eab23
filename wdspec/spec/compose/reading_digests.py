"""Digests of what a spec says of how shards are read: whether what was found out about them still holds."""

from __future__ import annotations

import json
from hashlib import blake2b

from wdspec.spec.compose.effective_values import effective_etl
from wdspec.spec.language.models import Source, Spec

_NOT_READING = {
    "shards",
    "where",
    "probability",
    "weight",
    "upsample",
    "shuffle",
    "interleave",
    "order",
    "samples",
    "bytes",
}
"""Keys of a source that say nothing of what is in its samples."""
_DECODING = {"extensions", "missing", "rename", "decode", "scale", "scaleprob", "select", "map", "tags"}


def reading_of(spec: Spec, source: Source) -> str:
    """A digest of all that the spec says of how the samples of a source are read; of functions, the names alone."""
    said = [
        source.model_dump(mode="json", exclude=_NOT_READING),
        spec.model_dump(mode="json", include={"map", "fields", "to_tuple", "allow", "seed"}),
    ]
    return blake2b(json.dumps(said, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def reading_of_shards(spec: Spec, source: Source) -> str:
    """A digest of what a spec says that decides which samples a shard of a source has."""
    etl = effective_etl(spec, source)
    said = [
        source.key.model_dump(mode="json"),
        source.format,
        source.tar.end,
        source.empty,
        source.errors.skips("shard"),
        None if etl is None else etl.model_dump(mode="json"),
    ]
    return blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=8).hexdigest()


def decoding_of(spec: Spec, source: Source) -> str:
    """A digest of that, and of what is done to samples, wherever shards and the spec lie; of functions, the names."""
    said = [
        reading_of_shards(spec, source),
        source.model_dump(mode="json", include=_DECODING),
        spec.model_dump(mode="json", include={"map", "fields", "to_tuple", "seed"}),
    ]
    return blake2b(json.dumps(said, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()
