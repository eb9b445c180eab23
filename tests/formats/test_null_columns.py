"""What errors say of a column that a table does not have, and of a null."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import pack

import wdspec


def error_of(folder: Path, **keys: Any) -> str:
    table = pa.table({"image": [b"1", b"2"], "text": ["a", None], "boxes": [[1.0], [2.0]]})
    pq.write_table(table, folder / "a.parquet")
    shards = str(folder / "a.parquet")
    source = {"shards": shards, "order": "sequential", "shuffle": 0, "decode": "raw"}
    spec = {"companions": {"others": source}, "dataset": [{**source, **keys.pop("source", {})}], **keys}
    with wdspec.loader(spec, num_workers=0) as loader, pytest.raises(wdspec.FieldError) as caught:
        for _ in zip(range(100), loader, strict=False):
            pass
    return str(caught.value)


def test_a_column_that_is_missing_is_called_no_file_and_the_one_meant_is_named(tmp_path: Path) -> None:
    said = error_of(tmp_path, fields=["image", "txet"])
    assert "the sample has no field 'txet'" in said
    assert "file" not in said.partition("[")[0]
    assert "Did you mean `text`?" in said


def test_a_column_that_rename_misspells_is_named(tmp_path: Path) -> None:
    said = error_of(tmp_path, source={"rename": {"caption": "txet"}}, fields=["caption"])
    assert "`rename` takes it from 'txet'" in said
    assert "Did you mean `text`?" in said


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl"])
@pytest.mark.parametrize("more", [{}, {"where": "path.length > 0"}])
def test_a_column_that_nothing_asks_for_is_named_beside_objects(
    kind: str, workers: int, more: dict[str, str], tmp_path: Path
) -> None:
    rows = [{"path": "1.txt", "messages": "hello", "images": "x"}]
    table = (
        "\n".join(map(json.dumps, rows)).encode()
        if kind == "jsonl"
        else pack(pa.Table.from_pylist(rows), kind)
    )
    (tmp_path / f"a.{kind}").write_bytes(table)
    (tmp_path / "1.txt").write_text("1")
    source = {
        "shards": str(tmp_path / f"a.{kind}"),
        "fetch": {"note": {"url": "path", "root": f"{tmp_path}/"}},
        "make": {"kind": {"label": "mesages", "names": ["hello"]}},
    }
    spec = {"dataset": [source | more], "fields": ["note", "images", "kind"]}
    with (
        wdspec.loader(spec, num_workers=workers) as loader,
        pytest.raises(wdspec.FieldError, match="Did you mean `messages`"),
    ):
        next(iter(loader))


def test_a_column_is_no_value_in_a_field_json(tmp_path: Path) -> None:
    made = {"make": {"kind": {"label": "json.text", "names": ["a"]}}}
    assert "Columns are fields: write `text` in place of `json.text`" in error_of(
        tmp_path, source=made, fields=["kind"]
    )


def test_a_null_is_no_field_that_another_name_has(tmp_path: Path) -> None:
    said = error_of(tmp_path, fields=["image", "text"])
    assert "the shard has it, but this sample lacks it, or has null; set `missing: skip`" in said
    assert "rename" not in said


def test_a_null_of_a_companion_is_called_that_of_the_companion(tmp_path: Path) -> None:
    source = {"companions": {"other": "others"}, "make": {"more": {"take": "other.text"}}}
    said = error_of(tmp_path, source=source, fields=["image", "more"])
    assert "`other.text`: there is no `text` in it" in said
    assert "select companions of `other` that have it, and not null, by `where`" in said


def test_the_field_that_is_meant_may_be_made_renamed_or_fetched(tmp_path: Path) -> None:
    made = {"make": {"kind": {"take": "text"}}}
    assert "Did you mean `kind`?" in error_of(tmp_path, source=made, fields=["image", "knd"])
    renamed = {"rename": {"captoin": "text"}}
    assert "Did you mean `captoin`?" in error_of(tmp_path, source=renamed, fields=["caption"])


def test_another_word_for_the_length_is_corrected(tmp_path: Path) -> None:
    assert "write `boxes.length`" in error_of(tmp_path, source={"where": "boxes.lenght > 0"})
