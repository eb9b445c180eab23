"""Writers of shards."""

from __future__ import annotations

from typing import Any

from wdspec.fields.codecs.image_encoder import ImageEncoder as ImageEncoder
from wdspec.fluent.replacements import hint_for
from wdspec.write.shard_writer import ShardWriter as ShardWriter
from wdspec.write.tar_writer import TarWriter as TarWriter


def __getattr__(name: str) -> Any:
    raise AttributeError(hint_for("writer", name))
