"""Work over all shards of a spec: check, stats, lock and process, on one driver."""
