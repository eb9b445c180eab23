"""What a checkpoint of the data costs a cluster: a million shards, 50 sources, 4,096 ranks x 8 workers, simulated.

    python benchmarks/cluster_state.py            # a minute
    python benchmarks/cluster_state.py --quick

Every rank makes its state, with slots at the positions of such a run, and writes a separate file. Then one rank merges
them, writes one file, and a rank of another topology reads it. `--at` is how far slots have read: at the start, numbers
are small; later they are nearly all noise, which cannot be compressed.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import wdspec
from wdspec.planning.digest import describe_order
from wdspec.planning.plan import SourcePlan
from wdspec.planning.topology import Seat
from wdspec.read.source import StreamState, pack_slot
from wdspec.run.position import Position
from wdspec.run.run import Run, make_run
from wdspec.run.state import merge_states
from wdspec.shards.shards import list_readable_shards, plan_shards

PER_SHARD = 500
BYTES = 100_000
"""Of a sample in a shard."""


def spec_of(ranks: int, workers: int, sources: int, shards: int) -> wdspec.Spec:
    """A spec of many sources with many shards each."""
    document = {
        "dataset": [
            {
                "name": f"s{n:02d}",
                "shards": f"gs://bucket/s{n:02d}-{{000000..{shards - 1:06d}}}.tar",
                "weight": n + 1,
            }
            for n in range(sources)
        ],
        "elastic": {"ranks": ranks, "workers": workers},
        "batch": 32,
        "epoch": {"batches": 100_000},
    }
    return wdspec.load(document)


def a_slot(run: Run, batches: int, rng: random.Random) -> bytes:
    """The state of a slot after `batches` batches: as far in each source as its share says, or less."""
    return pack_slot(
        [
            a_source(source, int(batches * run.plan.batching.per_slot * source.share), rng)
            for source in run.plan.sources
        ]
    )


def a_source(source: SourcePlan, given: int, rng: random.Random) -> StreamState:
    """The state of a slot in a source after `given` samples."""
    block, size = source.delays.block, source.delays.size
    ordinal = max(0, given - rng.randrange(size)) // block * block
    turn, lanes = ordinal // (PER_SHARD * source.interleave) * source.interleave, []
    for lane in range(source.interleave):
        sample = ordinal % (PER_SHARD * source.interleave) // source.interleave
        offset = max(0, sample * BYTES + rng.randrange(-300, 300) * 512) // 512 * 512
        lanes.append((turn + lane, offset if sample else 0, sample))
    return StreamState(
        turn + source.interleave,
        ordinal,
        given + rng.randrange(size) if given else -1,
        lanes=tuple(lanes),
    )


def measure(ranks: int, workers: int, sources: int, shards: int, batches: int) -> None:
    """One row of the table, and its times."""
    rng = random.Random(1)
    spec = spec_of(ranks, workers, sources, shards)
    listed = list_readable_shards(spec)
    first = make_run(plan_shards(spec, listed, ranks, workers), spec, listed, Seat(0, ranks), workers)
    began = time.perf_counter()
    describe_order(spec, first.plan)
    hashed = time.perf_counter() - began
    times, states = [], []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(ranks):
            run = replace(first, seat=Seat(rank, ranks), canonical_ranks=range(rank, rank + 1))
            table = {rank * workers + k: a_slot(first, batches, rng) for k in range(workers)}
            position = Position(batches * workers, slot_states=table)
            began = time.process_time()
            state = position.to_state(run)
            own = Path(folder, f"{rank}.json")
            own.write_text(json.dumps(state["ranks"]))
            times.append(time.process_time() - began)
            states.append(state)
        parts = sum(path.stat().st_size for path in Path(folder).iterdir())
    header = len(json.dumps({**states[0], "ranks": {}}))
    began = time.process_time()
    merged = merge_states(states)
    merging = time.process_time() - began
    began = time.process_time()
    text = json.dumps(merged)
    writing = time.process_time() - began
    del states, merged, state
    half = replace(first, seat=Seat(1, ranks // 2), canonical_ranks=range(2, 4))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    position = Position.from_state(json.load(io.StringIO(text)), half)
    reading = time.process_time() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert len(position.slot_states) == 2 * workers
    print(
        f"| {batches:,} | {hashed:.2f} | {statistics.median(times) * 1e3:.1f} | {max(times) * 1e3:.1f} | "
        f"{(parts + header) / 1e6:.1f} | {merging:.2f} | {writing:.2f} | {len(text) / 1e6:.1f} | {reading:.2f} | "
        f"{grown / 1024:.0f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="64 ranks and 2,000 shards")
    parser.add_argument(
        "--at", type=int, nargs="*", default=[2, 200, 50_000], help="batches that each slot has given"
    )
    options = parser.parse_args()
    size = (64, 8, 50, 40) if options.quick else (4096, 8, 50, 20_000)
    print(
        "| batches of a slot | hashing shards, once, s | a rank saves, ms | the slowest, ms | all ranks, MB "
        "| merging, s | as JSON, s | one file, MB | a rank loads it, s | and takes, MiB |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for batches in options.at:
        measure(*size, batches)


if __name__ == "__main__":
    main()
