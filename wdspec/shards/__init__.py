"""Shards: the shard lists of sources, listed once and frozen; sample counts; and lock files."""
