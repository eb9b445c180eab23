"""Choosing the reader of a shard by its format."""

from __future__ import annotations

from typing import Any, BinaryIO

from wdspec.formats.records import RecordSamples, splitter_of
from wdspec.formats.samples import RawSamples
from wdspec.formats.tar.reader import TarSamples
from wdspec.spec.language.samples import KeyRule
from wdspec.spec.language.values import Format


def raw_samples(
    file: BinaryIO,
    format: Format,
    key_rule: KeyRule,
    lenient_end: bool,
    only_sizes: bool = False,
    **options: Any,
) -> RawSamples:
    """Return a reader for the samples of one uncompressed shard.

    Args:
        key_rule, lenient_end, only_sizes: for tars only; see `TarSamples`.
        options: of `RawSamples`.
    """
    if format == "tar":
        return TarSamples(file, key_rule=key_rule, lenient_end=lenient_end, only_sizes=only_sizes, **options)
    return RecordSamples(file, splitter_of(format), **options)
