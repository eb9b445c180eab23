"""What we need of the operating system: locks between processes, values made anew after a fork, raw streams.

Nothing of shards, specs or stores is known here; of wdspec only `redaction` is imported. `per_process` holds the values
that a forked child must make anew (connections, threads, tables of what is open), `file_locks` the locks that end with
the process that holds them, `raw_stream` the base of all streams. Read `per_process` first: each module-level value of
which a forked child's copy would be wrong belongs into one of its classes.
"""
