"""URLs of shards, what rewrites them, and the AIStore clusters that serve them."""
