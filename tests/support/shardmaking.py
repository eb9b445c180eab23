"""Shards and specs for tests."""

import io
import tarfile
from pathlib import Path

from runs import Listed

from wdspec.planning.topology import Seat


def write_shard(path, samples):
    """A tar of samples: (key, {suffix: bytes})."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for key, fields in samples:
            for suffix, data in fields.items():
                info = tarfile.TarInfo(f"{key}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def write_source(folder, name, shards=4, samples=10):
    """`shards` tars of `samples` samples each, with fields txt and cls; returns the braces that name them."""
    for shard in range(shards):
        write_shard(
            Path(folder) / f"{name}-{shard:03d}.tar",
            [
                (
                    f"{name}{shard:03d}{i:04d}",
                    {"txt": f"{name} {shard} {i}".encode(), "cls": str(shard * samples + i).encode()},
                )
                for i in range(samples)
            ],
        )
    return f"{folder}/{name}-{{000..{shards - 1:03d}}}.tar"


def spec_of_two(folder):
    """A spec that mixes two sources of 90 samples evenly, over two ranks with two workers; their shards are written."""
    return {
        "dataset": [
            {"name": name, "shards": write_source(folder, name, 3, 30), "probability": 0.5} for name in "ab"
        ],
        "defaults": {"shuffle": 20},
        "batch": 4,
        "epoch": {"batches": 12},
        "elastic": {"ranks": 2, "workers": 2},
    }


UNEVEN = {"a": (5, 17), "b": (1, 9), "c": (3, 40), "d": (12, 3), "e": (2, 25), "f": (7, 8)}
"""Name of a source -> its shards, and the samples of each."""


def write_uneven_sources(folder):
    """The shards of `UNEVEN`; every fourth sample lacks `cls`."""
    for name, (shards, samples) in UNEVEN.items():
        for shard in range(shards):
            write_shard(
                folder / f"{name}-{shard:03d}.tar",
                [
                    (
                        f"{name}{shard:03d}{i:04d}",
                        {"txt": b"x"} if i % 4 == 3 else {"txt": b"x", "cls": b"%d" % i},
                    )
                    for i in range(samples)
                ],
            )


def keys(items):
    """The keys in a list of batches, batch by batch."""
    return [batch["__key__"] for batch in items]


def reference(spec, ranks, workers, rank, count):
    """The keys of the first `count` batches of a rank, read in one process without a break."""
    reader = Listed.of(spec).run(Seat(rank, ranks), workers).reader()
    return [[sample["__key__"] for sample in reader.batch(number)] for number in range(count)]
