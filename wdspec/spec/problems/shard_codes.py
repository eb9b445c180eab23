"""What can be wrong with a shard, so that it cannot be read whole: what the readers report, and `check` names."""

from __future__ import annotations

from wdspec.spec.problems.codes import Code, table

_AGAIN = "Fetch or write the shard again, and compare its size with the original's."

SHARD_CODES = table(
    Code(
        "D101",
        "a shard that does not exist",
        "The spec names it, by braces or in a list, and it is not there. Correct the pattern, fetch the shard, or "
        "rewrite its URL with `rewrite` or WDS_REWRITE.",
    ),
    Code(
        "D102",
        "a shard that cannot be read",
        "It is there, or may be, and opening or reading it fails: permissions, a directory in its place, a store "
        "that refuses or breaks off, a disk. The message has what the system or the store said.",
    ),
    Code("D103", "a shard of 0 bytes", f"A file that was made and never written. {_AGAIN}"),
    Code(
        "D104",
        "a shard of zeros",
        f"A file that was set aside and not written, or lost its data in a crash of its file system. {_AGAIN}",
    ),
    Code(
        "D105",
        "a shard with nothing in it",
        "Its format is right, and it holds no member. Where such shards are meant, set `empty: allow`; else leave "
        "it out.",
    ),
    Code(
        "D106",
        "something else in place of a shard",
        "An error page of a server, a log-in form, a pointer of Git LFS, an archive or file of another format: saved "
        "under the name of a shard. The message says what it looks like. Fetch the shard itself, or set `format`.",
    ),
    Code("D107", "a shard that is cut", f"It ends within a member, a header or a record. {_AGAIN}"),
    Code(
        "D108",
        "a damaged header",
        "Where a header of the tar should be are bytes whose checksum does not fit: bytes were changed, lost or "
        f"added there or before. {_AGAIN}",
    ),
    Code(
        "D109",
        "no end marker",
        "A tar ends with two blocks of zeros, and this one does not: it may have been cut between two members. "
        "Fetch it again, or set `tar: {end: lenient}` if its writer leaves the marker out.",
    ),
    Code(
        "D110",
        "zeros in place of data",
        "Zeros begin where a member should, and they are more than a writer puts at an end, or data follows them: "
        f"the shard was not written whole, or has lost a part. {_AGAIN}",
    ),
    Code(
        "D111",
        "two tars in one file",
        "Another tar begins behind the end marker of the first (`cat a.tar b.tar`), and readers stop at the "
        "marker. Join tars with `wdspec cat`, or `tar --concatenate`.",
    ),
    Code("D112", "bytes behind the end", f"After the end marker come bytes other than zeros. {_AGAIN}"),
    Code(
        "D113",
        "a damaged extended header",
        "A long name or a pax header contradicts the member's own header, or is malformed. These blocks have no "
        f"checksum of their own, so that wdspec compares what is told twice. {_AGAIN}",
    ),
    Code(
        "D114",
        "damaged compressed data",
        f"The gz, bz2, xz or zst stream is cut, or its checksum does not fit. {_AGAIN}",
    ),
    Code(
        "D115",
        "a sparse member",
        "The holes of the file are not stored, which readers of shards do not fill. Pack it anew without `tar "
        "--sparse`.",
    ),
    Code("D116", "a part of a tar of several volumes", "Join the volumes first."),
    Code(
        "D117",
        "a symbolic link in place of a file",
        "It holds no data, and may lead out of the shard. Pack it anew with `tar --dereference`.",
    ),
    Code(
        "D118",
        "a device or FIFO in place of a file",
        "It holds no data. Pack the shard anew from plain files.",
    ),
    Code(
        "D119",
        "a hard link to nothing",
        "It names a file that does not come before it in the shard. Pack it anew with `tar --hard-dereference`.",
    ),
    Code(
        "D120",
        "a damaged record",
        "A record of a CBOR, MessagePack or JSON-lines shard cannot be read, or is no map of field to value.",
    ),
)
