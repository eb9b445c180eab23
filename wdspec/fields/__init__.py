"""Raw bytes → values: which files of a sample are wanted, what each field is called, how it is decoded; and back.

In: raw samples (``__key__`` and the like, and bytes by suffix) and the keys of a source: `extensions`, `rename`,
`missing`, `decode`. Out: samples with values; or, to be written, samples with bytes.

`sample_fields` is what the engine calls, and the file to read first: it asks `file_patterns` which files are wanted,
`field_names` what they are called and `decode_rules` which decoder each gets, once for all samples with the same names.
`codecs` has the functions that read and write values; which of them belongs to which decoder is in
`wdspec.spec.language.decoders`. `scale` draws the sizes of images, `encode` chooses what writes a field, and packs
whole samples for caches.
"""
