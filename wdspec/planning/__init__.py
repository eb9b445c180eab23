"""Plans: which rank and worker reads which sample, and when. Pure arithmetic, without I/O and without torch.

A `Plan` is computed from a spec, the shard list of each source and a topology. Read `plan` first. `topology` has slots,
ranks and seats. `shares` and `draws` choose the source of each sample, `order` assigns shards to slots and shuffles
samples, `passes` plans `epoch: pass`, and `windows` plans batches by cost. `keys` has the random numbers, and `digest`
describes everything that the order depends on.
"""
