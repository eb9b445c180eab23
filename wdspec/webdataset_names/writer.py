"""Writers of shards."""

from __future__ import annotations

from typing import Any

from wdspec.fields.codecs.images.image_encoder import ImageEncoder as ImageEncoder
from wdspec.fluent.replacements import hint_for
from wdspec.writing.shard_writer import ShardWriter as ShardWriter
from wdspec.writing.tar_writer import TarWriter as TarWriter


def __getattr__(name: str) -> Any:
    raise AttributeError(hint_for("writer", name))
