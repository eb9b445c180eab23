"""Reading in one process: samples of slots in the order of the plan, and global batches of several slots.

    shards ─▶ SourceStream ─┐ draws
    shards ─▶ SourceStream ─┼──────▶ Slot ─┐
    shards ─▶ SourceStream ─┘        Slot ─┼─▶ Reader ─▶ Run.assemble ─▶ Loader ─▶ training loop
                                     Slot ─┘             (run/)

In: a `Plan`, and `SourceParts` for each source (how to open its shards, transform its samples and treat errors). Out:
the samples of global batch J, and the states of its slots. A slot is a stack of parts: a `Mixture` draws samples, and
with `epoch: pass` a `PassPart` takes its place.

Read `reader` first, then `slot` and `source`. A sample goes through `shard` (bytes → raw samples), `lanes` (a few
shards in turn), `source` (shuffled by delays), `transform` (fields, `select`, `map`), `slot`, `reader` and `batch`.
"""
