"""Every command runs on shards of every format, and what is written in each format is read back equal."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
import yaml
from commandline import within
from mdsdata import plain_shard

import wdspec
from wdspec.cli.shard_files import ShardFiles

ROWS = 6
TARS = ("tar", "tar.gz")
RECORDS = ("cbors", "msgpack", "jsonl", "jsonl.zst")
WRITABLE = (*TARS, *RECORDS, "parquet")
READ_ONLY = ("arrow", "bin", "mds", "lance")

OF_SPECS: list[list[str]] = [
    ["validate", "s.yaml", "--strict"],
    ["explain", "s.yaml"],
    ["check", "s.yaml", "--all", "--strict", "--jobs", "0"],
    ["stats", "s.yaml", "--jobs", "0"],
    ["head", "s.yaml"],
    ["batch", "s.yaml", "--step", "1", "--ranks", "1", "--workers", "1"],
    ["simulate", "s.yaml"],
    ["lock", "s.yaml", "-o", "lock.json"],
    ["croissant", "s.yaml"],
    ["preview", "s.yaml"],
]
"""Commands that read a spec."""


def sample(name: str, row: int) -> dict[str, Any]:
    """A sample with a value of each kind that the format has: also 0, false, an empty text, and arrays."""
    # The keys are not in order, as `sort` is one of the commands.
    found: dict[str, Any] = {"__key__": f"{'ba'[row % 2]}{row}", "cls": row, "txt": f"text {row}"}
    if name in TARS:
        return found | {"json": {"a": row, "on": row % 2 == 0}, "vec.npy": np.arange(3, dtype="f4") * row}
    found |= {"score": row / 2, "on": row % 2 == 0, "meta": {"a": row, "b": ""}, "tags": ["s", f"t{row}"]}
    if name == "parquet":
        return found | {"ids": np.arange(4) * row, "grid": np.full((2, 3), row, "f4")}
    found |= {"ids": [row, 2, 3], "grid": [[1.5, row + 0.5], [0.0, 1.0]]}
    return found if name.startswith("json") else found | {"vec.npy": np.arange(3, dtype="f4") * row}


def write_shards(folder: Path, name: str) -> list[dict[str, Any]]:
    """Write two shards of a format, and a spec for them; return the samples."""
    samples = [sample(name, row) for row in range(ROWS)]
    if name in WRITABLE:
        with wdspec.ShardWriter(folder / f"a-%d.{name}", maxcount=3, verbose=0) as writer:
            for each in samples:
                writer.write(each)
    for shard in range(2):
        if name == "arrow":
            rows = [{**sample("jsonl", row), "grid": [[1.5, 2.5]]} for row in range(3 * shard, 3 * shard + 3)]
            table = pa.Table.from_pylist(rows)
            with pa.ipc.new_file(folder / f"a-{shard}.arrow", table.schema) as file:
                file.write_table(table)
        elif name == "bin":
            ids = np.arange(24 * shard, 24 * shard + 24, dtype="<u2")
            (folder / f"a-{shard}.bin").write_bytes(ids.tobytes())
        elif name == "lance":
            rows = [sample("jsonl", row) for row in range(3 * shard, 3 * shard + 3)]
            lance.write_dataset(pa.Table.from_pylist(rows), str(folder / f"a-{shard}.lance"))
        elif name == "mds":
            columns = {"__key__": "str", "cls": "int64", "txt": "str", "meta": "json"}
            rows = [
                {
                    "__key__": each["__key__"].encode(),
                    "cls": each["cls"].to_bytes(8, "little"),
                    "txt": each["txt"].encode(),
                    "meta": json.dumps(each["meta"]).encode(),
                }
                for each in samples[3 * shard : 3 * shard + 3]
            ]
            (folder / f"a-{shard}.mds").write_bytes(plain_shard(columns, rows))
    tokens = {"tokens": {"dtype": "uint16", "length": 8}} if name == "bin" else {}
    spec = {
        "seed": 1,
        "dataset": [
            {
                "name": "a",
                "shards": f"a-*.{name}" if name != "lance" else "a-{0,1}.lance",
                "samples": ROWS,
                **tokens,
            }
        ],
        "batch": 2,
    }
    (folder / "s.yaml").write_text(json.dumps(spec))
    return samples


def read(folder: Path, shards: str) -> list[str]:
    """The decoded samples of shards, in order, as text."""
    return texts(ShardFiles((str(folder / shards),)).chosen_samples(None, True))


def texts(samples: Iterable[dict[str, Any]]) -> list[str]:
    """Samples as JSON, in which arrays are lists."""
    kept = ({name: each[name] for name in sorted(each) if name != "__url__"} for each in samples)
    return [json.dumps(each, default=lambda value: value.tolist()) for each in kept]


@pytest.mark.parametrize("name", [*WRITABLE, *READ_ONLY])
def test_commands_read_shards_of_every_format(tmp_path: Path, name: str) -> None:
    write_shards(tmp_path, name)
    for command in OF_SPECS:
        shown, _ = within(*command, folder=tmp_path)
        assert "warning" not in shown, command
    if name == "bin":  # a spec says how to read it
        return
    for command in (["ls"], ["ls", "--summary"]):
        shown, _ = within(*command, f"a-0.{name}", "--format", "json", folder=tmp_path)
        assert shown


@pytest.mark.parametrize("name", WRITABLE)
def test_what_commands_write_in_every_format_is_read_back_equal(tmp_path: Path, name: str) -> None:
    expected = texts(write_shards(tmp_path, name))
    shards = f"a-*.{name}"
    assert read(tmp_path, shards) == expected
    within("cat", shards, "-o", f"all.{name}", folder=tmp_path)
    assert read(tmp_path, f"all.{name}") == expected
    within("split", shards, "-o", f"part-%d.{name}", "--shards", "3", folder=tmp_path)
    assert read(tmp_path, f"part-*.{name}") == expected
    assert len(read(tmp_path, f"part-1.{name}")) == 2
    for memory in "1B", "1MB":
        within("sort", shards, "-o", f"sorted-{memory}.{name}", "--memory", memory, folder=tmp_path)
        assert read(tmp_path, f"sorted-{memory}.{name}") == sorted(expected)
    within("process", "s.yaml", "--output", "out", "--jobs", "0", folder=tmp_path)
    assert read(tmp_path, f"out/a-*.{name}") == expected
    (tmp_path / "out" / "s.yaml").write_text((tmp_path / "s.yaml").read_text())
    within("check", "s.yaml", "--all", "--strict", "--jobs", "0", folder=tmp_path / "out")


@pytest.mark.parametrize("name", ["arrow", "mds"])
def test_formats_that_are_only_read_are_processed_to_parquet(tmp_path: Path, name: str) -> None:
    expected = texts(write_shards(tmp_path, name))
    _, message = within("process", "s.yaml", "--output", "out", "--jobs", "0", folder=tmp_path, code=1)
    remedy = message.partition("with `")[2].partition("`")[0]
    spec = json.loads((tmp_path / "s.yaml").read_text())
    (tmp_path / "s.yaml").write_text(json.dumps(spec | yaml.safe_load(remedy)))
    within("process", "s.yaml", "--jobs", "0", folder=tmp_path)
    found = [json.loads(each) for each in read(tmp_path, "out/a-*.parquet")]
    kept = ("__key__", "cls", "txt", "meta")
    assert [{key: each[key] for key in kept} for each in found] == [
        {key: each[key] for key in kept} for each in map(json.loads, expected)
    ]


@pytest.mark.parametrize("name", [*WRITABLE, "arrow"])
@pytest.mark.parametrize("to", ["cbors", "msgpack", "parquet"])
def test_samples_of_every_format_are_written_as_records_and_tables(
    tmp_path: Path, name: str, to: str
) -> None:
    write_shards(tmp_path, name)
    within("cat", f"a-*.{name}", "-o", f"all.{to}", "--decode", folder=tmp_path)
    assert read(tmp_path, f"all.{to}") == read(tmp_path, f"a-*.{name}")
