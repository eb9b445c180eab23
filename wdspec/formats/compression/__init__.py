"""gz, bz2, xz and zst: names, suffixes, first bytes, and streams that compress and decompress.

In: names, or the first bytes of data. Out: a `Compression`, which makes both streams and does whole fields at once;
and `decompressed(file)`, the plain bytes of a shard in bounded memory. Read `kinds.py` first: its table is all that the
rest of the code knows of compression.
"""
