"""Rows per second of wdspec and of Lance's own library, on the same local data set, in turns.

    python benchmarks/lance_tables.py [ROUNDS]

Both read the same columns in the order of the data set, in batches of the same size, in one process, with all values as
Python's or numpy's. `scan` is the library's scan with its usual settings, whose batches become values by pyarrow's and
numpy's own functions. `tables` compares the scan alone: the record batches of our reader, before they are samples, and
those of the library. Each figure is the median of the rounds.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile

ROWS, SIDE, BATCH = 200_000, 32, 1024
SCAN = """
import sys, time, lance
dataset = lance.dataset(sys.argv[1])
start, count = time.perf_counter(), 0
for batch in dataset.to_batches(columns=["id", "text", "vector"], batch_size={batch}):
    values = {{
        "id": batch["id"].to_numpy(),
        "text": batch["text"].to_pylist(),
        "vector": batch["vector"].flatten().to_numpy().reshape(-1, {side}),
    }}
    count += len(values["text"])
print(count / (time.perf_counter() - start))
"""
LOADER = """
import sys, time, wdspec
source = {{"name": "a", "shards": sys.argv[1], "order": "sequential", "shuffle": 0, "interleave": 1}}
spec = {{"dataset": [source | {{"extensions": "id text vector"}}], "batch": {batch}, "epoch": {{"batches": {batches}}}}}
spec["fields"] = "id text vector"
with wdspec.loader(spec, num_workers=0) as loader:
    start = time.perf_counter()
    count = sum(len(batch["text"]) for batch in loader)
    print(count / (time.perf_counter() - start))
"""
BARE_SCAN = """
import sys, time, lance
dataset = lance.dataset(sys.argv[1])
start = time.perf_counter()
count = sum(batch.num_rows for batch in dataset.to_batches(columns=["id", "text", "vector"], batch_size=4096))
print(count / (time.perf_counter() - start))
"""
TABLES = """
import sys, time
from wdspec.formats.lance import LanceTable
from wdspec.formats.tables import TableFile
from wdspec.stores.lance import LanceStore
from wdspec.stores.store import StoreSettings
store, settings, count = LanceStore(), StoreSettings(), 0
names = store.list(sys.argv[1], "", settings)
start = time.perf_counter()
for name in names:
    table = LanceTable(TableFile(store.open(sys.argv[1] + name, settings)))
    for number in range(len(table.groups)):
        count += sum(batch.num_rows for batch in table.batches(number, ["id", "text", "vector"]))
print(count / (time.perf_counter() - start))
"""
CONTENDERS = {"scan": SCAN, "wdspec": LOADER, "tables: scan": BARE_SCAN, "tables: wdspec": TABLES}


def write(folder: str) -> None:
    """Write the data set: ids, texts of 200 bytes and vectors, and a column that is not read."""
    import lance
    import numpy as np
    import pyarrow as pa

    values = np.random.default_rng(0).random(ROWS * SIDE, dtype="f4")
    table = pa.table(
        {
            "id": range(ROWS),
            "text": [f"text {row} " * 20 for row in range(ROWS)],
            "vector": pa.FixedSizeListArray.from_arrays(values, SIDE),
            "other": [bytes(100)] * ROWS,
        }
    )
    lance.write_dataset(table, folder, max_rows_per_file=50_000)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    with tempfile.TemporaryDirectory() as place:
        write(f"{place}/a.lance")
        for _ in range(rounds):
            for name, code in CONTENDERS.items():
                program = code.format(batch=BATCH, side=SIDE, batches=ROWS // BATCH) if "{{" in code else code
                done = subprocess.run(
                    [sys.executable, "-W", "ignore", "-c", program, f"{place}/a.lance"],
                    capture_output=True,
                    text=True,
                    check=True,
                )
                rates[name].append(float(done.stdout))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    for name, rate in medians.items():
        print(f"{name:16} {rate:>12,.0f} rows/s")
    print(f"ratio            {medians['wdspec'] / medians['scan']:>12.2f}")
    print(f"ratio of tables  {medians['tables: wdspec'] / medians['tables: scan']:>12.2f}")


if __name__ == "__main__":
    main()
