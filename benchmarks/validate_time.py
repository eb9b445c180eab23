"""How long `wdspec validate` takes on a file of 100 sources, compared with only starting Python.

python -m benchmarks.validate_time            # medians of 9 runs
python -m benchmarks.validate_time --quick    # checks that it runs
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.tables import Asked, Table, show

MOST = 0.35
"""The target, in seconds."""


def spec_of_sources(count: int) -> str:
    """A spec with typical keys and `count` sources."""
    lines = [
        "wdspec: 1",
        "name: many-sources",
        "vars: {bucket: gs://some-bucket}",
        "defaults: {extensions: jpg;png txt, rename: {image: jpg, text: txt}, decode: rgb8}",
        "dataset:",
    ]
    for n in range(count):
        lines += [
            f"  - name: source-{n}",
            f"    shards: ${{bucket}}/source-{n}/part-{{000000..000999}}.tar",
            f"    weight: {n % 7 + 1}",
            "    scale: [0.5, 2.0]",
            "    scaleprob: 0.3",
        ]
    return "\n".join([*lines, "batch: {global_size: 256}", "epoch: 1_000_000", ""])


def timed(command: list[str]) -> tuple[float, float]:
    """Processor time and wall time of a command that has to succeed."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def tables(quick: bool) -> Iterator[Table]:
    runs = 1 if quick else 9
    command = str(Path(sys.executable).parent / "wdspec")
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as folder:
        spec = Path(folder) / "many.yaml"
        spec.write_text(spec_of_sources(100))
        commands = {
            "`python -c pass`": [sys.executable, "-c", "pass"],
            "`wdspec --version`": [command, "--version"],
            "`wdspec validate`, 100 sources": [command, "validate", str(spec)],
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for run in range(runs + 1):
            for name, each in commands.items():
                taken = timed(each)
                if run:  # the first one fills the page cache
                    found[name].append(taken)
    medians = {
        name: [statistics.median(side) for side in zip(*taken, strict=True)] for name, taken in found.items()
    }
    validate = medians["`wdspec validate`, 100 sources"][0]
    yield Table(
        f"start-up of commands, from starting Python to their end, medians of {runs}",
        ["", "processor, s", "by the clock"],
        [[name, *(f"{each:.3f}" for each in median)] for name, median in medians.items()],
        [Asked("start-up: `wdspec validate`, processor time", validate, MOST, False, " s")],
    )


if __name__ == "__main__":
    show(tables, __doc__)
