"""Tars, read strictly and written plainly.

In: an uncompressed binary file. Out: samples (`tar_reader.TarSamples`), members (`members.iter_members`), counts; or an
error with the offset, key and member at which something is not complete.

`tar_reader` is the hot path: 1.5 µs a member, by guesses that hold for members written by one program. What it does not
expect it leaves to `members`, where the format is decided: read that first, then `headers` and `blocks` (the moving
window over the file), `sample_keys` (name → key and suffix), `member_fields` (suffix → field), `hard_links`.
`header_writing` makes the headers of tars that we write.
"""
