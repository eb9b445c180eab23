"""Reading Parquet, compared with Hugging Face datasets' streaming of the same files, in one process.

    .venv/bin/pip install datasets
    .venv/bin/python benchmarks/parquet_files.py

Texts: 40,000 rows of 80 words, of which the text is read. Pictures: 1,200 JPEGs of 35 KB, as bytes, and decoded to
uint8 arrays. Processor time a sample, after the first 5,000 texts or 100 pictures, least of the turns; each run is a
process of its own, and contenders take turns. `samples` are single ones in the order of the files; `batches` are
batches of 64, shuffled with a buffer of 1,000 (Hugging Face: `.shuffle(...).batch(64)`).
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TURNS = 5
ROWS = {"text": 40_000, "picture": 1_200}
WARM = {"text": 5_000, "picture": 100}
CASES = [
    (kind, form)
    for kind in ("text", "picture", "decoded picture")
    for form in ("samples", "batches")
    if (kind, form) != ("decoded picture", "batches")
]
BATCH = 64


def make(folder: Path) -> None:
    """Write four files of texts and four of pictures."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    drawn = np.random.default_rng(0)
    words = np.array([f"word{n}" for n in range(5_000)])
    for part in range(4):
        rows = ROWS["text"] // 4
        texts = [" ".join(drawn.choice(words, 80)) for _ in range(rows)]
        urls = [f"https://example.org/{part}/{row}" for row in range(rows)]
        table = pa.table({"text": texts, "url": urls, "score": drawn.random(rows)})
        pq.write_table(table, folder / f"text-{part}.parquet", row_group_size=5_000, compression="zstd")
        pictures = []
        for row in range(ROWS["picture"] // 4):
            file = io.BytesIO()
            noise = drawn.integers(0, 255, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(noise).resize((500, 375)).save(file, "JPEG", quality=85)
            pictures.append({"bytes": file.getvalue(), "path": f"{row}.jpg"})
        table = pa.table({"image": pictures, "label": range(len(pictures))})
        pq.write_table(table, folder / f"picture-{part}.parquet", row_group_size=100)


def read_ours(folder: Path, kind: str, form: str) -> Iterator[int]:
    """Yield the number of samples of each item, endlessly."""
    import wdspec

    source: dict[str, Any] = {"shards": f"{folder}/{kind.split()[-1]}-*.parquet"}
    if kind == "text":
        source["extensions"] = "text"
    if kind == "decoded picture":
        source["decode"] = "rgb8"
    if form == "batches":
        spec = {"dataset": [source], "batch": {"size": BATCH, "ragged": "list"}}
        for batch in wdspec.loader(spec, num_workers=0):
            yield len(batch["__key__"])
    else:
        source |= {"order": "sequential", "shuffle": 0}
        for _ in wdspec.compile({"dataset": [source]}):
            yield 1


def read_theirs(folder: Path, kind: str, form: str) -> Iterator[int]:
    """The same by Hugging Face datasets."""
    import datasets
    import numpy as np

    name = kind.split()[-1]
    files = sorted(map(str, folder.glob(f"{name}-*.parquet")))
    chosen: dict[str, Any] = {"columns": ["text"]} if kind == "text" else {}
    found = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True, **chosen)
    if name == "picture":
        found = found.cast_column("image", datasets.Image(decode=kind == "decoded picture"))
    found = found.repeat(None)
    if form == "batches":
        for batch in found.shuffle(seed=0, buffer_size=1000).batch(BATCH):
            yield len(next(iter(batch.values())))
    else:
        for sample in found:
            if kind == "decoded picture":
                np.asarray(sample["image"].convert("RGB"))
            yield 1


def measure(who: str, folder: Path, kind: str, form: str) -> None:
    """Print the microseconds of processor time for each sample."""
    read = {"wdspec": read_ours, "datasets": read_theirs}[who]
    name = kind.split()[-1]
    items, warm, count = read(folder, kind, form), WARM[name], 2 * ROWS[name]
    while warm > 0:
        warm -= next(items)
    start, done = time.process_time(), 0
    for number in items:
        done += number
        if done >= count:
            break
    print((time.process_time() - start) / done * 1e6)


def main() -> None:
    """Print a table."""
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        print("| what | wdspec, µs | datasets, µs | ratio |\n|--|--:|--:|--:|")
        for case in CASES:
            least = {"wdspec": float("inf"), "datasets": float("inf")}
            for _ in range(TURNS):
                for who in least:
                    command = [sys.executable, __file__, who, folder, *case]
                    output = subprocess.run(command, capture_output=True, text=True)
                    least[who] = min(least[who], float(output.stdout))
            ours, theirs = least.values()
            print(f"| {case[0]}, {case[1]} | {ours:.1f} | {theirs:.1f} | {theirs / ours:.1f}× |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
    else:
        main()
