"""A Dask cluster on this machine: a scheduler and workers, in separate processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def dask_cluster(folder: Path, workers: int = 2, **environ: str) -> Iterator[str]:
    """The address of a scheduler with workers, which run in a folder; they end with the context.

    Args:
        folder: the workers' working directory; the cluster's own files are there too.
        workers: how many.
        environ: variables that the workers have besides ours.
    """
    about = folder / "scheduler.json"
    here = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(about)]
    hands = ["--scheduler-file", str(about), "--nworkers", str(workers), "--nthreads", "1", "--no-dashboard"]
    hands += ["--local-directory", str(folder / "dask")]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for program, options in (("scheduler", here), ("worker", hands)):
            command = [sys.executable, "-m", f"distributed.cli.dask_{program}", *options]
            quiet = subprocess.DEVNULL
            started.append(
                subprocess.Popen(
                    command, stdout=quiet, stderr=quiet, cwd=folder, env={**os.environ, **environ}
                )
            )
        deadline = time.monotonic() + 60
        while not (about.exists() and about.read_text().endswith("}")):  # it may be half written
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.05)
        yield json.loads(about.read_text())["address"]
    finally:
        for each in reversed(started):  # a worker says good-bye to its scheduler
            each.terminate()
            each.wait(30)
