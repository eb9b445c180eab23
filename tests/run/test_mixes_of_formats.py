"""Mixes of tars and tables: the order of the same samples in tars, through changes of topology within row groups."""

import json
import random

import lance
import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from mdsdata import plain_shard
from rotating import rotating_loader
from runs import Listed
from speed import mostly_long

import wdspec
from wdspec.planning.topology import Seat
from wdspec.run.state import merge_states
from wdspec.spec.load import load
from wdspec.testing import assert_resumable, difference

ROWS = {"web": [40, 0, 91, 17], "code": [33, 64], "speech": [50, 20, 5]}
"""Rows of each shard of each source."""
GROUP = 16


def write_sources(folder, kinds):
    """The same samples in different formats: source -> `tar`, `parquet`, `arrow`, `mds` or `lance`."""
    for name, shards in ROWS.items():
        for shard, rows in enumerate(shards):
            stem = f"{name}-{shard:03d}"
            values = [f"{stem}/{row}" for row in range(rows)]
            table = pa.table(
                {"__key__": [f"{stem}-{row}" for row in range(rows)], "txt": pa.array(values, pa.string())}
            )
            path = folder / f"{stem}.{kinds[name]}"
            if kinds[name] == "parquet":
                pq.write_table(table, path, row_group_size=GROUP)
            elif kinds[name] == "lance":
                lance.write_dataset(table, str(path))
            elif kinds[name] == "mds":
                rows_of_bytes = [
                    {each: row[each].encode() for each in ("__key__", "txt")} for row in table.to_pylist()
                ]
                path.write_bytes(plain_shard({"__key__": "str", "txt": "str"}, rows_of_bytes))
            elif kinds[name] == "arrow":
                with pa.ipc.new_stream(path, table.schema) as writer:
                    writer.write_table(table, max_chunksize=GROUP)
            else:
                with wdspec.TarWriter(path) as writer:
                    for key, value in zip(table["__key__"].to_pylist(), values, strict=True):
                        writer.write({"__key__": key, "txt": value})


def spec_of(folder, kinds, **keys):
    shares = (
        {}
        if keys.get("epoch") == "pass"
        else {"web": {"weight": 3}, "code": {"weight": 1}, "speech": {"weight": 2}}
    )
    return {
        "seed": 5,
        "dataset": [
            {
                "name": name,
                "shuffle": 40,
                "empty": "allow",
                "shards": f"{folder}/{name}-{{000..{len(ROWS[name]) - 1:03d}}}.{kinds[name]}",
                **shares.get(name, {}),
            }
            for name in ROWS
        ],
        "elastic": {"ranks": 4, "workers": 2},
        "batch": 3,
        "epoch": {"batches": 7},
        **keys,
    }  # fmt: skip


TARS = dict.fromkeys(ROWS, "tar")
MIXED = {"web": "parquet", "code": "tar", "speech": "arrow"}


def read_legs(listed, legs):
    """The keys and texts of global steps, read by the ranks and workers of each leg in turn."""
    steps, state = [], None
    for ranks, workers, count in legs:
        rows, states = [], []
        for rank in range(ranks):
            with rotating_loader(listed.run(Seat(rank, ranks), workers), workers, 2, False) as loader:
                if state is not None:
                    loader.load_state_dict(json.loads(state))
                rows.append(take(loader, count * loader.run.items_per_step))
                states.append(json.loads(json.dumps(loader.state_dict())))
        each = len(rows[0]) // count
        for step in range(count):
            found = [row[step * each + item] for row in rows for item in range(each)]
            steps.append(
                sorted(
                    (key, text)
                    for batch in found
                    for key, text in zip(batch["__key__"], batch["txt"], strict=True)
                )
            )
        state = json.dumps(merge_states(states))
    return steps


def take(loader, count):
    taken = []
    while len(taken) < count:
        for item in loader:
            taken.append(item)
            if len(taken) == count:
                break
    return taken


@pytest.mark.parametrize("case", mostly_long(range(12), range(4)))
def test_a_mix_of_formats_has_the_order_of_a_tar_mix(case, tmp_path):
    draw = random.Random(case)
    kinds = (
        dict(zip(ROWS, draw.sample(["tar", "parquet", "arrow", "mds"], 3), strict=True)) if case else MIXED
    )
    if case % 3 == 1:
        kinds["code"] = "lance"  # not that with an empty shard: a data set without rows has no shards
    for folder, each in (("tars", TARS), ("mixed", kinds)):
        (tmp_path / folder).mkdir()
        write_sources(tmp_path / folder, each)
    keys = {"epoch": "pass"} if case % 4 == 3 else {}
    steps = 12 if keys else 24
    legs = []
    while sum(leg[2] for leg in legs) < steps:
        legs.append((draw.choice([1, 2, 4]), draw.choice([0, 1, 2]), draw.randint(1, 5)))
    if keys:
        legs = [(*legs[0][:2], 12)]  # a new iteration starts the pass again
    plain = Listed.of(load(spec_of(tmp_path / "tars", TARS, **keys)))
    mixed = Listed.of(load(spec_of(tmp_path / "mixed", kinds, **keys)))
    expected = read_legs(plain, [(1, 0, sum(leg[2] for leg in legs))])
    assert read_legs(mixed, legs) == expected
    # The values are those that pyarrow reads, all at once.
    rows = {}
    for path in (tmp_path / "mixed").glob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            rows[row["__key__"]] = row["txt"]
    for step in expected:
        for key, text in step:
            assert rows.get(key, text) == text


def test_shares_of_a_mix_of_formats_are_exact(tmp_path):
    write_sources(tmp_path, MIXED)
    spec = spec_of(tmp_path, MIXED, elastic=None, batch=None, epoch=600)
    with wdspec.loader(spec, num_workers=0) as loader:
        sources = [sample["__source__"] for sample in loader]
    for count in range(6, 601, 6):
        assert [sources[:count].count(name) for name in ("web", "code", "speech")] == [
            count // 2,
            count // 6,
            count // 3,
        ]


@pytest.mark.parametrize("stops", mostly_long([[0, 3, 7], None], [[0, 3, 7]]), ids=["some", "all"])
def test_a_spec_with_tables_resumes_at_every_step_with_worker_processes(stops, tmp_path):
    write_sources(tmp_path, MIXED)
    spec = spec_of(tmp_path, MIXED, elastic=None)
    assert_resumable(lambda: wdspec.loader(spec, num_workers=2), stops=stops)


def test_table_arrays_lists_and_media_are_batched(tmp_path):
    pq.write_table(
        pa.table(
            {
                "tokens": pa.array([[n, n + 1] for n in range(8)], pa.list_(pa.int32())),
                "label": range(8),
                "names": [["a", str(n)] for n in range(8)],
                "image": [{"bytes": picture(n), "path": f"{n}.png"} for n in range(8)],
            }
        ),
        tmp_path / "a.parquet",
        row_group_size=3,
    )
    spec = {
        "dataset": [
            {"shards": f"{tmp_path}/a.parquet", "order": "sequential", "shuffle": 0, "decode": "rgb8"}
        ],
        "batch": 4,
    }
    with wdspec.loader(spec, num_workers=0) as loader:
        batch = next(iter(loader))
    assert batch["tokens"].tolist() == [[n, n + 1] for n in range(4)]
    assert batch["label"].tolist() == [0, 1, 2, 3]
    assert batch["names"] == [["a", str(n)] for n in range(4)]
    assert difference(batch["image"][:, 0, 0, 0].numpy(), np.arange(4, dtype=np.uint8)) is None
    assert tuple(batch["image"].shape) == (4, 5, 6, 3)


def picture(n):
    import io

    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (6, 5), (n, 0, 0)).save(file, "PNG")
    return file.getvalue()
