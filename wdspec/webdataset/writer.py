"""Writers of shards."""

from wdspec.fields.codecs.image_encoder import ImageEncoder as ImageEncoder
from wdspec.write.shard_writer import ShardWriter as ShardWriter
from wdspec.write.tar_writer import TarWriter as TarWriter
