"""wdspec: a spec, and stages in Python."""

from __future__ import annotations

import tempfile
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.contenders.shared import Contender, Counts, again_and_again, batch_of, of_kinds
from benchmarks.rows import BATCH, ROWS, SIDE, SOURCES, SPEC, Row
from benchmarks.samples import repeated, samples_in, shards_of

OPENED = {"text": 200, "jpg40": 64}
"""Samples of each of many sources before the clock starts: more than it holds, and than a block has that is read."""
HELD = 4000
"""Samples before it starts where there are few: all that is to be held for shuffling is read by then."""
ENDLESS = 10**12
"""Samples of an epoch."""


def raw(row: Row, folder: Path, times: int = 1) -> Counts:
    import wdspec

    shards = shards_of(repeated(folder, row.data, times), row.data, times)
    source = {"name": "a", "shards": shards, "decode": "raw", "order": "sequential", "shuffle": 0}
    return again_and_again(lambda: wdspec.compile({"dataset": [source]}))


def stages_raw(row: Row, folder: Path) -> Counts:
    import wdspec

    return again_and_again(lambda: wdspec.WebDataset(shards_of(folder, row.data)))


def mix(row: Row, folder: Path, times: int = 1) -> Counts:
    import wdspec

    shares = {"text": 0.5, "text-b": 0.3, "text-c": 0.2}
    sources = [
        {
            "name": name,
            "shards": shards_of(repeated(folder, name, times), name, times),
            "probability": share,
            "shuffle": 1000,
        }
        for name, share in shares.items()
    ]
    return again_and_again(
        lambda: wdspec.loader({"dataset": sources, "batch": BATCH}, num_workers=0), batch_of
    )


def batches(row: Row, folder: Path, times: int = 1, options: str = "", kind: str = "processes") -> Counts:
    import wdspec

    shards = shards_of(repeated(folder, row.data, times), row.data, times)
    source: dict[str, Any] = {"name": "a", "shards": shards}
    if row.kind == "crop":
        values = "torchrgb+normalize=imagenet" if row.floats else "rgb8"
        source |= {"decode": f"{values}+random_resized_crop={SIDE}{options}", "extensions": "jpg"}
    elif row.data == "text":
        source["extensions"] = "txt"
    spec = {"dataset": [source], "batch": BATCH, "loader": {"kind": kind}}
    return again_and_again(lambda: wdspec.loader(spec, num_workers=row.workers), batch_of)


def audio(row: Row, folder: Path) -> Counts:
    import wdspec

    source = {"name": "a", "shards": shards_of(folder, row.data), "order": "sequential", "shuffle": 0}
    return again_and_again(lambda: wdspec.compile({"dataset": [source], "defaults": {"decode": "audio"}}))


def sources(count: int, row: Row, folder: Path, **mixing: Any) -> Counts:
    """One spec of `count` sources with a share each, with the same shards under separate names."""
    import wdspec

    places = [repeated(folder, row.data, 1, of=f"{number:04}") for number in range(count)]
    spec = {
        "defaults": {"decode": "raw"},
        "dataset": [
            {"name": place.name, "shards": shards_of(place, row.data), "weight": 1} for place in places
        ],
        "epoch": ENDLESS,
        **mixing,
    }
    counts = again_and_again(lambda: wdspec.compile(spec))
    yield next(counts)
    next(islice(counts, max(HELD, OPENED[row.data] * count) - 1, None))
    yield from counts


def far(row: Row, folder: Path, **source: Any) -> Counts:
    import wdspec

    spec = {
        "dataset": [{"name": "a", "shards": shards_of(folder, row.data), "decode": "raw", **source}],
        "epoch": ENDLESS,
    }
    return again_and_again(lambda: wdspec.compile(spec))


def cached(row: Row, folder: Path) -> Counts:
    """From the second epoch on."""
    cache = tempfile.mkdtemp(dir=folder)
    counts = far(row, folder, order="sequential", shuffle=0, cache={"dir": cache})
    next(islice(counts, samples_in(folder, row.data) - 1, None))
    return counts


SCALED = ("raw-text", "raw-jpg", "mix", "text-2", "npy16-2", "jpg40-2")
"""Rows that are also read from many times the data."""
IN_ORDER = {"order": "sequential", "shuffle": 0}
OURS = {
    SPEC: Contender(
        "",
        of_kinds(
            raw=raw,
            mix=mix,
            batch=batches,
            crop=batches,
            audio=audio,
            far=partial(far, **IN_ORDER),
            cached=cached,
        ),
    ),
    "wdspec, stages": Contender("", of_kinds(raw=stages_raw)),
    "wdspec, all pixels": Contender(
        "", of_kinds("jpg40-2", "jpg400-2", crop=partial(batches, options="+dct_scaling=false"))
    ),
    "wdspec, only the crop": Contender("", of_kinds(crop=partial(batches, options="+roi_decoding"))),
    "wdspec, Pillow's resizer": Contender("", of_kinds(crop=partial(batches, options="+resizer=pillow"))),
    "wdspec, threads": Contender(
        "",
        of_kinds(*(name for name, row in ROWS.items() if row.workers), crop=partial(batches, kind="threads")),
    ),
    "wdspec, shuffled": Contender("", of_kinds(far=far)),
    **{
        f"wdspec, {count} source{'s' * (count > 1)}": Contender("", of_kinds(sources=partial(sources, count)))
        for count in SOURCES
    },
    "wdspec, 5 sources, draw: random": Contender(
        "", of_kinds(sources=partial(sources, 5, mix={"draw": "random"}))
    ),
    **{
        f"wdspec, {times} times the data": Contender(
            "", of_kinds(*SCALED, **{kind: partial(read, times=times) for kind, read in readers.items()})
        )
        for times in (10, 100)
        for readers in [{"raw": raw, "mix": mix, "batch": batches, "crop": batches}]
    },
}
