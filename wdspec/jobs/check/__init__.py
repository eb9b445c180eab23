"""`wdspec check`: reads every shard before training does, and judges what it finds.

Read `job` first. `look` reads one shard, `values` judges fields, and `facts` are what both pass on. When all shards
are read, `judge_samples` and `judge_sources` compare them with each other; `hashes` finds duplicates. `report_file`
stores the facts, so that unchanged shards are not read again.
"""
