"""What an engine of `wdspec process` adds to a shard: two workers on this machine, for each engine.

    python benchmarks/engines.py            # ten minutes, 4 GB in a temporary folder
    python benchmarks/engines.py --quick    # next to nothing: checks that it runs

Each engine copies a few shards, or decodes their images and keeps a number of each, then more of them, in turns. The
time of a shard is the difference in time divided by the difference in shards, so that starting does not count. Times
are by the clock: medians of the turns.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from decoding import picture
from material import brace_pattern, write_shards

COMMAND = [sys.executable, "-c", "from wdspec.cli.main import main; main()", "process"]


PICTURE = picture(500, 375)
SCORE = """def score(sample):
    return {"__key__": sample["__key__"], "txt": str(sample["jpg"].mean())}
"""
JOBS = {"copying": "", "decoding": "defaults: {decode: {jpg: rgb8}}\nmap: functions:score\n"}


def make(rng: random.Random, index: int) -> dict[str, bytes]:
    """A JPEG, followed by a few unique bytes, and a class."""
    return {"jpg": PICTURE + rng.randbytes(8), "cls": b"%d" % index}


@contextmanager
def dask(folder: Path) -> Iterator[list[str]]:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        yield [f"dask:{cluster.scheduler_address}"]


@contextmanager
def ray(folder: Path) -> Iterator[list[str]]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        yield [f"ray:{cluster.address}"]
    finally:
        cluster.shutdown()


def run(job: Path, engine: list[str], ranks: int) -> float:
    """Return the seconds that an engine takes for a job."""
    output = job.parent / "out"
    shutil.rmtree(output, ignore_errors=True)
    began = time.perf_counter()
    others = [
        subprocess.Popen(
            [*COMMAND, job.name, "--output", "out", "--engine", *engine],
            cwd=job.parent,
            env={**os.environ, **({"RANK": str(rank), "WORLD_SIZE": str(ranks)} if ranks > 1 else {})},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(ranks)
    ]
    for other in others:
        if other.wait():
            raise SystemExit(f"{' '.join(map(str, other.args))} failed")
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small shards, once")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    megabytes, few, many, turns = (1, 2, 4, 1) if options.quick else (100, 4, 12, options.turns)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        here = Path(folder)
        write_shards(here, "in", make, many * megabytes, many)
        (here / "functions.py").write_text(SCORE)
        jobs = {}
        for kind, keys in JOBS.items():
            for count in (few, many):
                jobs[kind, count] = here / f"{kind}-{count}.yaml"
                listed = brace_pattern(here, "in", count)
                jobs[kind, count].write_text(f"dataset:\n  - shards: '{listed}'\noutput: out/\n{keys}")
        engines = {
            "local": (["local", "--jobs", "2"], 1),
            "dask": (stack.enter_context(dask(here)), 1),
            "ray": (stack.enter_context(ray(here)), 1),
            "torchrun": ([f"torchrun:{here / 'ranks'}"], 2),
        }
        times: dict[tuple[str, str, int], list[float]] = {}
        for _ in range(turns):
            for name, (engine, ranks) in engines.items():
                for (kind, count), job in jobs.items():
                    times.setdefault((kind, name, count), []).append(run(job, engine, ranks))
    print(f"Shards of {megabytes} MB, {few} and {many} of them, two workers.\n")
    print("| job | engine | seconds per shard | vs local | start-up, s |")
    print("|--|--|--:|--:|--:|")
    for kind in JOBS:
        each = {}
        for name in engines:
            least, most = (statistics.median(times[kind, name, count]) for count in (few, many))
            each[name] = (most - least) / (many - few)
            difference = each[name] / each["local"] - 1
            print(
                f"| {kind} | {name} | {each[name]:.3f} | {difference:+.1%} | {least - few * each[name]:.1f} |"
            )


if __name__ == "__main__":
    main()
