"""What can be wrong with samples, and what is doubtful about a collection of them: found by `wdspec check`."""

from __future__ import annotations

from wdspec.spec.problems.codes import Code, table

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
