"""What a plan costs: one source of a million shards on 1,024 slots, time and memory over the bare interpreter.

    python benchmarks/plan_cost.py

Each row is a fresh interpreter. The first only starts; the second also imports wdspec's planning; the third also
loads a spec, plans it, asks for the first and the 10,000th shard of every slot, and pickles the plan.
"""

from __future__ import annotations

import subprocess
import sys

BARE = "pass"
IMPORTS = "import wdspec.spec.loading, wdspec.planning.plan, wdspec.storage.shard_listing"
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
import resource, time, sys
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, size)
"""


def run(code: str) -> tuple[float, float, int]:
    """(seconds, highest memory in MiB, bytes of the pickle) of some code in a fresh interpreter; best of three."""
    program = f"import time; began = time.perf_counter(); size = 0\n{code}\n{REPORT}"
    found = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        seconds, memory, size = done.stdout.split()
        found.append((float(seconds), float(memory), int(size)))
    return min(found)


def main() -> None:
    bare = run(BARE)[1]
    print("| | seconds | MiB over the bare interpreter | pickle |")
    print("|--|--:|--:|--:|")
    for name, code in (("imports", IMPORTS), ("a million shards planned, and 2,048 asked for", PLAN)):
        seconds, memory, size = run(code)
        print(f"| {name} | {seconds:.2f} | {memory - bare:.0f} | {f'{size:,} bytes' if size else ''} |")


if __name__ == "__main__":
    main()
