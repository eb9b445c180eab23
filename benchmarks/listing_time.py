"""The cost of listing shards in a job: by every rank, or by none, with a lock that one command wrote before.

    python -m benchmarks.listing_time            # half a minute
    python -m benchmarks.listing_time --quick    # next to nothing: checks that it runs

A glob over 1,000 shards of S3 (moto) that is 20 ms away. Ranks are processes that plan the spec at the same time;
after all imports, `wdspec.planning` is timed in each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.places import FarStore, far_s3
from benchmarks.tables import Asked, Table, show

RANK = """
import sys, time
import wdspec
wdspec.plan({"dataset": [{"shards": "gs://none/{0..9}.tar"}]})
print("ready", flush=True)
sys.stdin.readline()
started = time.perf_counter()
plan = wdspec.plan(sys.argv[1], ranks=int(sys.argv[2]), lock=sys.argv[3] or None)
print(time.perf_counter() - started, len(plan.sources[0].shards), flush=True)
"""


def slowest(store: FarStore, spec: Path, ranks: int, lock: str, shards: int) -> tuple[float, int]:
    """Seconds of the slowest rank to plan, and the requests of all."""
    environment = {**os.environ, **store.environment}
    command = [sys.executable, "-c", RANK, str(spec), str(ranks), lock]
    processes = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, bufsize=1
        )
        for _ in range(ranks)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    before = store.requests()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    results = [process.communicate()[0].split() for process in processes]
    assert all(int(found) == shards for _, found in results), results
    return max(float(seconds) for seconds, _ in results), store.requests() - before


def tables(quick: bool) -> Iterator[Table]:
    shards, all_ranks = (20, (1,)) if quick else (1000, (1, 8))
    lines = []
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as text:
        empty = Path(text) / "empty.tar"
        empty.write_bytes(bytes(10_240))
        spec = Path(text) / "train.yaml"
        lock = str(Path(text) / "train.lock.json")
        with far_s3({f"s-{number:06}.tar": empty for number in range(shards)}) as store:
            spec.write_text(json.dumps({"dataset": [{"name": "s", "shards": f"{store.root}s-*.tar"}]}))
            before, start = store.requests(), time.perf_counter()
            writes = [str(Path(sys.executable).parent / "wdspec"), "lock", "-o", lock, str(spec)]
            subprocess.run(writes, env={**os.environ, **store.environment}, check=True, capture_output=True)
            taken = time.perf_counter() - start
            lines.append(["`wdspec lock`, once", f"{taken:.2f}", f"{store.requests() - before:,}"])
            for ranks in all_ranks:
                who = f"{ranks} rank{'s' * (ranks > 1)}"
                for how, path in ((f"{who}, each lists", ""), (f"{who}, `lock=`", lock)):
                    seconds, requests = slowest(store, spec, ranks, path, shards)
                    lines.append([how, f"{seconds:.2f}", f"{requests:,}"])
    yield Table(
        f"listing {shards:,} shards of S3 (moto) 20 ms away, by the clock",
        ["", "seconds of the slowest", "requests of all"],
        lines,
        [Asked("listing: requests of ranks with a lock", requests, 0, False, "")],
    )


if __name__ == "__main__":
    show(tables, __doc__)
