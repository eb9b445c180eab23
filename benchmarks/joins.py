"""What a join costs over one tar that holds both parts, and what a lookup costs: processor time of one process.

    .venv/bin/python benchmarks/joins.py      # a minute, 100 MB in a temporary folder

The contenders take turns, and the least of several runs counts. `--resume` also times the first sample after a resume.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import random
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import wdspec

SAMPLES, SHARDS = 500, 4
TURNS = 5


def write_shards(folder: Path, size: int, gaps: float) -> None:
    """Write shards with both parts, and the parts: a JPEG, or bytes of a size, and a caption."""
    rng = random.Random(1)
    image = rng.randbytes(size)
    if size > 10_000:
        from PIL import Image

        noise = Image.effect_noise((320, 256), 60).convert("RGB")
        buffer = io.BytesIO()
        noise.save(buffer, "JPEG", quality=80)
        image = buffer.getvalue()
    for shard in range(SHARDS):
        names = ("both", "first", "second")
        tars = {name: tarfile.open(folder / f"{name}-{shard}.tar", "w") for name in names}  # noqa: SIM115
        for number in range(SAMPLES):
            key = f"{shard}/{number:06}"
            caption = f"a caption of sample {key}".encode()
            members = [("first", "jpg", image)] + (
                [("second", "txt", caption)] if rng.random() >= gaps else []
            )
            for part, suffix, data in members:
                for name in (part, "both"):
                    info = tarfile.TarInfo(f"{key}.{suffix}")
                    info.size = len(data)
                    tars[name].addfile(info, io.BytesIO(data))
        for tar in tars.values():
            tar.close()


def start_reading(source: dict[str, Any]) -> Callable[[], float]:
    """Read a source once, and return a function that reads it again: the microseconds of processor time of a sample."""
    spec = {"dataset": [{"name": "s", "order": "sequential", "shuffle": 0, **source}], "fields": "jpg txt"}
    samples = iter(wdspec.compile(spec))

    def read_once() -> float:
        started = time.process_time()
        for _ in itertools.islice(samples, SAMPLES * SHARDS):
            pass
        return (time.process_time() - started) / (SAMPLES * SHARDS) * 1e6

    read_once()
    return read_once


def compare(title: str, size: int, decode: str, gaps: float = 0.0) -> None:
    """Print what the samples of a join take, and those of whole tars."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shards(folder, size, gaps)
        braces = f"{{0..{SHARDS - 1}}}"
        missing = "skip" if gaps else "error"
        common = {"decode": decode, "missing": missing}
        whole = {"shards": f"{folder}/both-{braces}.tar", **common}
        join = {"shards": f"{folder}/second-{braces}.tar", "missing": missing}
        joined = {"shards": f"{folder}/first-{braces}.tar", "join": [join], **common}
        read_whole, read_joined = start_reading(whole), start_reading(joined)
        figures = [(read_whole(), read_joined()) for _ in range(TURNS if decode != "raw" else 5 * TURNS)]
    one, two = (min(column) for column in zip(*figures, strict=True))
    print(f"{title:<44}{one:>10.2f} us{two:>10.2f} us{two / one - 1:>+9.1%}")


def time_resume() -> None:
    """Print how long the first sample after a resume in the middle of a large shard takes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shards(folder, 1000, 0.0)
        for kind, source in (
            ("one tar", {"shards": f"{folder}/both-0.tar"}),
            ("a join", {"shards": f"{folder}/first-0.tar", "join": f"{folder}/second-0.tar"}),
        ):
            spec = {"dataset": [{"name": "s", "order": "sequential", "shuffle": 0, **source}]}
            dataset = wdspec.compile(spec)
            for _ in itertools.islice(dataset, SAMPLES // 2):
                pass
            state = json.loads(json.dumps(dataset.state_dict()))
            dataset.close()
            times = []
            for _ in range(TURNS):
                dataset = wdspec.compile(spec)
                dataset.load_state_dict(state)
                started = time.process_time()
                next(iter(dataset))
                times.append(time.process_time() - started)
                dataset.close()
            print(f"the first sample after a resume, {kind:<11}{min(times) * 1e3:>10.2f} ms")


def look_up(rows: int) -> None:
    """Print what a lookup of two columns takes, for random keys, and what SQLite takes."""
    from wdspec.fields.samples import SampleFields
    from wdspec.read.lookup import Lookup
    from wdspec.shards.lookup_tables import make_table
    from wdspec.spec.language.joins import LookupOptions
    from wdspec.storage.environment import Environment
    from wdspec.storage.storage import Storage

    rng = random.Random(2)
    keys = [f"{number % 1000:03}/{number:09}" for number in range(rows)]
    with tempfile.TemporaryDirectory() as name:
        with sqlite3.connect(f"{name}/t.db") as base:
            base.execute("create table t (key text primary key, score real, count integer) without rowid")
            values = ((key, rng.random(), number) for number, key in enumerate(keys))
            base.executemany("insert into t values (?, ?, ?)", values)
        base.close()
        options = LookupOptions(table=f"{name}/t.db", fields=("score", "count"))
        storage = Storage.of(Environment.read())
        started = time.process_time()
        table = make_table(options, storage)
        built = time.process_time() - started
        add = Lookup(options, table, SampleFields(), storage)
        chosen = rng.sample(keys, min(rows, 100_000))
        base = sqlite3.connect(f"file:{name}/t.db?mode=ro&immutable=1", uri=True)
        base.execute("pragma mmap_size = 1000000000")
        ours, theirs = [], []
        for _ in range(TURNS):
            raws = [{"__key__": key} for key in chosen]
            started = time.process_time()
            for raw in raws:
                add(raw)
            ours.append(time.process_time() - started)
            started = time.process_time()
            for key in chosen:
                base.execute("select score, count from t where key = ?", (key,)).fetchone()
            theirs.append(time.process_time() - started)
        base.close()
    found, other = (min(column) / len(chosen) * 1e6 for column in (ours, theirs))
    print(f"a lookup in {rows:>9,} rows: {found:.2f} us (SQLite: {other:.2f} us); read once in {built:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resume", action="store_true", help="also time the first sample after a resume")
    options = parser.parse_args()
    print(f"{'':<44}{'one tar':>13}{'a join':>13}{'':>9}")
    compare("images of 40 KB and captions, decoded", 40_000, "rgb8")
    compare("images of 40 KB and captions, raw", 40_000, "raw")
    compare("40 KB, 10% without a caption, decoded", 40_000, "rgb8", 0.1)
    compare("bytes of 200 B and captions, raw", 200, "raw")
    for rows in (10_000, 1_000_000):
        look_up(rows)
    if options.resume:
        time_resume()


if __name__ == "__main__":
    main()
