"""Shards as bytes: which format and compression a file has, and how samples and members are read from it.

In: open binary files, and names. Out: raw samples (`bytes` by field), headers of tars to be written, streams that
compress and decompress. Stores, settings and error policies are unknown here, so that the cache, which lies above,
checks its copies by the same code that reads them.

Read `suffixes.py` first: the one table of names. `compression/` has each kind of compression in both directions,
`raw_samples` what the readers of all formats have in common, `tar/` the strict tar reader, `records/` those of CBOR,
MessagePack and JSON lines.
"""
