"""Work over all shards of a spec: `check`, `dedup`, `stats`, `lock` and `process`.

In: a spec and its shards. Out: a report, a file, or new shards. Read `job` first: the driver that assigns shards to
workers, resumes, and shows progress. `engine` runs the work in this process, in worker processes, or on Dask. Each
kind of work is a file, and `check/` is a folder, as it judges shards, samples and values.
"""
