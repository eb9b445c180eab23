"""Writes samples into shards, which appear under their names only when they are complete.

Input: samples, which are dicts with a ``__key__`` and a value for each field. Output: tars (`tar_writer`), records in
CBOR, MessagePack or JSON lines (`record_writer`), or Parquet (`parquet_writer`); one shard, or a numbered series
(`shard_writer`). The bytes are written through `wdspec.stores.outputs`.

Read `writer` first: it has the base class of all writers. For the commands, `recipes` builds samples from folders,
tables and programs.
"""
