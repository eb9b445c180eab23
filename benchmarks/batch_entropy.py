"""How mixed batches from sorted shards are: the entropy of their classes, compared with webdataset, both reading tars.

python benchmarks/batch_entropy.py           # the table, in three minutes
python benchmarks/batch_entropy.py --quick   # next to nothing: checks that it runs

40 shards of 500 samples are sorted by class: four shards of each of ten classes. Batches of 64 of the second pass are
measured; with all classes equally frequent a batch has 3.32 bits, with a single class none. *Slots*: with 8, each batch
comes from one of 8 slots (workers), which share the shards.
"""

from __future__ import annotations

import argparse
import io
import math
import random
import statistics
import tarfile
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import webdataset

import wdspec
from wdspec.planning.topology import Seat
from wdspec.read.pass_count import with_counts
from wdspec.run.run import make_run
from wdspec.shards.shards import list_readable_shards, plan_shards

CLASSES, BATCH = 10, 64


def write(folder: Path, shards: int, samples: int) -> list[str]:
    """Shards sorted by class; a sample's class is in its key."""
    paths = []
    for shard in range(shards):
        paths.append(str(folder / f"{shard:03d}.tar"))
        with tarfile.open(paths[-1], "w") as tar:
            for n in range(samples):
                data = str(shard * CLASSES // shards).encode()
                member = tarfile.TarInfo(f"{shard:03d}{n:06d}.cls")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return paths


def entropy(classes: Iterable[str], count: int) -> float:
    """Mean entropy in bits of the batches among the first `count` samples, by their classes."""
    stream, found = iter(classes), []
    for _ in range(count // BATCH):
        counts = Counter(islice(stream, BATCH)).values()
        found.append(-sum(n / BATCH * math.log2(n / BATCH) for n in counts))
    return statistics.mean(found)


def ours(
    paths: list[str], slot: int, slots: int, seed: int, epoch: object = None, **options: object
) -> Iterator[str]:
    """The classes of one slot's samples, endlessly; the slots divide the samples of an epoch evenly."""
    spec = wdspec.load(
        {
            "seed": seed,
            "dataset": [{"name": "s", "shards": paths, **options}],
            "elastic": {"ranks": 1, "workers": slots},
            "epoch": epoch,
        }
    )
    shards = list_readable_shards(spec)
    shards = with_counts(spec, shards) if spec.is_pass else shards
    reader = make_run(plan_shards(spec, shards, 1, slots), spec, shards, Seat(), slots).reader()
    number = slot
    while True:
        yield reader.batch(number)[0]["cls"]
        number += slots


def theirs(paths: list[str], slot: int, slots: int, seed: int, size: int = 1000) -> Iterator[str]:
    """The classes of the samples of one of webdataset's workers, endlessly, with its usual shuffles."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stages = [
            webdataset.SimpleShardList(paths[slot::slots], seed=seed),
            webdataset.shuffle(100, seed=seed + 1),
            webdataset.tarfile_to_samples(),
            webdataset.shuffle(size, initial=min(100, size), seed=seed + 2),
        ]
        while True:
            for sample in webdataset.DataPipeline(*stages):
                yield sample["cls"].decode()


def everywhere(paths: list[str], samples: int) -> Iterator[str]:
    """The classes of all samples in one random order."""
    rng, classes = (
        random.Random(1),
        [str(s * CLASSES // len(paths)) for s in range(len(paths)) for _ in range(samples)],
    )
    while True:
        rng.shuffle(classes)
        yield from classes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="40 shards of 20 samples")
    samples, seeds = (20, 2) if parser.parse_args().quick else (500, 24)
    shards = 40
    print("| shuffle | bits, 1 slot | bits, 8 slots |\n|--|--:|--:|")
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as folder:
        paths = write(Path(folder), shards, samples)

        def row(name: str, stream: object, **options: object) -> None:
            cells = []
            for slots in (1, 8):
                count = shards * samples // slots
                found = []
                for seed in range(seeds):
                    classes = stream(paths, seed % slots, slots, 10 * seed, **options)  # type: ignore[operator]
                    next(islice(classes, count - 1, count))  # the first pass
                    found.append(entropy(classes, count // BATCH * BATCH or BATCH))
                error = statistics.stdev(found) / math.sqrt(seeds)
                cells.append(f"{statistics.mean(found):.2f} ± {error:.2f}")
            print(f"| {name} | {' | '.join(cells)} |", flush=True)

        print(f"| global | {entropy(everywhere(paths, samples), shards * samples):.2f} | |")
        row("webdataset, `shardshuffle` and `shuffle(1000)`", theirs)
        row("wdspec, by default (`shuffle: 1000`, `interleave: 8`)", ours)
        for lanes in (1, 4, 16):
            row(f"wdspec, `interleave: {lanes}`", ours, interleave=lanes)
        row("wdspec, `shuffle: 5000`", ours, shuffle=5000)
        row("wdspec, a pass with `reshuffle: true`", ours, epoch={"pass": "drop", "reshuffle": True})


if __name__ == "__main__":
    main()
