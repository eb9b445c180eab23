"""Reading: the samples of one slot in the order of the plan, and batches of several slots, in one process.

    shards ─▶ SourceStream ─┐ draws
    shards ─▶ SourceStream ─┼──────▶ SlotStream ─┐
    shards ─▶ SourceStream ─┘        SlotStream ─┼─▶ Reader ─▶ assemble ─▶ Loader ─▶ training loop
                                     SlotStream ─┘             (running/)

In: a `Plan`, and `SourceParts` for each source: what opens its shards, what makes samples of the raw ones, what is
done about errors. Out: the samples of global batch J, and the states of the slots that they came from. With
`epoch: pass` a `PassStream`, which needs no state, takes the place of a `SlotStream`.

Read `batch_reader` first, then `slot` and `source_stream`. The way of one sample: `shard_opener` (bytes to raw
samples), `lanes` (shards in turn), `source_stream` (shuffled by delays), `transform` and `user_steps` (fields,
`select`, `map`), `slot`, `batch_reader`, `collate`.
"""
