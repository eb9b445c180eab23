"""Samples → shards: encoded, checked, packed, and put in their place whole.

`tar.TarWriter` writes one tar, `records.RecordWriter` one shard of CBOR, MessagePack or JSON lines, and
`sharding.ShardWriter` any number of either. They are made of the encoders of `fields`, the packing of `shards`, and
the outputs of `storage`.
"""
