"""What can be doubtful about a spec on a topology, beside the data that it names: what `wdspec explain` finds.

What can be wrong with samples, and what is doubtful about a collection of them: found by `wdspec check`.

What can be wrong with a shard, so that it cannot be read whole: what the readers report, and `check` names.
"""

from __future__ import annotations

from wdspec.spec.codes import Code, table

DATA_CODES = table(
    Code(
        "W501",
        "shards that do not exist",
        "Shards of this machine that the spec names are not there. Reading one is an error. `explain` ends with 1.",
    ),
    Code(
        "W502",
        "a shard that cannot be read",
        "The first shard of a source cannot be read, is damaged or is no shard.",
    ),
    Code(
        "W503",
        "a field that no sample has",
        "The first shard of a source has no file for a field that `extensions`, `rename`, `fields` or `to_tuple` asks "
        "for. Without `missing:` its samples are errors.",
    ),
    Code(
        "W504",
        "a decoder that nothing is decoded by",
        "`decode` names an extension or a field that no sample of the first shard of the source has, such as `png` "
        "where the pictures are `jpg`, so that these stay as they are.",
    ),
    Code(
        "W505",
        "a rule of WDS_REWRITE that matches nothing",
        "The regex is matched at the start of a shard's URL as the spec spells it, and changes none of them.",
    ),
    Code(
        "W506",
        "an AIStore that is not used",
        "AIS_ENDPOINT says where a cluster is, and neither USE_AIS_FOR nor `use_for` which URLs it serves: shards of "
        "buckets are read past it.",
    ),
    Code(
        "W507",
        "an epoch that is a small part of the data",
        "`epoch` counts samples, not passes or epochs. How many epochs there are is a matter of the training loop.",
    ),
    Code(
        "W508",
        "one file in two sources",
        "The same file is a shard of two sources, or twice a shard of one, by different patterns or paths: it comes "
        "more often than the shares say.",
    ),
    Code("W511", "an epoch that ranks round", "An epoch is a whole number of batches of all ranks together."),
    Code(
        "W512",
        "fewer shards than slots",
        "Each shard is read in parts by several workers, and each part by a walk through all of it.",
    ),
    Code("W513", "much memory", "Windows and buffers hold a large part of this machine's memory."),
)


SAMPLE_CODES = table(
    Code(
        "D201",
        "a sample without a field",
        "The spec asks for a field that the sample has no file for. Name an alternative (`jpg;png`), or set "
        "`missing: skip` or `none`.",
    ),
    Code(
        "D202", "a field that cannot be decoded", "Its bytes are damaged, or not what their extension says."
    ),
    Code(
        "D203",
        "a function that fails on a sample",
        "A function of `map`, `select`, `stage` or `decode` raised an error. `errors: {skip: [shard, decode, "
        "map]}` skips such samples in training.",
    ),
    Code(
        "D204",
        "a member that comes twice",
        "Two members of a sample have one name (letter case does not count): the shard was packed or appended to "
        "twice. Pack it anew with each name once.",
    ),
    Code(
        "D205",
        "a sample that is torn apart",
        "The files of a sample do not stand beside each other: its key comes back after others. Sort the files by "
        "name when packing (`tar --sort=name`, `wdspec sort`).",
    ),
    Code(
        "D206",
        "two members for one field",
        "Two files of a sample become the same field. Give them different ones in `extensions` or `rename`.",
    ),
    Code(
        "D208", "numbers that are none", "An array or a number is NaN or infinite, and so will the loss be."
    ),
    Code("D209", "a negative class", "A class (`cls`) is below 0, which no loss takes for an index."),
    Code(
        "D210",
        "values that do not make a batch",
        "Values of one field differ in shape or type, so that the first batch that holds two kinds is an error.",
    ),
    Code(
        "D211",
        "samples that cannot be read at all",
        "A library is not installed, a function cannot be imported, or a pickle is not allowed: no sample of the "
        "source can be made as the spec asks, so that only its shards were looked at.",
    ),
    Code(
        "D212",
        "an image that is cut",
        "The file of an image ends before its format does. (Images that the spec decodes are decoded; of others only "
        "the first and last bytes are looked at.)",
    ),
    Code(
        "D213",
        "a value that is not as expected",
        "`expect` in the spec says what a field is, and in this sample it is not. Mend the data, leave such "
        "samples out with `select`, or correct `expect`. In training `errors` decides, as for what cannot be "
        "decoded.",
    ),
    Code(
        "D214",
        "another number of samples than expected",
        "`expect: {samples: …}` says how many the source has.",
    ),
    Code(
        "D215", "more samples left out than expected", "`expect: {dropped: …}` says what part of them may be."
    ),
    Code(
        "D301",
        "a key in several shards",
        "Samples of one source have one key. With the same content one of them is too many; with different files "
        "it is one sample, split over two shards; else keys cannot tell samples apart.",
    ),
    Code(
        "D302",
        "one sample in two sources",
        "Samples with the same bytes come from two sources of the spec: they come more often than the shares say.",
    ),
    Code(
        "D303",
        "samples with different fields",
        "Most samples of a source have some fields, and a few have others. A batch takes what all have: `extensions` "
        "chooses, and `missing` says what happens to the rest.",
    ),
    Code(
        "D304",
        "samples with the same bytes",
        "Samples of one source, under different keys, hold the same bytes in their largest field.",
    ),
    Code(
        "D305",
        "images of another mode",
        "A few images of a field are grey, CMYK, with a palette or with 16 bits, and most are not. Decoders "
        "convert them; colours of CMYK may come out otherwise than meant.",
    ),
    Code(
        "D306",
        "images of an unusual size",
        "An image is a pixel wide, or many times larger than most: a placeholder, or what fills the memory.",
    ),
    Code(
        "D307",
        "shards that are sorted",
        "Neighbours have one class far more often than by chance, and what a slot holds for shuffling spans only "
        "few of the classes. `interleave` reads more shards at a time; samples that were shuffled before they were "
        "packed need none of it.",
    ),
    Code(
        "D308",
        "a sample that is also in the other spec",
        "What training sees is also in what it is judged by: the same bytes, or images that look the same (a hash of "
        "their brightness differs in at most 3 of 64 bits).",
    ),
    Code(
        "D309",
        "a compression that the name does not tell",
        "The shard is compressed and not called so, or the reverse. wdspec goes by the first bytes; other readers "
        "go by the name, and read noise or nothing.",
    ),
    Code(
        "D310",
        "a class that stands alone",
        "A class is far above all others, and only few samples have it: a mistake of labelling, or the marker of "
        "something unknown (255, -1, 65535).",
    ),
    Code(
        "D311",
        "a shard that is much smaller",
        "It has less than a tenth of the samples that shards of its source have: it may not have been written whole.",
    ),
    Code("D312", "a field without a byte", "A file of 0 bytes: its writer failed, or had nothing to write."),
)


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
