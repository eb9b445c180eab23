"""Where shards are: places that others do not have, and secrets on the way there."""
