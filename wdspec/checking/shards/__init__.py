"""One shard looked at: a `ShardLook` goes in, `ShardFacts` with its problems come out. Read `shard_look.py` first."""
