"""Writing samples into shards: encoded, checked, packed, and visible under their name only when complete.

In: samples, dicts with a ``__key__`` and values by field. Out: tars (`tar_writer`) or sequences of CBOR, MessagePack or
JSON lines (`record_writer`), one shard or a numbered series (`shard_writer`), written through `wdspec.stores.outputs`.

Read `writer` first, the base class of the writers of one shard. For the commands, `recipes` builds samples from
folders, tables and programs.
"""
