"""Reading and writing of values: one file for each kind, with the functions of both directions.

In: the bytes of one field, or a value. Out: the value, or the bytes of its file. Which decoder and extension each
function belongs to is in `wdspec.spec.language.decoders`, which names them; a process imports the kinds that it meets.

`text` is the shortest to read first. `pickles` holds all that runs what data says, and what refuses to; `tenbin` the
format that is left out on purpose. Pictures have a folder of their own.
"""
