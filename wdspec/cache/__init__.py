"""A directory with copies of remote shards, which many processes fill, read and trim at once.

In: the names that a shard's copies may have (`cache_names`), and a function that opens the shard at its store. Out: a
stream of its bytes: of the copy, or of the growing file behind whoever fetches it.

Read `shard_cache` first, then `fill` (makes one copy, in the background) and `follower` (reads behind it, and takes
over when its maker dies); `copies` are finished ones, marked `in_use` while they are open. `index` keeps the limit:
`entries` are its files and `running_total` their sum. `copy_check` refuses what is no complete shard, and
`copy_reading` passes over a copy that was damaged later; `running_fills` are those of this process. After a kill at
any moment, files under final names are complete, and the sum is never too small.
"""

from functools import partial

from wdspec.base.replacements import missing_name

__getattr__ = partial(missing_name, "cache")
"""Hints for code that looks for names of webdataset's module `cache`."""
