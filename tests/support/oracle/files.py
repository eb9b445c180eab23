"""The raw samples of shard files, and the rows of tables, read with the standard library, numpy and pyarrow.

A file is read whole, as a list. An entry is a `Raw` sample, or `Damage` in place of one that cannot be read.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import sqlite3
import struct
import tarfile
from dataclasses import dataclass
from glob import glob
from itertools import pairwise, product
from typing import Any

import numpy as np
import zstandard


@dataclass
class Raw:
    """A sample before it is decoded."""

    key: str
    files: dict[str, Any]
    """Suffix in lower case → its bytes, or a value of a record or a table."""


@dataclass
class Damage:
    """Stands for a sample that cannot be read; its key may be unknown."""

    key: str | None = None
    ends: bool = False
    """Whether nothing after it can be read, and it stands for no sample that has a position."""


def list_shards(texts, base):
    """Return the shards of `shards` as (text, path), in the order of the spec: braces, globs, lists and Lance."""
    found = []
    for text in texts:
        if text.startswith("@"):
            with open(os.path.join(base, text[1:]), encoding="utf-8") as file:
                lines = [line.strip() for line in file]
            found += [pair for line in lines if line and line[0] != "#" for pair in list_shards([line], base)]
            continue
        for each in expand_braces(text):
            if re.search(r"[*?\[]", each):
                names = sorted(glob(os.path.join(base, each)))
                cut = 0 if os.path.isabs(each) else len(os.path.join(base, ""))
                found += [(name[cut:], name) for name in names]
            elif each.endswith(".lance"):
                import lance

                dataset = lance.dataset(os.path.join(base, each))
                numbers = [fragment.fragment_id for fragment in dataset.get_fragments()]
                names = [f"{each}?version={dataset.version}&fragment={number}" for number in numbers]
                found += [(name, os.path.join(base, name)) for name in names]
            else:
                found.append((each, os.path.join(base, each.removeprefix("file:"))))
    return found


def expand_braces(text):
    """Return the texts of `{000..012}` and `{a,b}`; the last braces change fastest."""
    parts = re.split(r"\{([^{}]*)\}", text)
    choices = []
    for number, part in enumerate(parts):
        if number % 2 == 0:
            choices.append([part])
        elif match := re.fullmatch(r"(\d+)\.\.(\d+)", part):
            width = (
                max(len(end) for end in match.groups()) if any(end[0] == "0" for end in match.groups()) else 1
            )
            choices.append([f"{n:0{width}}" for n in range(int(match[1]), int(match[2]) + 1)])
        else:
            choices.append(part.split(","))
    return ["".join(each) for each in product(*choices)]


_ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".bin": "tokens",
    ".npy": "tokens",
    ".ds": "tokens",
    ".mds": "mds",
}


def format_of(name, declared="auto"):
    """Return the format of a shard, by its name unless it is declared."""
    if declared != "auto":
        return declared
    if ".lance?" in name:
        return "lance"
    plain = name.removesuffix(".gz").removesuffix(".zst")
    return next((kind for ending, kind in _ENDINGS.items() if plain.endswith(ending)), "tar")


def stem_of(name):
    """Return the name of a shard without folders and ending, as in the keys of samples without a key."""
    base = os.path.basename(name).removesuffix(".gz").removesuffix(".zst")
    ending = next((each for each in (*_ENDINGS, ".tar") if base.endswith(each)), "")
    return base.removesuffix(ending)


def read_shard(name, path, *, kind, key_rule, tokens):
    """Return the entries of a shard.

    Args:
        name: the shard as written in the spec.
        path: where it is.
        kind: its format.
        key_rule: how names of members are split (`KeyRule`).
        tokens: the options of token files (`TokenOptions`).

    Raises:
        OSError: it does not exist.
    """
    if kind == "tar":
        return _read_tar(path, key_rule)
    if kind == "jsonl":
        return _read_lines(name, path)
    if kind in ("parquet", "arrow"):
        return _read_table(name, path, kind)
    if kind == "mds":
        return _read_mds(name, path)
    if kind == "lance":
        import lance

        folder, version, fragment = re.split(r"\?version=|&fragment=", path)
        found = lance.dataset(folder, version=int(version)).get_fragment(int(fragment))
        return _rows_of(found.to_table(), name, 0)
    if kind == "tokens":
        return _read_tokens(name, path, tokens)
    raise NotImplementedError(f"shards of {kind}")


_OPENERS = {".gz": gzip.open, ".zst": zstandard.open}


def _read_tar(path, key_rule):
    entries: list[Any] = []
    current = None
    with open(path, "rb") as file:
        data = file.read()
    opener = _OPENERS.get(os.path.splitext(path)[1], open)
    with opener(path, "rb") as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for member in tar:
                    if not member.isfile():
                        continue
                    split = _split_name(member.name, key_rule)
                    if split is None:
                        continue
                    key, suffix = split
                    content = tar.extractfile(member).read()
                    if len(content) < member.size:
                        raise tarfile.ReadError("truncated")
                    if current is None or current.key != key:
                        current = Raw(key, {})
                        entries.append(current)
                    current.files[suffix.lower()] = content
        except (tarfile.ReadError, EOFError):
            return [*entries[:-1], Damage(ends=True)]
    if opener is open and data[-1024:].strip(b"\0"):  # no end marker: the last sample may be incomplete
        return [*entries[:-1], Damage(ends=True)]
    return entries


def _split_name(name, rule):
    folder, _, base = name.rpartition("/")
    if rule.kind == "regex":
        match = re.fullmatch(rule.regex, name)
        return None if match is None else (match[1], match[2])
    if base.startswith(".") or "." not in base:
        return None
    key, _, suffix = base.partition(".") if rule.kind == "first_dot" else base.rpartition(".")
    return (f"{folder}/{key}" if folder else key), suffix


def _read_lines(name, path):
    with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
        data = file.read()
    entries: list[Any] = []
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        number = len(entries)
        try:
            record = json.loads(line)
        except ValueError:
            entries.append(Damage())
            continue
        if not isinstance(record, dict):
            entries.append(Damage())
            continue
        key = record.pop("__key__", None)
        key = f"{stem_of(name)}/{number}" if key is None else str(key)
        entries.append(Raw(key, {_field(each): value for each, value in record.items()}))
    return entries


def _field(name):
    return name if name.startswith("__") and name.endswith("__") else name.lower()


def _read_table(name, path, kind):
    import pyarrow as pa
    import pyarrow.parquet

    entries: list[Any] = []
    if kind == "parquet":
        file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
        for number in range(file.num_row_groups):
            try:
                group = file.read_row_group(number)
            except (OSError, pa.ArrowInvalid):
                entries += [Damage() for _ in range(file.metadata.row_group(number).num_rows)]
            else:
                entries += _rows_of(group, name, len(entries))
        return entries
    try:
        table = pa.ipc.open_file(path).read_all()
    except pa.ArrowInvalid:
        table = pa.ipc.open_stream(path).read_all()
    return _rows_of(table, name, 0)


def _read_mds(name, path):
    with open(path, "rb") as file:
        data = file.read()
    (count,) = struct.unpack_from("<I", data)
    ends = struct.unpack_from(f"<{count + 1}I", data, 4)
    about = json.loads(data[8 + 4 * count : ends[0]])
    decode = {
        "str": bytes.decode,
        "json": json.loads,
        "int": lambda part: int.from_bytes(part, "little", signed=True),
        "ndarray:int64": lambda part: np.frombuffer(part[2:], "<i8").copy(),
    }
    entries = []
    for number, at in enumerate(ends[:-1]):
        files, sizes = {}, []
        for size in about["column_sizes"]:
            sizes.append(struct.unpack_from("<I", data, at)[0] if size is None else size)
            at += 4 * (size is None)
        for column, encoding, size in zip(
            about["column_names"], about["column_encodings"], sizes, strict=True
        ):
            files[column] = decode[encoding](data[at : at + size])
            at += size
        entries.append(Raw(files.pop("__key__", f"{stem_of(name)}/{number}"), files))
    return entries


def _rows_of(table, name, first):
    columns = {each: _column_values(table.column(each)) for each in table.column_names}
    entries = []
    for row in range(table.num_rows):
        key, files = f"{stem_of(name)}/{first + row}", {}
        for column, values in columns.items():
            if column == "__key__":
                key = str(values[row])
            elif not column.startswith("__index_level_") and values[row] is not None:
                files[_field(column)] = values[row]
        entries.append(Raw(key, files))
    return entries


def _column_values(column):
    import pyarrow as pa

    kind, values = column.type, column.to_pylist()
    leaf, depth = kind, 0
    while pa.types.is_list(leaf) or pa.types.is_large_list(leaf) or pa.types.is_fixed_size_list(leaf):
        leaf, depth = leaf.value_type, depth + 1
    if depth and (pa.types.is_integer(leaf) or pa.types.is_floating(leaf) or pa.types.is_boolean(leaf)):
        dtype = np.dtype(leaf.to_pandas_dtype())
        return [None if value is None else np.array(value, dtype) for value in values]
    if pa.types.is_struct(kind) and {each.name for each in kind} <= {"bytes", "path"}:
        return [value and value["bytes"] for value in values]
    return values


def _read_tokens(name, path, options):
    with open(path, "rb") as file:
        data = file.read()
    ends = None
    row = None
    if data.startswith(b"\x93NUMPY"):
        array = np.load(path)
        row = array.shape[1] if array.ndim == 2 else None
        numbers = array.reshape(-1)
    elif options.dtype is not None and (options.length is not None or options.eos is not None):
        numbers = np.frombuffer(data, np.dtype(options.dtype).newbyteorder("<"))
    else:
        dtype, ends = _read_index(path.removesuffix(".bin") + ".idx")
        numbers = np.frombuffer(data, dtype)
    numbers = numbers.astype(np.int64)
    if options.length is not None:
        length = options.length
        spans = [(at, at + length) for at in range(0, len(numbers) - length + 1, length)]
    elif options.eos is not None:
        stops = [at + 1 for at, number in enumerate(numbers.tolist()) if number == options.eos]
        stops += [len(numbers)] if not stops or stops[-1] != len(numbers) else []
        spans = [span for span in pairwise([0, *stops]) if span[0] < span[1]]
    elif row is not None:
        spans = [(at, at + row) for at in range(0, len(numbers), row)]
    else:
        spans = list(pairwise(ends))
    entries: list[Any] = []
    for index, (start, stop) in enumerate(spans):
        ids, key = numbers[start:stop].copy(), f"{stem_of(name)}/{index}"
        if (
            options.vocabulary is not None
            and len(ids)
            and not 0 <= ids.min() <= ids.max() < options.vocabulary
        ):
            entries.append(Damage(key))
        else:
            entries.append(Raw(key, {"tokens": ids}))
    return entries


def _read_index(path):
    """Return the type of the numbers of a file of Megatron, and where its documents start and the last one ends."""
    with open(path, "rb") as file:
        data = file.read()
    _, code, sequences, documents = struct.unpack_from("<QBQQ", data, 9)
    dtype = np.dtype({1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}[code])
    lengths = np.frombuffer(data, "<i4", sequences, 34).tolist()
    firsts = np.frombuffer(data, "<i8", documents, 34 + 12 * sequences).tolist()
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    return dtype, [starts[first] for first in firsts]


def read_lookup(options):
    """Return key → the values of the columns of `lookup`, by their new names (`LookupOptions`)."""
    text = options.table
    path, _, inner = text.partition("#")
    path = os.path.join(options.base, path)
    kind = options.format
    if kind == "auto":
        endings = {
            **_ENDINGS,
            ".csv": "csv",
            ".tsv": "csv",
            ".sqlite": "sqlite",
            ".db": "sqlite",
            ".npz": "npz",
        }
        kind = next(kind for ending, kind in endings.items() if path.removesuffix(".gz").endswith(ending))
    columns = _read_columns(path, kind, inner)
    last = options.on.rpartition(".")[2]
    candidates = [options.key] if options.key is not None else [options.on, last, "__key__", "key"]
    key = next(name for name in candidates if name in columns)
    new_of = {old: new for new, old in options.rename.items()}
    return {
        str(each): {new_of.get(name, name): columns[name][row] for name in options.fields}
        for row, each in enumerate(columns[key])
    }


def _read_columns(path, kind, inner):
    if kind == "parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(path)
        return {name: _lookup_values(table.column(name)) for name in table.column_names}
    if kind == "npz":
        with np.load(path) as arrays:
            return {name: _array_rows(arrays[name]) for name in arrays.files}
    if kind == "sqlite":
        with sqlite3.connect(path) as base:
            name = (
                inner
                or base.execute("select name from sqlite_master where type in ('table', 'view')").fetchone()[
                    0
                ]
            )
            cursor = base.execute(f'select * from "{name}"')
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
        return {name: [row[at] for row in rows] for at, name in enumerate(names)}
    with (
        gzip.open(path, "rt")
        if path.endswith(".gz")
        else open(path, encoding="utf-8-sig", newline="") as file
    ):
        if kind == "jsonl":
            records = [json.loads(line) for line in file if line.strip()]
            names = dict.fromkeys(name for record in records for name in record)
            return {name: [record.get(name) for record in records] for name in names}
        header, *rows = [row for row in csv.reader(file, delimiter="\t" if ".tsv" in path else ",") if row]
    return {name: _typed([row[at] for row in rows]) for at, name in enumerate(header)}


def _lookup_values(column):
    import pyarrow as pa

    values, kind = column.to_pylist(), column.type
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = kind.value_type
        is_number = pa.types.is_integer(inner) or pa.types.is_floating(inner)
        if None not in values and is_number and len({len(value) for value in values}) == 1:
            return [np.array(value, inner.to_pandas_dtype()) for value in values]
    return values


def _array_rows(array):
    if array.dtype.kind == "S":
        return [value.decode() for value in array.tolist()]
    return array.tolist() if array.ndim == 1 else [row.copy() for row in array]


def _typed(texts):
    for kind in (int, float):
        try:
            return [kind(text) if text else None for text in texts]
        except ValueError:
            continue
    return [text or None for text in texts]
