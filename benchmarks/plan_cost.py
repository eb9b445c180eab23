"""The cost of a plan: one source of a million shards on 1,024 slots, time and memory above the bare interpreter.

    python -m benchmarks.plan_cost

Each line is a fresh interpreter, the best of three. The first imports wdspec's planning; the second also loads a spec,
plans it, asks for the first and the 10,000th shard of every slot, and pickles the plan.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.tables import Asked, Table, show

IMPORTS = "import wdspec.spec.load, wdspec.planning.plan, wdspec.shards.listing"
PLAN = """
import pickle
import wdspec
spec = {"dataset": [{"name": "s", "shards": "gs://bucket/s-{000000..999999}.tar"}]}
plan = wdspec.plan(spec, ranks=128, workers=8)
source = plan.sources[0]
for slot in range(plan.topology.slots):
    for turn in (0, 9_999):
        source.shards[source.order.entry(slot, turn).shard].text
size = len(pickle.dumps(plan))
"""
REPORT = """
import resource, time
print(time.process_time(), time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, size)
"""
MOST_SECONDS, MOST_MIB = 0.6, 50


def run(code: str, times: int) -> tuple[float, float, float, int]:
    """Some code in a fresh interpreter, at best: processor time, seconds, highest memory in MiB, bytes of a pickle."""
    program = f"import time; began = time.perf_counter(); size = 0\n{code}\n{REPORT}"
    found = []
    for _ in range(times):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        processor, seconds, memory, size = done.stdout.split()
        found.append((float(processor), float(seconds), float(memory), int(size)))
    return min(found)


def tables(quick: bool) -> Iterator[Table]:
    times = 1 if quick else 3
    bare = run("pass", times)[2]
    lines = []
    for name, code in (("imports", IMPORTS), ("a million shards planned, and 2,048 requested", PLAN)):
        processor, seconds, memory, size = run(code, times)
        lines.append(
            [
                name,
                f"{processor:.2f}",
                f"{seconds:.2f}",
                f"{memory - bare:.0f}",
                f"{size:,} bytes" if size else "",
            ],
        )
    yield Table(
        "a plan of a million shards on 1,024 slots, from starting Python on",
        ["", "processor, s", "by the clock", "MiB over the bare interpreter", "pickle"],
        lines,
        [
            Asked("plan: a million shards, processor time", processor, MOST_SECONDS, False, " s"),
            Asked("plan: a million shards, memory", memory - bare, MOST_MIB, False, " MiB"),
        ],
    )


if __name__ == "__main__":
    show(tables, __doc__)
