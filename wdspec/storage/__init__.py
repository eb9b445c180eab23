"""From a URL as the spec spells it to its bytes.

The environment (`environment.py`), a spec and a source go in, and out comes one `Storage`, which resolves URLs, lists
shards, opens and writes them. Read `storage.py` first; `resolution.py` says where a URL leads, `shard_listing.py` what
globs, directories and lists stand for, `upcoming.py` opens the next shards while one is read.
"""
