"""Reading in one process: samples of slots in the order of the plan, and global batches of several slots.

    shards ─▶ SourceStream ─┐ draws
    shards ─▶ SourceStream ─┼──────▶ EndlessSlot ─┐
    shards ─▶ SourceStream ─┘        EndlessSlot ─┼─▶ Reader ─▶ Run.assemble ─▶ Loader ─▶ training loop
                                     EndlessSlot ─┘             (run/)

In: a `Plan`, and `SourceParts` for each source (how to open its shards, transform its samples and treat errors). Out:
the samples of global batch J, and the states of its slots. With `epoch: pass`, `PassSlot` replaces `EndlessSlot`.

Read `reader` first, then `slot` and `source`. A sample goes through `shard` (bytes → raw samples), `lanes` (a few
shards in turn), `source` (shuffled by delays), `transform` (fields, `select`, `map`), `slot`, `reader` and `batch`.
"""
