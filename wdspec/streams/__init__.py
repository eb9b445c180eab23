"""Streams over stores that are slow, cut, stall or change: complete and unchanged bytes, early, or an error.

In: a function that requests an object from an offset on. Out: binary streams for the readers of shards.

Read `resuming_stream` first: one object through as many requests as it takes, which go by `retrying` (the policy, and
the failures of one stream). `read_ahead` fetches the next pieces before they are read, within one budget of memory a
process, on the one thread of `background_fetcher`. `watchdog` ends reads that hang.
"""
