"""Samples → shards: encoded, checked, packed, and visible under their name only when they are complete.

In: samples, dicts with a ``__key__`` and values by field. Out: tars (`tar_writer`) or sequences of CBOR, MessagePack or
JSON lines (`record_writer`), alone or in numbered series (`shard_writer`), written through `wdspec.outputs`.

`sample_writer` is what the writers of one shard have in common, and the file to read first; `writer_choice` chooses by
format or name. For the commands: `manifests` and `recipes` gather samples from tables, files and programs,
`sample_sort` sorts more samples than memory holds, `shard_sizes` makes shards alike.
"""
