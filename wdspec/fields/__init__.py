"""From raw bytes to values, and back: choosing the files of a sample, naming its fields, decoding them.

In: raw samples (``__key__`` and similar entries, and bytes by suffix) and keys of a source: `extensions`, `rename`,
`missing`, `decode`. Out: samples with values, or samples with bytes for writing.

Read `samples` first, which the engine calls. Once for all samples with the same names, it asks `extensions` for the
files and their fields, and `decode` for the decoder of each field. `codecs` has the functions that read and write
values; the table of decoders in `wdspec.spec.language.decoders` lists them. `scale` draws the sizes of images, `expect`
checks values, and `encode` encodes fields for writing and whole samples for caches.
"""
