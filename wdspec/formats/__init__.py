"""Shards as bytes: the format and compression of a file, and reading samples and members from it.

In: open binary files, and names. Out: raw samples (`bytes` by field), headers for writing tars, streams that compress
and decompress. This room knows only `key` and `format` of specs, and nothing of stores and error policies. So the
cache, a room above, checks its copies with the same code that reads them.

A shard is opened in two steps: `decompress.decompress` recognizes its compression, then the reader of its format is
chosen (`read/shard.py`). Read `samples` first, the base class of readers; then `tar/`, the strict tar reader, and
`records`, the readers of CBOR, MessagePack and JSON lines. `compression` has the kinds of compression and the table of
suffixes; `blocks` reads files in large pieces.
"""
