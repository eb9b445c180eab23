"""What we need of the operating system: locks between processes, values made anew after a fork, raw streams.

Nothing of shards, specs or stores is known here, and nothing of wdspec is imported. `per_process` holds the values that
a forked child must make anew (connections, threads, tables of what is open), `file_locks` the locks that end with
the process that holds them, `raw_stream` the base of all streams. Read `per_process` first: each module-level value
that is not a constant belongs into one of its classes.
"""
