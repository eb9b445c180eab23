"""A directory with copies of remote shards, which many processes fill, read and trim at the same time.

Read `shard_cache` first, then `fill` (makes and checks one copy, in the background) and `follower` (reads the growing
file, and takes over if its maker dies). `index` keeps the limit, and `reading` handles a copy that was damaged later;
`names` gives the places of copies. After a kill at any moment, files under final names are complete, and the total
size in the index is never too small.
"""

import sys
from functools import partial

from wdspec.base.replacements import WebdatasetModule, missing_name

__getattr__ = partial(missing_name, "cache")
"""Hints for code that looks for names of webdataset's module `cache`."""

sys.modules[__name__].__class__ = WebdatasetModule
