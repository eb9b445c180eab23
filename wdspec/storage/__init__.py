"""From a URL of the spec to its bytes.

The environment (`environment.py`), a spec and a source make one `Storage`, which resolves URLs, lists shards, opens and
writes them. Read `storage.py` first; `environment.py` resolves URLs, and `ahead.py` opens the next shards while one is
read.
"""
