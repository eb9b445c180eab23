"""Rows per second of wdspec and of Lance's own library, on the same local data set, in turns.

    python benchmarks/lance_tables.py [ROUNDS]

Both read the same columns in the order of the data set, in one process. `tables` are record batches of 4,096 rows:
those of our reader, before they are samples, and those of the library's scan with its usual settings. `samples` are
dicts: those of our reader, and those of `to_pylist` of the library's batches. Rates are per second of processor time of
all threads, in a second pass; each figure is the median of the rounds.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile

ROWS, SIDE = 200_000, 32
COLUMNS = ["id", "text", "vector"]
SAMPLES = """
import lance
def read():
    dataset = lance.dataset(place)
    return sum(len(batch.to_pylist()) for batch in dataset.to_batches(columns=columns, batch_size=4096))
"""
ROWS_AS_DICTS = """
from wdspec.formats.lance import LanceTable
from wdspec.formats.tables import TableSamples
from wdspec.stores.lance import LanceStore
from wdspec.stores.store import StoreSettings
def read():
    store, settings, count = LanceStore(), StoreSettings(), 0
    for name in store.list(place, "", settings):
        file = store.open(place + name, settings)
        chosen = dict(zip(columns, columns))
        count += sum(1 for _ in TableSamples(file, LanceTable, field_of=chosen.get))
    return count
"""
SCAN = """
import lance
def read():
    dataset = lance.dataset(place)
    return sum(batch.num_rows for batch in dataset.to_batches(columns=columns, batch_size=4096))
"""
TABLE = """
from wdspec.formats.lance import LanceTable
from wdspec.formats.tables import TableFile
from wdspec.stores.lance import LanceStore
from wdspec.stores.store import StoreSettings
def read():
    store, settings, count = LanceStore(), StoreSettings(), 0
    for name in store.list(place, "", settings):
        table = LanceTable(TableFile(store.open(place + name, settings)))
        for number in range(len(table.groups)):
            count += sum(batch.num_rows for batch in table.batches(number, columns))
    return count
"""
MEASURE = """
read()
start = time.process_time()
print(read() / (time.process_time() - start))
"""
CONTENDERS = {"tables": (SCAN, TABLE), "samples": (SAMPLES, ROWS_AS_DICTS)}


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


def measure(code: str, place: str) -> float:
    """Return the rows per second of a program."""
    start = f"import time\nplace, columns = {place!r}, {COLUMNS!r}\n"
    command = [sys.executable, "-W", "ignore", "-c", start + code + MEASURE]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/a.lance"
        write(place)
        for name, codes in CONTENDERS.items():
            rates = [[measure(code, place) for code in codes] for _ in range(rounds)]
            theirs, ours = (statistics.median(found) for found in zip(*rates, strict=True))
            print(f"{name:8} lance {theirs:>12,.0f}  wdspec {ours:>12,.0f}  ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
