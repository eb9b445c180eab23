"""Texts under `shards` that look like something else than they are."""
