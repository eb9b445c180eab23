"""Shards read in turn with 1, 5, 50 and (local) 500 sources: memory, open files, connections, megabytes a second.

    python benchmarks/many_sources.py            # the tables, in some minutes; 400 MB in a temporary folder
    python benchmarks/many_sources.py --quick    # a few MB: checks that it runs

One slot reads samples of 40 KB, by the defaults and with `interleave: 1`, each in a process of its own: from local
shards, and from a server that waits 20 ms before it answers a request and sends 50 MB/s over all answers together. All
sources have the same few shards, under names of their own. Local rates are those after a first part of the samples;
remote ones are from the start, as what was fetched ahead before would count else.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from material import picture_sample, write_shards
from slow_server import SlowServer

LATENCY, RATE = 0.020, 50e6
READ = """
import itertools, json, os, resource, sys, time
import wdspec
spec, warm, count = json.loads(sys.argv[1])
dataset = wdspec.compile(spec)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
def size(sample):
    return sum(len(value) for value in sample.values() if isinstance(value, (bytes, bytearray)))
begin = time.perf_counter()
samples = map(size, dataset)
read = next(samples)
first = time.perf_counter() - begin
if warm:
    next(itertools.islice(samples, warm - 1, warm))
    begin, read = time.perf_counter(), 0
cpu, files, sockets = time.process_time(), 0, 0
for _ in range(20):
    read += sum(itertools.islice(samples, count // 20))
    paths = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")]
    links = [os.readlink(path) for path in paths if os.path.lexists(path)]
    files = max(files, sum(".tar" in link for link in links))
    sockets = max(sockets, sum("socket" in link for link in links))
wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
print(json.dumps([first, read / wall / 1e6, read / cpu / 1e6, grown, files, sockets]))
"""


def measured(spec: dict[str, Any], warm: int, count: int) -> tuple[float, float, float, float, int, int]:
    """Seconds to the first sample, MB/s, MB a second of the processor, MiB, most open files, most connections."""
    command = [sys.executable, "-c", READ, json.dumps([spec, warm, count])]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return tuple(json.loads(done.stdout))  # type: ignore[return-value]


def spec_of(urls: list[str], lanes: int | None) -> dict[str, Any]:
    """A spec of sources with one share each."""
    return {
        "defaults": {"decode": "raw", "format": "tar", **({} if lanes is None else {"interleave": lanes})},
        "dataset": [{"name": f"s{n:03d}", "shards": url, "weight": 1} for n, url in enumerate(urls)],
        "epoch": 10_000_000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few MB, one and five sources")
    quick = parser.parse_args().quick
    shards, megabytes = (9, 4.0) if quick else (40, 120.0)
    warm, count = (50, 100) if quick else (4000, 8000)
    print(
        "| shards | sources | interleave | first sample, s | MB/s | MB/s of processor time | MiB | open files "
        "| connections |\n|--|--:|--|--:|--:|--:|--:|--:|--:|"
    )
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as text:
        folder = Path(text)
        write_shards(folder, "raw", picture_sample, megabytes, shards)
        pattern = f"raw-{{000000..{shards - 1:06d}}}.tar"
        with SlowServer(folder, LATENCY, RATE) as server:
            for place in ("local", "remote"):
                # Of 500 streams at once each would get 100 KB/s of this line.
                for sources in (1, 5) if quick else (1, 5, 50, 500) if place == "local" else (1, 5, 50):
                    if place == "local":
                        urls = []
                        for n in range(sources):
                            own = folder / f"s{n}"
                            own.mkdir(exist_ok=True)
                            for path in folder.glob("raw-*.tar"):
                                (own / path.name).unlink(missing_ok=True)
                                (own / path.name).hardlink_to(path)
                            urls.append(f"{own}/{pattern}")
                    else:
                        urls = [f"{server.url}/{pattern}?{n}" for n in range(sources)]
                    for lanes in (1, None):
                        first, rate, by_cpu, grown, files, sockets = measured(
                            spec_of(urls, lanes), warm if place == "local" else 0, count
                        )
                        read = f"{first:.2f} | {rate:.1f} | {by_cpu:.0f} | {grown:.0f} | {files} | {sockets}"
                        print(f"| {place} | {sources} | {lanes or 'default, 8'} | {read} |", flush=True)


if __name__ == "__main__":
    main()
