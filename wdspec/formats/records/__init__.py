"""Shards that are sequences of records: CBOR, MessagePack, JSON lines.

In: an uncompressed binary file, and the format. Out: raw samples, as from a tar. `record_reader.RecordSamples` goes
through the pieces of a file and makes samples of records; `boundaries` finds the records in a piece, by the library of
each format. Read `record_reader` first.
"""
