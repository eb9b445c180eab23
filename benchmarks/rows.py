"""The rows of `python -m benchmarks`, and their targets."""

from __future__ import annotations

from dataclasses import dataclass

BATCH = 64
SIDE = 224
SOURCES = (1, 5, 50, 500, 1000)
SPEC = "wdspec, a spec"


@dataclass(frozen=True)
class Row:
    """What to read, and how."""

    title: str
    data: str
    kind: str
    """`raw`: samples as bytes, in order. `mix`: three sources, shuffled, decoded, batched. `batch`, `crop`: one source,
    also batched. `sources`: samples as bytes of one source and of many. `far`: samples as bytes of shards in a store.
    `cached`: these once more, from a cache. `audio`: decoded audio."""
    workers: int = 0
    place: str = ""
    """`http` or `s3`: the shards are read from there."""
    floats: bool = False
    """Images as float32 with channels first, normalized."""
    reference: str = "webdataset"
    """The contender whose figures divide those of the others."""


ROWS = {
    "raw-text": Row("raw samples, 0.7 KB txt + json, one process", "text", "raw"),
    "raw-jpg": Row("raw samples, 40 KB jpg + cls + json, one process", "jpg40", "raw"),
    "mix": Row("3 sources mixed, shuffled, txt + json decoded, batches of 64, one process", "text", "mix"),
    "text-0": Row("batches of 64 texts, no worker", "text", "batch"),
    "text-2": Row("batches of 64 texts, 2 workers", "text", "batch", 2),
    "npy16-0": Row("batches of 64 samples of 16 small arrays, no worker", "npy16", "batch"),
    "npy16-2": Row("batches of 64 samples of 16 small arrays, 2 workers", "npy16", "batch", 2),
    "jpg40-0": Row("40 KB jpg, random crop to 224, batches of 64, no worker", "jpg40", "crop"),
    "jpg40-1": Row("40 KB jpg, random crop to 224, batches of 64, 1 worker", "jpg40", "crop", 1),
    "jpg40-2": Row("40 KB jpg, random crop to 224, batches of 64, 2 workers", "jpg40", "crop", 2),
    "jpg40f-0": Row("the same as float32, normalized, no worker", "jpg40", "crop", floats=True),
    "jpg40f-2": Row("the same as float32, normalized, 2 workers", "jpg40", "crop", 2, floats=True),
    "jpg400-2": Row("400 KB jpg, random crop to 224, batches of 64, 2 workers", "jpg400", "crop", 2),
    "audio": Row("2 s of sound as flac, decoded, + json, one process", "audio", "audio"),
    "sources-text": Row(
        "samples of 0.7 KB as bytes, shuffled, from one source and from many, one process",
        "text",
        "sources",
        reference="wdspec, 1 source",
    ),
    "sources-jpg": Row(
        "samples of 40 KB as bytes, shuffled, from one source and from many, one process",
        "jpg40",
        "sources",
        reference="wdspec, 1 source",
    ),
    "http-text": Row(
        "samples of 0.7 KB as bytes, from a server 20 ms away that sends 50 MB/s, shards of 5 MB, one process",
        "text",
        "far",
        place="http",
    ),
    "http-jpg": Row(
        "samples of 40 KB as bytes, from a server 20 ms away that sends 50 MB/s, shards of 5 MB, one process",
        "jpg40",
        "far",
        place="http",
    ),
    "s3-jpg": Row(
        "samples of 40 KB as bytes, from S3 (moto) 20 ms away, objects of 5 MB, one process",
        "jpg40",
        "far",
        place="s3",
    ),
    "cached-jpg": Row(
        "samples of 40 KB as bytes, the second time: from a cache near that server, one process",
        "jpg40",
        "cached",
        place="http",
    ),
}
BATCHED = ("mix", "batch", "crop")
"""Kinds of rows whose items are batches."""


@dataclass(frozen=True)
class Target:
    """A target for the ratio of two contenders, or of two rows."""

    row: str
    who: str
    least: float
    than: str
    than_row: str = ""
    """By default the same row."""
    cores: int = 1
    """Over which the processor time of `who` is spread, where that of `than` is not."""
    by: str = "processor time"
    """Or `the clock`, where a line decides."""


TARGETS = [
    Target("raw-text", SPEC, 18, "webdataset"),
    Target("raw-text", SPEC, 0.95, "wdspec, stages"),
    Target("raw-text", SPEC, 40, "megatron-energon"),
    Target("raw-text", SPEC, 15, "Hugging Face datasets"),
    Target("raw-jpg", SPEC, 9, "webdataset"),
    Target("mix", SPEC, 18, "webdataset"),
    Target("text-2", SPEC, 1.6, SPEC, "text-0", cores=2),
    Target("text-2", SPEC, 12, "webdataset"),
    Target("npy16-2", SPEC, 1.6, SPEC, "npy16-0", cores=2),
    Target("npy16-2", SPEC, 16, "webdataset"),
    Target("jpg40-0", SPEC, 1.55, "webdataset, simplejpeg"),
    Target("jpg40f-0", SPEC, 1.35, "webdataset, simplejpeg"),
    Target("jpg40-2", SPEC, 2, "webdataset, simplejpeg", by="the clock"),
    Target("jpg40-2", SPEC, 0.9, "limit: bare decoding", by="the clock"),
    Target("jpg40f-2", SPEC, 1.8, "webdataset, simplejpeg", by="the clock"),
    Target("jpg400-2", SPEC, 4, "webdataset", by="the clock"),
    Target("jpg400-2", SPEC, 1.4, "wdspec, all pixels"),
    *(
        Target(row, f"wdspec, {count} sources", least, "wdspec, 1 source")
        for row in ("sources-text", "sources-jpg")
        for count, least in ((5, 0.95), (50, 0.85), (500, 0.7))
    ),
    Target("http-text", SPEC, 0.95, "limit: the line", by="the clock"),
    Target("http-jpg", SPEC, 0.95, "limit: the line", by="the clock"),
    Target("s3-jpg", SPEC, 1, "boto3, objects whole", by="the clock"),
]
WHY = {
    (
        "raw-text",
        "webdataset",
    ): "the tar reader, which cuts samples out of a window all at once, takes three fifths",
    ("raw-text", "wdspec, stages"): "it keeps the position of the run at every sample",
    ("raw-jpg", "webdataset"): "more than half is what `cat` takes: copying 40 KB",
    (
        "mix",
        "webdataset",
    ): "the tar reader and the two fields' decoders take a quarter each, collating an eighth",
    ("text-2", SPEC): "the hand-over takes a fifth; the two rows took no turns with each other",
    ("text-2", "webdataset"): "decoding, shuffling and collating a text take as long as reading it",
    ("sources-text", "wdspec, 1 source"): "samples are drawn one by one, and blocks to shuffle are smaller",
    ("sources-jpg", "wdspec, 1 source"): "no function is called more often, and each takes a little longer",
    (
        "s3-jpg",
        "boto3, objects whole",
    ): "moto, its proxy and much else shared the machine; alone (object_stores.py) 1.02x",
}
"""What keeps a target, as a profile shows; said where it is not met."""
