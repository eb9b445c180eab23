"""Random Lance data sets for tests, and what Lance's own library reads of them."""

import json
import random
import re
import sys
import warnings
from pathlib import Path

import lance
from tables import mixed_table, plain_samples

warnings.filterwarnings("ignore", message="lance is not fork-safe")

UNSUPPORTED = ("counts", "nothing")
"""Columns of `mixed_table` that not all versions of Lance's files can have."""


def write(folder, table, rows=7, **options):
    """Write or extend a data set with fragments of this many rows; return it."""
    return lance.write_dataset(table, str(folder), max_rows_per_file=rows, **options)


def random_dataset(folder, seed, versions=True):
    """Write a data set of random columns, with several fragments, and perhaps deletions and versions; return it."""
    draw = random.Random(seed)
    rows = draw.choice([1, 5, 40, 120])
    table = mixed_table(rows).drop_columns(list(UNSUPPORTED))
    names = draw.sample(table.column_names, draw.randint(1, len(table.column_names)))
    table = table.select(["number", *(name for name in names if name != "number")])
    kind = draw.choice(["2.1", "stable"])
    dataset = write(folder, table, draw.choice([3, 17, 1000]), data_storage_version=kind)
    if versions and draw.random() < 0.5:
        dataset = write(folder, table, 50, mode="append")
    if versions and draw.random() < 0.7:
        dataset.delete(f"number % {draw.choice([2, 3, 7])} = 1")
    return lance.dataset(str(folder))


def expected(dataset):
    """The samples of a data set: what `to_table` of each fragment gives."""
    stem = Path(dataset.uri).stem
    return [
        sample
        for fragment in dataset.get_fragments()
        for sample in plain_samples(fragment.to_table(), f"{stem}-{fragment.fragment_id}")
    ]


def damage(folder, draw):
    """Damage one of the files of a data set."""
    path = draw.choice(sorted(path for path in folder.rglob("*") if path.suffix in (".lance", ".manifest", ".arrow")
                              and path.is_file()))  # fmt: skip
    data = bytearray(path.read_bytes())
    at, size = draw.randrange(len(data)), draw.randrange(1, 64)
    kind = draw.choice(("flip", "cut", "zeros", "lost", "more", "twice", "number", "tail"))
    if kind == "flip":
        data[at] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del data[at:]
    elif kind == "zeros":
        data[at : at + size] = bytes(len(data[at : at + size]))
    elif kind == "lost":
        del data[at : at + size]
    elif kind == "more":
        data[at:at] = draw.randbytes(size)
    elif kind == "twice":
        data[at:at] = data[at : at + size]
    elif kind == "tail":
        data[-draw.randrange(1, min(60, len(data)))] = draw.randrange(256)
    else:
        data[at : at + 4] = draw.choice((b"\xff" * 4, b"\0\0\0\x80", b"\1\0\0\0", draw.randbytes(4)))
    path.write_bytes(data)


def report(folder, seed):
    """Print what reading a damaged data set of a seed gives, as JSON."""
    import wdspec

    place = Path(folder) / f"{seed}.lance"
    right = sum(fragment.count_rows() for fragment in random_dataset(place, seed).get_fragments())
    damage(place, random.Random(seed))
    codes, count = [], 0
    spec = {"dataset": [{"name": "a", "shards": str(place), "missing": "skip"}], "epoch": "pass"}
    try:
        with wdspec.loader(spec, num_workers=0) as loader:
            count = sum(1 for _ in loader)
    except wdspec.WdspecError as error:
        codes.append(error.code)
    # Not the peak of `getrusage`: after `vfork`, that begins with the memory of the process that started this one.
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    line = {
        "seed": seed,
        "code": codes[0] if codes else None,
        "count": count,
        "right": right,
        "memory": int(peak[1]) // 1024,
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    for each in sys.argv[2:]:
        report(sys.argv[1], int(each))
