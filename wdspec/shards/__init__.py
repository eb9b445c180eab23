"""From URLs and samples listed once, to the frozen lists of shards that a run reads."""
