"""What it costs to choose a sample by `where`, `subset`, `keys` and `exclude`, and the memory of a long list of keys.

    python -m benchmarks.selection [--keys 10000000]

Times are processor time per sample, of choosing alone. The JSON is parsed once, as the batch needs it anyway; the row
`parsing the JSON` shows what that costs. Memory is that of one node: the file of the table, and what building it took.
Reading is that of tars with pictures, of which 90% are left out, in the two orders of their files.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import tarfile
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from itertools import product
from typing import Any

import wdspec
from wdspec.fields.samples import SampleFields
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.selection import Selection
from wdspec.read.shard import Piece
from wdspec.read.transform import parts_of
from wdspec.shards.key_lists import KeyTable, _find_table
from wdspec.shards.shards import list_shards
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


def write_pictures(path: str, names: tuple[str, str], size: int, count: int) -> None:
    """Write a tar of pictures of this size with JSON, each sample with its files in this order."""
    picture = os.urandom(size)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(count):
            facts = json.dumps({"score": number * 7919 % 1000 / 1000, "caption": "x" * 200}).encode()
            for name in names:
                data = picture if name == "jpg" else facts
                member = tarfile.TarInfo(f"{number:09d}.{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def read_pictures(
    folder: str, file: str, is_cold: bool, keys: dict[str, Any]
) -> tuple[float, float, float, int]:
    """Return processor time in µs, time in µs and KB that are read, all per sample, and how many samples are kept."""
    spec = wdspec.load({"dataset": [{"name": "a", "shards": f"{folder}/{file}.tar", **keys}]})
    shards = list_shards(spec)
    parts, budget = parts_of(spec, shards)["a"], ErrorBudget(Errors(), "a")
    if is_cold:
        with open(f"{folder}/{file}.tar", "rb") as tar:
            os.posix_fadvise(tar.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    choose = parts.build_choice(budget)
    start, began = time.process_time(), time.perf_counter()
    with closing(
        parts.selecting(Piece(shards.lists["a"][0]), on_error=_fail, on_read=budget.note_bytes)
    ) as samples:
        kept = sum(map(choose, samples))
    seconds, elapsed = time.process_time() - start, time.perf_counter() - began
    count = samples.next_index
    return seconds / count * 1e6, elapsed / count * 1e6, budget.bytes / count / 1e3, kept


def _fail(error: Exception) -> None:
    raise error


def measure_reading(folder: str, picture: int, count: int) -> None:
    """Print what it costs to read pictures that are mostly left out, where their files allow to skip them or not."""
    for file, names in (("json-jpg", ("json", "jpg")), ("jpg-json", ("jpg", "json"))):
        write_pictures(f"{folder}/{file}.tar", names, picture, count)
    os.sync()
    where: dict[str, Any] = {"where": "json.score >= 0.9"}
    rows = {
        "where, json before jpg": ("json-jpg", where),
        "where, jpg before json": ("jpg-json", where),
        "subset: 10%": ("json-jpg", {"subset": "10%"}),
        "all": ("json-jpg", {}),
    }
    best: dict[tuple[str, bool], tuple[float, float, float, int]] = {}
    for _ in range(5):
        for name, is_cold in product(rows, (False, True)):
            found = read_pictures(folder, rows[name][0], is_cold, rows[name][1])
            best[name, is_cold] = min(best.get((name, is_cold), found), found)
    for (name, is_cold), (processor, elapsed, size, kept) in best.items():
        cold = "not in memory" if is_cold else "in memory"
        what = f"{picture // 1000} KB, {name:22} {cold:14}"
        print(f"{what} {processor:6.2f} µs processor, {elapsed:6.2f} µs, {size:5.1f} KB read, {kept:,} kept")


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
        choose = selection.build(SampleFields(), None, ErrorBudget(Errors(), "a"))
        print(f"{name:48} {(time_per_sample(choose, parsed) - empty) * 1e6:6.2f} µs")

    for name, selection in rows.items():
        measure(name, selection)
    measure("where: json.score >= 0.5, with parsing", rows["where: json.score >= 0.5"], parsed=False)
    with tempfile.TemporaryDirectory() as folder:
        measure_reading(folder, 40_000, 3000)
        measure_reading(folder, 200_000, 800)
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
