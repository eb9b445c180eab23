"""What a companion costs beyond its own reading, and what a spec without companions pays: at most 2 µs, and nothing.

    python benchmarks/companions.py [--against CHECKOUT]

A sample with one companion is compared with the same sample without one, plus the companion read as a sample of a mix
of its own. All three are read in turns, in processor time of one process, and each figure is the median of 15 turns.
With `--against`, a spec without companions is also read in turns with another checkout, each in a process of its own.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

SAMPLES, SIZE, TURNS = 64_000, 64, 15


def write_shards(folder):
    import wdspec

    for name, shards in (("a", 8), ("n", 4)):
        for shard in range(shards):
            with wdspec.ShardWriter(f"{folder}/{name}-{shard}-%d.tar", verbose=0) as writer:
                for number in range(2000):
                    text = f"{name} {shard} {number} " * 8
                    writer.write({"__key__": f"{shard}-{number:06d}", "txt": text.encode(), "cls": b"7"})


def make_specs(folder):
    own = {"name": "a", "shards": f"{folder}/a-{{0..7}}-0.tar", "extensions": "txt cls"}
    pool = {"shards": f"{folder}/n-{{0..3}}-0.tar", "extensions": "txt cls"}
    rest = {"fields": ["txt", "other"], "batch": SIZE, "elastic": {"ranks": 1, "workers": 1}}
    return {
        "plain": {"dataset": [{**own, "make": {"other": {"take": "txt"}}}], **rest},
        "companion": {
            "dataset": [{**own, "companions": {"near": pool}, "make": {"other": {"take": "near.txt"}}}],
            **rest,
        },
        "alone": {"dataset": [{"name": "n", **pool}], **rest, "fields": ["txt"]},
    }


def open_batches(spec):
    import wdspec

    batches = iter(wdspec.loader(spec, num_workers=0))
    for _ in islice(batches, 100):
        pass
    return batches


def spend(batches):
    """µs of processor time of a sample."""
    start = time.process_time()
    for _ in islice(batches, SAMPLES // TURNS // SIZE):
        pass
    return (time.process_time() - start) * 1e6 / (SAMPLES // TURNS // SIZE * SIZE)


def interval(values):
    """The median of values, and the middle 95 % of medians of values drawn from them."""
    rng = random.Random(0)
    drawn = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(2000))
    return f"{statistics.median(values):.3f} [{drawn[50]:.3f}, {drawn[-51]:.3f}]"


def compare_costs(folder):
    opened = {name: open_batches(spec) for name, spec in make_specs(folder).items()}
    found = {name: [] for name in opened}
    for _ in range(TURNS):
        for name, batches in opened.items():
            found[name].append(spend(batches))
    for name, values in found.items():
        print(f"{name}: {interval(values)} µs a sample")
    more = [
        whole - plain - alone
        for whole, plain, alone in zip(found["companion"], found["plain"], found["alone"], strict=True)
    ]
    print(f"a companion, without its reading: {interval(more)} µs, where 2 µs are 5 % of 40 µs")


def compare_checkouts(folder, other):
    here = str(Path(__file__).parents[1])
    ratios = []
    for _ in range(TURNS):
        took = []
        for path in (here, other):
            command = [sys.executable, __file__, "--measure", folder]
            environment = {**os.environ, "PYTHONPATH": path}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            took.append(float(done.stdout))
        ratios.append(took[0] / took[1])
    print(f"a spec without companions, beside {other}: {interval(ratios)} of its time")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="CHECKOUT")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        batches = open_batches(make_specs(options.measure)["alone"])
        print(min(spend(batches) for _ in range(TURNS)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_shards(folder)
        compare_costs(folder)
        if options.against:
            compare_checkouts(folder, options.against)


if __name__ == "__main__":
    main()
