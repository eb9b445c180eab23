"""One measurement, in this process: samples per second of one contender in one row, as a line of JSON.

python -m benchmarks.one_run ROW CONTENDER FOLDER SECONDS
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
import warnings
from pathlib import Path

import psutil

from benchmarks.contenders import CONTENDERS
from benchmarks.contenders.shared import Counts
from benchmarks.rows import BATCHED, ROWS, Row

WARM = 0.25
"""Of the seconds measured, before the clock starts."""
LONGEST = 10
"""Times the seconds that a measurement may take on a busy machine."""


def workers() -> list[psutil.Process]:
    """The processes that this one has started, and that run."""
    return psutil.Process().children(recursive=True)


def processor_seconds() -> float:
    """Of this process and of its workers, those that have ended among them."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = time.process_time() + ended.ru_utime + ended.ru_stime
    for process in workers():
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:2])
    return total


def peak_memory(process: psutil.Process) -> float:
    """Bytes that a process had at most, with what it shares; where the system does not say, what it has now."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines()
        return 1024 * next(float(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return float(process.memory_info().rss)


def spend(counts: Counts, seconds: float, row: Row) -> int:
    """The samples read in a number of processor seconds, which take longer on a busy machine.

    With remote shards they are seconds of the clock.
    """
    samples, block = 0, 1 if row.kind in BATCHED else 16
    start, processor_start = time.perf_counter(), processor_seconds()
    until, latest = start + seconds, start + LONGEST * seconds
    while not samples or time.perf_counter() < until:
        for _ in range(block):
            samples += next(counts)
        if not row.place and time.perf_counter() >= until < latest:
            until = min(latest, time.perf_counter() + max(0, processor_start + seconds - processor_seconds()))
    return samples


def main() -> None:
    row, name, folder, seconds = sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4])
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    counts = CONTENDERS[name].rows[row](ROWS[row], folder)
    next(counts)
    first = time.perf_counter() - started
    spend(counts, WARM * seconds, ROWS[row])
    processor, start = processor_seconds(), time.perf_counter()
    samples = spend(counts, seconds, ROWS[row])
    now = time.perf_counter()
    processor = processor_seconds() - processor
    memory = 0.0
    for process in [psutil.Process(), *workers()]:
        with contextlib.suppress(psutil.NoSuchProcess):
            memory += peak_memory(process)
    print(
        json.dumps(
            {
                "samples_per_second": samples / (now - start),
                "processor_us_per_sample": processor / samples * 1e6,
                "first_item_seconds": first,
                "memory_mib": memory / 2**20,
            }
        ),
        flush=True,
    )
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else torch would raise for the workers that end now
    for process in workers():  # which would keep the pipe open
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    os._exit(0)  # some peers wait for their threads


if __name__ == "__main__":
    main()
