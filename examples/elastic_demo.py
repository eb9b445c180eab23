"""A run that is killed and resumed on other numbers of processes reads the same batches: a demo in a minute.

    python examples/elastic_demo.py               # 8 processes, killed; 3 processes, killed; 12 processes to the end
    python examples/elastic_demo.py --packed      # the same with packed rows of tokens
    python examples/elastic_demo.py --quick       # fewer processes and steps

Five sources of tokens are mixed. Each process is a rank that writes a digest of every batch, and a state every few
steps. All processes are killed by `kill -9`; the next ones resume from the newest step of which all states were
written. The digests of all global batches are compared with those of a run that was never interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import wdspec

CANONICAL = 24
EVERY = 4
"""Steps from one state to the next."""
SHARES = {"web": 8, "code": 4, "books": 2, "math": 1, "chat": 1}


def write_data(folder: Path) -> None:
    """Write five sources of documents of very different lengths."""
    draw = np.random.default_rng(0)
    for number, name in enumerate(SHARES):
        with wdspec.ShardWriter(str(folder / f"{name}-%03d.tar"), maxcount=100, verbose=0) as writer:
            for document in range(1200):
                length = int(np.clip(draw.lognormal(4 + number / 4, 0.8), 4, 500))
                file = io.BytesIO()
                np.save(file, draw.integers(0, 50_000, length))
                writer.write({"__key__": f"{name}{document:05d}", "npy": file.getvalue()})


def spec_of(folder: Path, packed: bool, steps: int) -> dict[str, Any]:
    """Return the spec of the demo."""
    dataset = [
        {"name": name, "shards": f"{folder}/{name}-{{000..011}}.tar", "weight": weight}
        for name, weight in SHARES.items()
    ]
    pack = {"window": 100, "pack": {"fields": "npy", "length": 1024}}
    return {
        "dataset": dataset,
        "defaults": {"shuffle": 200},
        "elastic": {"ranks": CANONICAL, "workers": 1},
        "batch": pack if packed else {"size": 8, "accumulate": True, "ragged": "list"},
        "epoch": {"batches": steps},
    }


def digest(batch: dict[str, Any]) -> str:
    """Return a digest of the keys and tokens of a batch."""
    tokens = batch["npy"] if isinstance(batch["npy"], list) else [batch["npy"]]
    content = "".join(batch["__key__"]).encode() + b"".join(np.asarray(each).tobytes() for each in tokens)
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def train(folder: Path, rank: int, world_size: int, wait: float) -> None:
    """Be one rank: read to the end of the epoch, and write digests and states."""
    spec = json.loads((folder / "spec.json").read_text())
    state = folder / "resume.json"
    each = CANONICAL // world_size
    with wdspec.loader(spec, num_workers=0, rank=rank, world_size=world_size) as loader:
        if state.exists():
            loader.load_state_dict(json.loads(state.read_text()))
        step = loader.state_dict()["batch"]
        with (folder / f"digests-{world_size}-{rank}.txt").open("a", buffering=1) as digests:
            for number, batch in enumerate(loader):
                canonical = rank * each + number % each
                digests.write(f"{step + number // each} {canonical} {digest(batch)}\n")
                if (number + 1) % (each * EVERY) == 0:
                    target = folder / f"state-{step + (number + 1) // each}-{world_size}-{rank}.json"
                    target.with_suffix(".part").write_text(json.dumps(loader.state_dict()))
                    target.with_suffix(".part").rename(target)
                if number % each == each - 1:
                    time.sleep(wait)


def start(folder: Path, world_size: int, wait: float) -> list[subprocess.Popen[bytes]]:
    """Start the ranks of a job."""
    command = [
        sys.executable,
        __file__,
        "--rank-of",
        str(world_size),
        "--folder",
        str(folder),
        "--wait",
        str(wait),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return [subprocess.Popen([*command, "--rank", str(rank)], env=environment) for rank in range(world_size)]


def newest_step(folder: Path, world_size: int) -> int:
    """Return the newest step of which all ranks have written their states; 0 if there is none."""
    counts: dict[int, int] = {}
    for path in folder.glob(f"state-*-{world_size}-*.json"):
        step = int(path.name.split("-")[1])
        counts[step] = counts.get(step, 0) + 1
    return max((step for step, count in counts.items() if count == world_size), default=0)


def run_until(folder: Path, world_size: int, kill_after: int | None, wait: float) -> tuple[int, int]:
    """Run a job until a step, kill it, and prepare to resume. Return the first step it read, and where it ended."""
    resume = folder / "resume.json"
    first = json.loads(resume.read_text())["batch"] if resume.exists() else 0
    ranks = start(folder, world_size, wait)
    try:
        while any(rank.poll() is None for rank in ranks):
            if kill_after is not None and newest_step(folder, world_size) >= kill_after:
                break
            time.sleep(0.05)
        if kill_after is None:
            if any(rank.wait() for rank in ranks):
                raise SystemExit("a rank has failed")
            return first, -1
    finally:
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
            rank.wait()
    step = newest_step(folder, world_size)
    states = [
        json.loads((folder / f"state-{step}-{world_size}-{rank}.json").read_text())
        for rank in range(world_size)
    ]
    resume.write_text(json.dumps(wdspec.merge_states(states)))
    return first, step


def read_digests(folder: Path, world_size: int) -> dict[tuple[int, int], str]:
    """Return (step, canonical rank) → digest, as the ranks of a job wrote them."""
    found = {}
    for path in folder.glob(f"digests-{world_size}-*.txt"):
        for line in path.read_text().splitlines():
            step, canonical, value = line.split()
            found[int(step), int(canonical)] = value
    return found


def draw(path: Path, rows: list[tuple[int, int, int, int]], steps: int) -> None:
    """Draw which job read which steps, as an SVG."""
    bars = "".join(
        f'<text x="8" y="{34 + 40 * at}" font-size="14">{ranks} processes</text>'
        f'<rect x="{130 + 600 * first / steps}" y="{18 + 40 * at}" width="{600 * (end - first) / steps}" height="24" '
        f'fill="{"#2a9d8f" if same else "#d1495b"}"/>'
        for at, (ranks, first, end, same) in enumerate(rows)
    )
    height = 40 * len(rows) + 30
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 750 {height}" font-family="sans-serif">{bars}'
        f'<text x="130" y="{height - 8}" font-size="12">step 0</text>'
        f'<text x="730" y="{height - 8}" font-size="12" text-anchor="end">{steps}</text></svg>\n'
    )


def main() -> None:
    """Run the demo; exit with 1 if any batch differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--packed", action="store_true", help="pack documents into rows of 1,024 tokens")
    parser.add_argument("--quick", action="store_true", help="2, 3 and 1 processes, and fewer steps")
    parser.add_argument("--picture", default="elastic_demo.svg", help="where to draw the picture")
    parser.add_argument("--rank-of", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--wait", type=float, default=0.0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank_of:
        train(arguments.folder, arguments.rank, arguments.rank_of, arguments.wait)
        return
    steps, jobs = (24, [2, 3, 1]) if arguments.quick else (60, [8, 3, 12])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder)
        (folder / "spec.json").write_text(json.dumps(spec_of(folder, arguments.packed, steps)))
        print(
            f"5 sources, {CANONICAL} canonical ranks, {steps} steps"
            + (", packed" if arguments.packed else "")
        )
        run_until(folder, 4, None, 0.0)
        expected = read_digests(folder, 4)
        assert len(expected) == steps * CANONICAL, "the uninterrupted run reads every batch"
        print(f"{'processes':>9}  {'steps':>9}  {'batches':>8}  {'different':>9}  end")
        rows, wrong = [], 0
        for number, world_size in enumerate(jobs, 1):
            is_last = number == len(jobs)
            kill_after = None if is_last else steps * number // len(jobs)
            first, end = run_until(folder, world_size, kill_after, 0.0 if is_last else 0.2)
            end = steps if is_last else end
            read = read_digests(folder, world_size)
            found = {place: value for place, value in read.items() if first <= place[0] < end}
            due = {place for place in expected if first <= place[0] < end}
            different = len(due - found.keys()) + sum(
                expected[place] != value for place, value in found.items()
            )
            wrong += different
            rows.append((world_size, first, end, not different))
            how = "finished" if is_last else "kill -9"
            print(f"{world_size:>9}  {first:>3} to {end - 1:>3}  {len(found):>8,}  {different:>9,}  {how}")
        draw(Path(arguments.picture), rows, steps)
    print("all batches are those of the uninterrupted run" if not wrong else f"{wrong} batches differ")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
