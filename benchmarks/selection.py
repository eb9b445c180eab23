"""What it costs to choose a sample by `where`, `subset`, `keys` and `exclude`, and the memory of a long list of keys.

    python -m benchmarks.selection [--keys 10000000]

Times are processor time per sample, of choosing alone. The JSON is parsed once, as the batch needs it anyway; the row
`parsing the JSON` shows what that costs. Memory is that of one node: the file of the table, and what building it took.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable
from typing import Any

from wdspec.fields.samples import SampleFields
from wdspec.read.budget import Budget
from wdspec.read.selection import Selection
from wdspec.shards.key_lists import KeyTable, _find_table
from wdspec.spec.language.options import Errors
from wdspec.spec.language.selection import Subset

SAMPLES = 20_000


def samples(parsed: bool) -> list[dict[str, Any]]:
    facts = [{"score": number % 100 / 100, "user": f"u{number % 977}"} for number in range(SAMPLES)]
    values = facts if parsed else [json.dumps(each).encode() for each in facts]
    return [
        {
            "__key__": f"train/{number:09d}",
            "__url__": "a.tar",
            "json": value,
            "cls": number % 10 if parsed else b"3",
        }
        for number, value in enumerate(values)
    ]


def time_per_sample(action: Callable[[dict[str, Any]], Any], parsed: bool = True) -> float:
    """Return the least processor time per sample of several turns, in seconds."""
    best = float("inf")
    for _ in range(7):
        given = samples(parsed)
        start = time.process_time()
        for each in given:
            action(each)
        best = min(best, time.process_time() - start)
    return best / SAMPLES


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--keys", type=int, default=1_000_000)
    keys = options.parse_args().keys
    empty = time_per_sample(lambda raw: True)
    rows = {
        "subset: 10%": Selection(subset=Subset(part="10%")),
        "subset: {of: json.user, part: 10%}": Selection(subset=Subset(part="10%", of="json.user")),
        "where: json.score >= 0.5": Selection(where="json.score >= 0.5"),
        "where: json.score >= 0.5 and cls in [1, 3]": Selection(where="json.score >= 0.5 and cls in [1, 3]"),
        "exclude: 10,000 keys": Selection(exclude=frozenset(f"train/{n:09d}" for n in range(10_000))),
    }

    def measure(name: str, selection: Selection, parsed: bool = True) -> None:
        choose = selection.build(SampleFields(), None, Budget(Errors(), "a"))
        print(f"{name:48} {(time_per_sample(choose, parsed) - empty) * 1e6:6.2f} µs")

    for name, selection in rows.items():
        measure(name, selection)
    measure("where: json.score >= 0.5, with parsing", rows["where: json.score >= 0.5"], parsed=False)
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        table: KeyTable = _find_table("benchmark", keys, [(b"train/%09d" % n for n in range(keys))])
        seconds = time.perf_counter() - start
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        measure(f"keys: {keys:,} keys", Selection(keys=table))
        print(
            f"table of {keys:,} keys: {os.path.getsize(table.path) / 1e6:,.0f} MB, built in {seconds:,.1f} s"
        )
        print(f"memory of the process that built it: {grown / 1e3:+,.0f} MB, with the pages of the file")


if __name__ == "__main__":
    main()
