"""Reading and writing values: one file for each kind, with the functions of both directions.

In: the bytes of one field, or a value. Out: the value, or the bytes of its file. The table of decoders in
`wdspec.spec.language.decoders` refers to these functions; a process imports only the kinds that it needs.

Read `text` first, the simplest one. `pickles` has everything that runs code in the data, and the functions that refuse
to. Images have three files: `image_decoder`, `image_encoder` and `framing`, which also resizes and crops video.
"""
