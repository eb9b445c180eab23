"""Keys that need, exclude or idle each other, wherever in a spec they stand."""
