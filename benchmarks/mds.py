"""Samples per second of wdspec and of MosaicML Streaming's own reader, on the same local MDS shards in shuffled order.

    MDS_PYTHON=/path/to/python python benchmarks/mds.py [ROUNDS]

MDS_PYTHON is a Python with mosaicml-streaming (see `tests/support/mdsdata.py`), which may be another environment.
`dataset` is its `StreamingDataset(local=…, shuffle=True, batch_size=64)` with its other defaults, and `dataset, ahead`
is the same with a `predownload` of all samples, so that it never waits for its own threads. It needs torch, and imports
torchvision for data sets that are not read here; empty modules replace that. `reader` is its reader of shards alone,
called for samples in random order, without an index, an order, or states. wdspec reads with a loader and its default
shuffling. All run in one process, in turn; each figure is the median of the rounds.
"""

import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SUPPORT = Path(__file__).parents[1] / "tests" / "support"
sys.path.insert(0, str(SUPPORT))
ROWS, SHARDS = 10_000, 4

THEIRS = """
import json, random, sys, time, mdsdata
mdsdata.import_writer()
from streaming.base.format.mds.reader import MDSReader
shards = json.load(open(sys.argv[1] + "/index.json"))["shards"]
readers = [MDSReader.from_json(sys.argv[1], "", each) for each in shards]
places = [(reader, row) for reader in readers for row in range(reader.samples)]
random.Random(1).shuffle(places)
start = time.perf_counter()
for reader, row in places:
    reader.decode_sample(reader.get_sample_data(row))
print(len(places) / (time.perf_counter() - start))
"""
DATASET = """
import sys, time, types
from importlib.machinery import ModuleSpec
names = ["torchvision"] + ["torchvision." + name for name in ("datasets", "transforms", "transforms.functional")]
for name in names:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__spec__ = ModuleSpec(name, None)
sys.modules["torchvision.datasets"].VisionDataset = object
sys.modules["torchvision.transforms.functional"].to_tensor = None
from streaming import StreamingDataset
dataset = StreamingDataset(local=sys.argv[1], shuffle=True, batch_size=64, predownload={ahead})
start = time.perf_counter()
count = sum(1 for _ in dataset)
print(count / (time.perf_counter() - start))
"""
OURS = """
import sys, time, wdspec
spec = {"dataset": [{"name": "a", "shards": f"@{sys.argv[1]}/index.json"}], "epoch": "pass", "seed": 1}
spec["defaults"] = {"order": "shuffled", "shuffle": 1000}
with wdspec.loader(spec, num_workers=0) as loader:
    start = time.perf_counter()
    count = sum(1 for _ in loader)
    print(count / (time.perf_counter() - start))
"""


def write(folder: Path) -> None:
    """Write the shards: texts of 500 bytes, a number and an id."""
    from mdsdata import plain_shard

    columns = {"text": "str", "number": "int", "uid": "str"}
    shards = []
    for shard in range(SHARDS):
        rows = [
            {"text": b"some words, " * 42, "number": struct.pack("<q", row), "uid": b"%032d" % row}
            for row in range(ROWS)
        ]
        name = f"shard.{shard:05d}.mds"
        data = plain_shard(columns, rows)
        (folder / name).write_bytes(data)
        header = json.loads(data[4 + 4 * (ROWS + 1) :].partition(b"}")[0] + b"}")
        file = {"basename": name, "bytes": len(data), "hashes": {}}
        shards.append({**header, "samples": ROWS, "raw_data": file, "zip_data": None})
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    theirs = os.environ["MDS_PYTHON"]
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        contenders = (
            ("dataset", theirs, DATASET.format(ahead=None)),
            ("dataset, ahead", theirs, DATASET.format(ahead=ROWS * SHARDS)),
            ("reader", theirs, THEIRS),
            ("wdspec", sys.executable, OURS),
        )
        rates: dict[str, list[float]] = {kind: [] for kind, *_ in contenders}
        for _ in range(rounds):
            for kind, python, code in contenders:
                path = f"{SUPPORT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
                done = subprocess.run(
                    [python, "-c", code, name],
                    env={**os.environ, "PYTHONPATH": path},
                    capture_output=True,
                    text=True,
                    check=True,
                )
                rates[kind].append(float(done.stdout))
    medians = {kind: statistics.median(found) for kind, found in rates.items()}
    for kind, rate in medians.items():
        print(f"{kind:15} {rate:>10,.0f} samples/s, {medians['wdspec'] / rate:.2f} times in wdspec")


if __name__ == "__main__":
    main()
