"""Shards as bytes: which format and compression a file has, and how samples and members are read from it.

In: open binary files, and names. Out: raw samples (`bytes` by field), headers of tars to be written, streams that
compress and decompress. Of specs only a few words (`key`, `format`) are known here, and nothing of stores and error
policies, so that the cache, which lies above, checks its copies by the same code that reads them.

Read `suffixes.py` first: the one table of names. `compression/` has each kind of compression in both directions,
`raw_samples` what the readers of all formats have in common, `tar/` the strict tar reader, `records/` those of CBOR,
MessagePack and JSON lines.
"""
