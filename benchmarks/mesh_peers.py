"""Peers that get the same batches, as in tensor parallelism: each reads them, or one reads and sends to the others.

    python benchmarks/mesh_peers.py            # two minutes
    python benchmarks/mesh_peers.py --quick    # checks that it runs

All processes are on this machine and talk by gloo. Processor seconds are those of all of them together, workers
included; the sender sends the whole batch, as bytes.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from material import Fields, brace_pattern, facts, write_shards

SIDE = 224


def jpeg_sample(rng: random.Random, index: int) -> Fields:
    """A noisy picture of 224 x 224, about 12 KB as a JPEG."""
    from PIL import Image

    small = Image.frombytes("RGB", (28, 28), rng.randbytes(28 * 28 * 3))
    out = io.BytesIO()
    small.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(out, "JPEG", quality=90)
    return {"jpg": out.getvalue(), "json": facts(index)}


def peer(
    rank: int, peers: int, sends: bool, spec: dict[str, Any], meeting: str, batches: int, pipe: Connection
) -> None:
    """One peer: read `batches` batches, and send the cost."""
    import torch
    import torch.distributed as dist

    import wdspec

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=peers)
    reads = not sends or rank == 0
    loader = wdspec.loader(spec, rank=0, world_size=1, num_workers=0) if reads else None
    stream = iter(loader) if loader is not None else None
    total = 0

    def step() -> None:
        nonlocal total
        batch = None if stream is None else next(stream)
        if sends:
            sent = [batch]
            dist.broadcast_object_list(sent, src=0)
            batch = sent[0]
        total += int(batch["jpg"].sum())

    step()
    dist.barrier()
    started, processor = time.perf_counter(), time.process_time()
    for _ in range(batches):
        step()
    processor = time.process_time() - processor
    dist.barrier()
    pipe.send((time.perf_counter() - started, processor, total))
    dist.destroy_process_group()


def measure(peers: int, sends: bool, spec: dict[str, Any], batches: int) -> tuple[float, float, int]:
    """(seconds, processor seconds of all, sum of the pictures)."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(peers):
            here, there = context.Pipe()
            arguments = (rank, peers, sends, spec, os.path.join(folder, "meeting"), batches, there)
            process = context.Process(target=peer, args=arguments)
            process.start()
            pipes.append(here)
            processes.append(process)
        results = [pipe.recv() for pipe in pipes]
        for process in processes:
            process.join()
    assert len({total for _, _, total in results}) == 1, "all peers got the same"
    return max(seconds for seconds, _, _ in results), sum(each for _, each, _ in results), results[0][2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two peers and a few batches")
    options = parser.parse_args()
    counts, batches, turns = ((2,), 3, 1) if options.quick else ((2, 4), 40, 3)
    print("| batch | peers | who reads | batches/s | processor, ms a batch |\n|--|--:|--|--:|--:|")
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as place:
        write_shards(Path(place), "p", jpeg_sample, 1 if options.quick else 10, 4)
        for name, decode in (("64 JPEGs, decoded", "rgb8"), ("64 JPEGs, to 32 x 32", "rgb8+resize=32")):
            spec = {
                "dataset": [
                    {"name": "p", "shards": brace_pattern(Path(place), "p", 4), "decode": {"jpg": decode}}
                ],
                "batch": 64,
                "fields": ["jpg"],
            }
            for peers in counts:
                found: dict[bool, list[tuple[float, float, int]]] = {False: [], True: []}
                for turn in range(turns):
                    for sends in (False, True) if turn % 2 else (True, False):
                        found[sends].append(measure(peers, sends, spec, batches))
                for sends, rows in found.items():
                    seconds = statistics.median(row[0] for row in rows)
                    processor = statistics.median(row[1] for row in rows)
                    who = "one, which sends" if sends else "each"
                    print(
                        f"| {name} | {peers} | {who} | {batches / seconds:.1f} | {processor / batches * 1e3:.0f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
