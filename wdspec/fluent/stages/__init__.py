"""The stages of pipelines: functions from iterator to iterator, one file for each kind.

In: an iterator (of shards, of samples, of batches) and the arguments of the stage. Out: an iterator. A stage keeps no
state from one pass to the next; what it draws at random is keyed by its seed, its index in the pipeline and the number
of the pass (`PassContext`). Read `wdspec.fluent.stage` first, then `mapping` for the simplest ones.

Shards: `shard_lists`, `shard_mix`, `splitting`; shards → samples: `tar_shards`, `record_shards`, both by
`shard_reader`; samples: `decode_stage`, `field_patterns`, `mapping`, `renaming`, `shuffling`, `dbcache`,
`inspecting`; samples → batches: `batching`.
"""
