"""The first minute of a large job: 10⁶ shards, 4,096 ranks x 8 workers, 8 ranks a node.

    python -m benchmarks.cluster_start            # two minutes
    python -m benchmarks.cluster_start --quick    # a small job: checks that it runs

What a node lists, opens, reads, caches and requests. The plan, the draws and the order of shards are the real ones, of
all 64 slots of the node. Requests are counted in a real S3 (moto), for one shard and for one list, and multiplied. The
lock file is really written and read. Shards have 500 samples of 100 KB; a rank takes 2 batches of 32 a second.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import wdspec
from benchmarks.places import far_s3
from benchmarks.tables import Table, show
from wdspec.planning.order import Delays
from wdspec.planning.plan import Plan
from wdspec.shards.lock import Lock, LockedSource
from wdspec.stores.store import ObjectStat
from wdspec.urls.urls import ShardRun

PER_SHARD, BYTES = 500, 100_000
"""Samples of a shard, and bytes of a sample."""
RANKS_OF_NODE, BATCH, STEPS = 8, 32, 120
"""Ranks of a node, samples of a batch of a rank, and steps in the minute."""
PAGE = 1000
"""Keys in an answer of S3 to a list request."""
READ = """
import sys, wdspec
spec = {"dataset": [{"name": "s", "shards": sys.argv[1]}], "epoch": int(sys.argv[2]), "batch": 1}
if sys.argv[3]:
    spec["cache"] = sys.argv[3]
with wdspec.loader(spec) as loader:
    for batch in loader:
        pass
"""


def spec_of(sources: int, shards: int, ranks: int, workers: int) -> wdspec.Spec:
    """A spec with even shares."""
    each = shards // sources
    dataset = [
        {"name": f"s{n:02d}", "shards": f"s3://bucket/s{n:02d}-{{000000..{each - 1:06d}}}.tar"}
        for n in range(sources)
    ]
    elastic = {"ranks": ranks, "workers": workers}
    return wdspec.load({"dataset": dataset, "elastic": elastic, "batch": BATCH, "mix": {"by": "equal"}})


def samples_read(delays: Delays, given: int) -> int:
    """How many samples are read, on average, to give this many: those that are held come on top."""
    read = float(given)
    for _ in range(50):
        read = given + float(delays.held_after(np.array([read]))[0])
    return math.ceil(read) if given else 0


@dataclass
class FirstMinute:
    """What one node opens and reads."""

    opened: int = 0
    """Shards that slots open."""
    different: int = 0
    """Different ones."""
    open_at_once: int = 0
    read: int = 0
    """Bytes."""
    most_of_worker: int = 0
    """Shards that one worker has open at once, at most."""

    @property
    def copied(self) -> int:
        """Bytes of the cached copies of all opened shards, once they are complete."""
        return self.different * PER_SHARD * BYTES


def simulate(plan: Plan, ranks: range) -> FirstMinute:
    """Follow the slots of a node through a minute, by the real draws and the real order of shards."""
    found, draws, workers = FirstMinute(), plan.draws(), plan.topology.workers
    seen: set[tuple[int, int]] = set()
    for rank in ranks:
        for worker in range(workers):
            slot = plan.topology.slot(rank, worker)
            drawn = draws.batches(rank, worker, 0, STEPS // workers).ravel()
            at_once = 0
            for number, given in zip(*np.unique(drawn, return_counts=True), strict=True):
                source = plan.sources[int(number)]
                read = samples_read(source.delays, int(given))
                lanes = min(source.interleave, read)
                turns = lanes + lanes * (read // (lanes * PER_SHARD))
                seen.update((int(number), source.order.entry(slot, turn).shard) for turn in range(turns))
                found.opened += turns
                found.read += read * BYTES
                at_once += lanes
            found.open_at_once += at_once
            found.most_of_worker = max(found.most_of_worker, at_once)
    found.different = len(seen)
    return found


def requests_of_store(quick: bool) -> tuple[float, float, float]:
    """Requests to list `PAGE` shards, to read one shard without a cache, and to read it with one."""
    keys, shards = (30, 2) if quick else (2500, 3)
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as text:
        folder = Path(text)
        (folder / "empty").write_bytes(bytes(10_240))
        objects = {f"many-{number:06}.tar": folder / "empty" for number in range(keys)}
        with wdspec.ShardWriter(str(folder / "read-%03d.tar"), maxcount=PER_SHARD, verbose=0) as writer:
            for number in range(PER_SHARD * shards):
                writer.write({"__key__": f"{number:06}", "bin": os.urandom(BYTES)})
        objects |= {f"read-{n:03}.tar": folder / f"read-{n:03}.tar" for n in range(shards)}
        with far_s3(objects) as store:
            environment = {**os.environ, **store.environment}

            def requests(code: str, *arguments: str) -> int:
                before = store.requests()
                subprocess.run([sys.executable, "-c", code, *arguments], env=environment, check=True)
                return store.requests() - before

            planning = "import sys, wdspec; wdspec.plan({'dataset': [{'shards': sys.argv[1]}]})"
            listing = requests(planning, f"{store.root}many-*.tar") / math.ceil(keys / PAGE)

            def of_one(cache: str) -> float:
                """Requests of one more shard: those of several, less those of one, in new processes."""
                counts = [
                    requests(
                        READ,
                        f"{store.root}read-{{000..{count - 1:03}}}.tar",
                        str(PER_SHARD * count),
                        cache and str(folder / f"{cache}-{count}"),
                    )
                    for count in (1, shards)
                ]
                return (counts[1] - counts[0]) / (shards - 1)

            plain, cached = of_one(""), of_one("cache")
    return listing, plain, cached


def lock_of(shards: int) -> tuple[float, float, float]:
    """Megabytes of a lock of this many shards, seconds to plan with it, and MiB that this takes."""
    names = tuple(f"s3://bucket/part-{number:07}-of-{shards:07}.tar" for number in range(shards))
    objects = tuple(ObjectStat(PER_SHARD * BYTES, f'"{number:032x}"') for number in range(shards))
    asked = ("s3://bucket/part-*.tar",)
    lock = Lock({"s": LockedSource(asked, names[0], (ShardRun(names, "", ""),), objects)})
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as folder:
        path, spec = Path(folder, "train.lock.json"), Path(folder, "train.yaml")
        path.write_text(lock.text)
        spec.write_text(json.dumps({"dataset": [{"name": "s", "shards": asked[0]}]}))
        code = """
import re, sys, time, wdspec
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
spec = wdspec.load(sys.argv[1])
wdspec.plan({"dataset": [{"shards": "gs://none/{0..9}.tar"}]})
before, start = peak(), time.process_time()
wdspec.plan(spec, ranks=4096, workers=8, lock=sys.argv[2])
print(time.process_time() - start, peak() - before)
"""
        done = subprocess.run(
            [sys.executable, "-c", code, str(spec), str(path)], capture_output=True, text=True, check=True
        )
        seconds, grown = map(float, done.stdout.split())
        return path.stat().st_size / 1e6, seconds, grown / 1024


def tables(quick: bool) -> Iterator[Table]:
    shards, ranks, workers = (2_000, 16, 2) if quick else (1_000_000, 4096, 8)
    nodes = ranks // RANKS_OF_NODE
    listing, plain, cached = requests_of_store(quick)
    pages = math.ceil(shards / PAGE) * listing
    size, seconds, memory = lock_of(shards)
    yield Table(
        f"listing {shards:,} shards at the start of {ranks:,} ranks",
        ["how shards are named", "requests of a rank", "of a node", "of the job", "what a rank does instead"],
        [
            ["a glob or a folder", *(f"{pages * n:,.0f}" for n in (1, RANKS_OF_NODE, ranks)), "–"],
            [
                "the same, with `lock`",
                "0",
                "0",
                "0",
                f"reads {size:.0f} MB, {seconds:.1f} s, {memory:.0f} MiB",
            ],
            ["braces", "0", "0", "0", "nothing"],
        ],
    )
    lines = []
    for sources, interleave in ((1, None), (1, 1), (50, None)):
        spec = spec_of(sources, shards, ranks, workers)
        if interleave:
            defaults = {"interleave": interleave}
            dataset = [source.model_copy(update=defaults) for source in spec.dataset]
            spec = spec.model_copy(update={"dataset": tuple(dataset)})
        plan = plan_of(spec, ranks, workers)
        minute = simulate(plan, range(RANKS_OF_NODE))
        lines.append(
            [
                f"{sources}, `interleave: {plan.sources[0].interleave}`",
                f"{minute.opened:,}",
                f"{minute.different:,}",
                f"{minute.most_of_worker:,}",
                f"{minute.read / 1e9:.1f}",
                f"{minute.copied / 1e9:.1f}",
                f"{minute.opened * plain:,.0f}",
                f"{minute.different * cached:,.0f}",
                f"{minute.opened * plain * nodes:,.0f}",
            ]
        )
    yield Table(
        f"the first minute of a node ({RANKS_OF_NODE} ranks x {workers} workers), {shards:,} shards in all",
        [
            "sources",
            "shards opened",
            "different",
            "open in a worker",
            "read, GB",
            "copied with `cache`, GB",
            "requests",
            "with `cache`",
            "of all nodes",
        ],
        lines,
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"A list of {PAGE:,} keys is {listing:g} request, a shard {plain:g} without and {cached:g} with a cache "
        f"(counted in moto). Peak memory of the simulation: {peak:.0f} MiB."
    )


def plan_of(spec: wdspec.Spec, ranks: int, workers: int) -> Plan:
    """The plan, and the time it takes."""
    start = time.perf_counter()
    plan = wdspec.plan(spec, ranks=ranks, workers=workers)
    print(f"planned in {time.perf_counter() - start:.2f} s", file=sys.stderr)
    return plan


if __name__ == "__main__":
    show(tables, __doc__)
