"""What can be doubtful about a spec on a topology, beside the data that it names: what `wdspec explain` finds."""

from __future__ import annotations

from wdspec.spec.problems.codes import Code, table

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
