"""The stages at work: what turns a plan and shards into batches.

shards ──▶ SourceStream ─┐
shards ──▶ SourceStream ─┼──▶ SlotStream ──▶ Reader ──▶ assemble ──▶ Loader ──▶ training loop
shards ──▶ SourceStream ─┘    (draws)        (slots of   (tensors)   (tasks, state)
           (windows, steps)                   a process)
"""
