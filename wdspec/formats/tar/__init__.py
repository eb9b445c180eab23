"""Reading tars strictly, and writing their headers.

In: an uncompressed binary file. Out: samples (`reader.TarSamples`), members (`members.iter_members`), counts; or an
error with the offset, key and member where something is incomplete.

`reader` is the hot path: 1.5 µs per member, by assumptions that hold for members written by one program. It also splits
names into keys and suffixes. It leaves everything else to `members`, which implements the format. Read `members` first,
then `headers` (one header), `sparse` (files with holes) and `runs` (many small samples at once).
"""
