"""How long `wdspec validate` takes on a file of 100 sources, beside starting Python and doing nothing.

python benchmarks/validate_time.py          # median of 9 runs
python benchmarks/validate_time.py --quick  # 2 runs: checks that it runs
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS_ALLOWED = 0.35


def spec_of_sources(count: int) -> str:
    """A spec that uses what real ones use, with `count` sources."""
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


def median_seconds(command: list[str], runs: int) -> float:
    """Median wall time of a command that has to succeed."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 runs")
    runs = 2 if parser.parse_args().quick else 9
    command = Path(sys.executable).parent / "wdspec"
    with tempfile.TemporaryDirectory(prefix="wdspec-benchmark-") as folder:
        spec = Path(folder) / "many.yaml"
        spec.write_text(spec_of_sources(100))
        median_seconds([str(command), "validate", str(spec)], 1)  # not counted: fills the page cache
        bare = median_seconds([sys.executable, "-c", "pass"], runs)
        ours = median_seconds([str(command), "validate", str(spec)], runs)
    print("| command | median of | seconds | asked |")
    print("|--|--:|--:|--:|")
    print(f"| `python -c pass` | {runs} | {bare:.3f} | |")
    print(f"| `wdspec validate`, 100 sources | {runs} | {ours:.3f} | < {SECONDS_ALLOWED} |")


if __name__ == "__main__":
    main()
