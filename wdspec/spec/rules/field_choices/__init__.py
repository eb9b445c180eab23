"""Fields that are asked for and never there, or there and not alike, as far as the spec alone shows."""
