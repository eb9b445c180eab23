"""A small data folder for the oracle: every kind of shard, partner, table and key list.

Everything in it follows from the numbers of sources, shards and samples, so that an independent reader can
compute it as well as read it. Specs name the files relative to the folder.
"""

from __future__ import annotations

import csv
import io
import json
import struct
import wave
from itertools import product
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from mdsdata import plain_shard
from PIL import Image
from shardmaking import write_shard

UNEVEN = {
    "a": (9, 3, 6, 4, 8),
    "b": (1, 4, 2, 3, 1, 2, 4, 1, 3, 2, 1, 4),
    "c": (7,),
    "e": (40, 40),
    "tiny": (2,),
    "rows": (6, 9, 5),
    "parquet": (8, 11),
    "arrow": (5, 10),
    "mds": (6, 7),
    "lance": (9, 4),
    "nulls": (15, 8),
    "broken": (12, 12, 12, 8),
    "dotted": (6, 6),
}
"""Name of a source -> the samples of each of its shards."""

SHARDS = {
    "a": "a-{000..004}.tar",
    "b": "b-{000..011}.tar",
    "c": "c-000.tar",
    "e": "e-{000..001}.tar",
    "tiny": "tiny-000.tar",
    "rows": "rows-{000..002}.jsonl",
    "parquet": "parquet-{000..001}.parquet",
    "arrow": "arrow-{000..001}.arrow",
    "mds": "mds-{000..001}.mds",
    "lance": "lance-{000..001}.lance",
    "nulls": "nulls-{000..001}.parquet",
    "broken": "broken-{000..003}.tar",
    "dotted": "dotted-{000..001}.tar",
}
"""Name of a source -> its shards as a spec names them."""

TOKEN_FILES = {
    "npy": (157, 90),
    "megatron": ((13, 40, 1, 22, 9, 31), (5, 17, 60)),
    "raw": (120,),
    "grid": (7, 4),
}
"""Kind of token files -> for each file its tokens, those of each document (Megatron), or its rows (grid)."""

TOKENS = {
    "npy": "ids-{000..001}.npy",
    "megatron": "mega-{000..001}.bin",
    "raw": "raw-000.bin",
    "grid": "grid-{000..001}.npy",
}
"""Kind of token files -> the files in a spec. `raw` is uint16 without a header, and 0 ends a document."""

LATER = ("mds", "lance", "nulls")
"""Sources that lookup tables and lists of keys lack: recorded states have the digests of these as they were before."""

MDS_COLUMNS = {
    "__key__": "str",
    "txt": "str",
    "json": "json",
    "cls": "int",
    **dict.fromkeys(("ids", "labels"), "ndarray:int64"),
}
"""Column of MDS -> its encoding."""

LANGUAGES = ("de", "en", "fr")
GAP = 4
"""Partners and tables lack every sample whose number within the source leaves 1 when divided by this."""


def key_of(source: str, shard: int, number: int) -> str:
    """The key of a sample."""
    return f"{source}{shard:03d}{number:04d}"


def numbered(source: str) -> list[tuple[int, int, int]]:
    """All samples of a source in the order of its shards: shard, number in the shard, number in the source."""
    found: list[tuple[int, int, int]] = []
    for shard, size in enumerate(UNEVEN[source]):
        found += [(shard, number, len(found) + number) for number in range(size)]
    return found


def values_of(source: str, shard: int, number: int) -> dict[str, Any]:
    """The values of a sample by field, before they are encoded."""
    n = sum(UNEVEN[source][:shard]) + number
    salt = sum(map(ord, source))
    length = 1 + (n * 17 + salt * 5) % 40
    text = f"{source}{n} " + "abcdefghij" * 4
    return {
        "txt": text[: 1 + (n * 13 + salt * 3) % 40],
        "json": {
            "score": (n * 7 + salt) % 11,
            "lang": LANGUAGES[(n * n + salt) % 3],
            "n": n % 8,
            "user": f"u{n // 3}",
        },
        "cls": (n * 3 + salt) % 5,
        "ids.npy": np.arange(length, dtype=np.int64) + 1000 * (salt % 90) + 10 * n,
        "labels.npy": np.arange(length, dtype=np.int64) % 7 - 1,
    }


def write_data(folder: str | Path) -> None:
    """Write all files into a folder that exists."""
    folder = Path(folder)
    for source in ("a", "b", "c", "e", "tiny"):
        _write_tars(folder, source)
    _write_rows(folder)
    _write_dotted(folder)
    _write_broken(folder)
    _write_partners(folder)
    _write_tables(folder)
    _write_key_lists(folder)
    _write_tokens(folder)
    _write_tokenizer(folder)
    _write_rich(folder)
    _write_objects(folder)


SOUND_RATE = 441
"""Of the recordings, in samples per second."""


def _write_objects(folder: Path) -> None:
    """What `json.lang`, and a list of labels, may name; a few are missing."""
    (folder / "objects").mkdir()
    for name in LANGUAGES[:-1]:
        (folder / "objects" / name).write_text(f"an object for {name}", encoding="utf-8")
    (folder / "pictures").mkdir()
    for number, name in enumerate(LANGUAGES[:-1]):
        Image.new("L", (5 + 6 * number, 3 + number)).save(folder / "pictures" / f"{name}.png")
    (folder / "pictures" / f"{LANGUAGES[0]}.bad").write_text("no picture", encoding="utf-8")
    (folder / "sounds").mkdir()
    for number, name in enumerate(LANGUAGES[:-1]):
        with wave.open(str(folder / "sounds" / f"{name}.wav"), "wb") as sound:
            sound.setparams((1, 2, SOUND_RATE, 0, "NONE", ""))
            sound.writeframes((np.arange(int(2.9 * SOUND_RATE)) * 7 + number).astype("<i2").tobytes())
    (folder / "roles").mkdir()
    (folder / "roles" / "user").write_text("an object of users", encoding="utf-8")
    (folder / "lists").mkdir()
    for name, label in product(LANGUAGES, range(-1, 6)):
        if (name, label) not in (("en", 3), ("fr", -1)):
            text = f"object {label} for {name}"
            (folder / "lists" / f"{name}{label}.txt").write_text(text, encoding="utf-8")


def encode(values: dict[str, Any]) -> dict[str, bytes]:
    """Encode the values of a sample as the files of a tar."""
    return {name: _encode(name, value) for name, value in values.items()}


def _encode(name: str, value: Any) -> bytes:
    if name.endswith("npy"):
        buffer = io.BytesIO()
        np.save(buffer, value)
        return buffer.getvalue()
    return (json.dumps(value) if name.endswith("json") else str(value)).encode()


def _samples(source: str, shard: int) -> list[tuple[str, dict[str, bytes]]]:
    """The encoded samples of a shard; in `b`, every fourth sample lacks `cls`."""
    found = []
    for number in range(UNEVEN[source][shard]):
        values = values_of(source, shard, number)
        if source == "b" and number % 4 == 3:
            del values["cls"]
        found.append((key_of(source, shard, number), encode(values)))
    return found


def _write_tars(folder: Path, source: str) -> None:
    for shard in range(len(UNEVEN[source])):
        write_shard(folder / f"{source}-{shard:03d}.tar", _samples(source, shard))


def _write_rows(folder: Path) -> None:
    """The same kind of samples as JSON Lines, MDS and tables, with arrays named `ids` and `labels`.

    Every seventh row of `nulls` has only nulls. It has no keys, and is empty then.
    """
    for source in ("rows", "parquet", "arrow", "mds", "lance", "nulls"):
        for shard, size in enumerate(UNEVEN[source]):
            rows = []
            for number in range(size):
                values = values_of(source, shard, number)
                ids, labels = values.pop("ids.npy"), values.pop("labels.npy")
                rows.append(
                    {
                        "__key__": key_of(source, shard, number),
                        **values,
                        "ids": ids.tolist(),
                        "labels": labels.tolist(),
                    }
                )
            path = folder / f"{source}-{shard:03d}"
            if source == "rows":
                lines = "".join(json.dumps(row) + "\n" for row in rows)
                path.with_suffix(".jsonl").write_text(lines, encoding="utf-8")
                continue
            if source == "mds":
                path.with_suffix(".mds").write_bytes(plain_shard(MDS_COLUMNS, [*map(_as_mds, rows)]))
                continue
            if source == "nulls":
                rows = [dict.fromkeys(row) if at % 7 == 3 else row for at, row in enumerate(rows)]
            table = pa.Table.from_pylist(rows)
            if source == "nulls":
                pq.write_table(table.drop_columns("__key__"), path.with_suffix(".parquet"), row_group_size=4)
                continue
            if source == "lance":  # with rows that the second version has no more
                more = table.slice(0, 1).set_column(0, "__key__", [["deleted"]])
                both = pa.concat_tables([more, table, more])
                lance.write_dataset(both, str(path.with_suffix(".lance"))).delete("__key__ = 'deleted'")
                continue
            if source == "parquet":
                pq.write_table(table, path.with_suffix(".parquet"), row_group_size=4)
                continue
            with pa.ipc.new_file(str(path.with_suffix(".arrow")), table.schema) as writer:
                writer.write_table(table, max_chunksize=4)


def _as_mds(row: dict[str, Any]) -> dict[str, bytes]:
    """The values of a row as the bytes of MDS."""
    arrays = {name: np.array(row[name], "<i8") for name in ("ids", "labels")}
    return {
        "__key__": row["__key__"].encode(),
        "txt": row["txt"].encode(),
        "json": json.dumps(row["json"]).encode(),
        "cls": struct.pack("<q", row["cls"]),
        **{name: struct.pack("<BB", 4, len(array)) + array.tobytes() for name, array in arrays.items()},
    }


def _write_dotted(folder: Path) -> None:
    """Names with several dots, `dotted0000003.v1.txt`, which each kind of key splits in another way."""
    for shard, size in enumerate(UNEVEN["dotted"]):
        samples = []
        for number in range(size):
            values = values_of("dotted", shard, number)
            kept = {"txt": values["txt"], "cls": values["cls"]}
            samples.append((f"{key_of('dotted', shard, number)}.v1", encode(kept)))
        write_shard(folder / f"dotted-{shard:03d}.tar", samples)


def _write_broken(folder: Path) -> None:
    """Damaged samples: JSON that does not parse (shards 0 and 3), a truncated shard (1), short arrays (2)."""
    for shard in range(len(UNEVEN["broken"])):
        samples = _samples("broken", shard)
        for number in {0: (5, 6), 3: (0, 7)}.get(shard, ()):
            samples[number][1]["json"] = b"{no json"
        for number in {2: (3, 11)}.get(shard, ()):
            samples[number][1]["ids.npy"] = samples[number][1]["ids.npy"][:-3]
        path = folder / f"broken-{shard:03d}.tar"
        write_shard(path, samples)
        if shard == 1:  # in the middle of a header of the eighth sample
            path.write_bytes(path.read_bytes()[: 7 * 10 * 512 + 200])


def _write_partners(folder: Path) -> None:
    """Partners of `a` and `b`: `full`, `gaps` (samples without one, and keys of no sample) and `hurt` (damaged)."""
    for source in ("a", "b"):
        for kind in ("full", "gaps", "hurt"):
            for shard, size in enumerate(UNEVEN[source]):
                samples = []
                for number in range(size):
                    n = sum(UNEVEN[source][:shard]) + number
                    key = key_of(source, shard, number)
                    if kind == "gaps" and n % GAP == 1:
                        samples.append((f"{key}x", partner_of(source, n)))
                        continue
                    fields = partner_of(source, n)
                    if kind == "hurt" and n % 6 == 2:
                        fields["more.json"] = b"{no json"
                    samples.append((key, fields))
                write_shard(folder / f"{source}-{kind}-{shard:03d}.tar", samples)
            if kind == "full":
                _write_partner_rows(folder, source)


def partner_of(source: str, n: int) -> dict[str, bytes]:
    """The files that a partner adds to sample n of a source."""
    return {
        "caption.txt": f"{source} caption {n}".encode(),
        "more.json": json.dumps({"rating": n % 5, "group": "xyz"[n % 3]}).encode(),
    }


def _write_partner_rows(folder: Path, source: str) -> None:
    """The partners as JSON Lines: `lines` with gaps, `cut` with one line of each shard cut short."""
    for shard, size in enumerate(UNEVEN[source]):
        start = sum(UNEVEN[source][:shard])
        rows = [
            {"__key__": key_of(source, shard, number), "caption": f"{source} line {start + number}"}
            for number in range(size)
            if (start + number) % GAP != 1
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{source}-lines-{shard:03d}.jsonl").write_text(lines, encoding="utf-8")
        whole = [
            json.dumps({"__key__": key_of(source, shard, number), "caption": f"{source} line {number}"})
            for number in range(size)
        ]
        whole[size // 3] = whole[size // 3][:14]
        (folder / f"{source}-cut-{shard:03d}.jsonl").write_text("\n".join([*whole, ""]), encoding="utf-8")


def _write_tables(folder: Path) -> None:
    """Lookup tables: `scores.csv`, `scores.parquet` by key, with gaps; `all.parquet` without; `ns.csv` by `n`."""
    every = [(source, *each) for source in UNEVEN if source not in LATER for each in numbered(source)]
    rows = [
        {"__key__": key_of(source, shard, number), "grade": n % 6, "mark": f"{source}{n % 4}"}
        for source, shard, number, n in every
    ]
    files = [f"{kind}-{file:03d}" for kind in ("ids", "mega", "grid", "raw") for file in range(2)]
    tokens = [
        {"__key__": f"{file}/{n}", "grade": n % 6, "mark": f"{file}{n % 4}"}
        for file in files
        for n in range(40)
    ]
    gaps = [row for row, (*_, n) in zip(rows, every, strict=True) if n % GAP != 1]
    pq.write_table(pa.Table.from_pylist(rows + tokens), folder / "all.parquet")
    pq.write_table(pa.Table.from_pylist(gaps), folder / "scores.parquet")
    _write_csv(folder / "scores.csv", gaps)
    _write_csv(folder / "ns.csv", [{"n": n, "kind": f"k{n % 3}", "size": n * 10} for n in range(8) if n != 5])


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _write_key_lists(folder: Path) -> None:
    """`some.txt`, `some.npy`: two thirds of the keys; `bad.txt`: every seventh; `users.txt`: of json.user."""
    sources = [source for source in UNEVEN if source not in LATER]
    every = [(key_of(source, *each[:2]), each[2]) for source in sources for each in numbered(source)]
    some = [key for key, n in every if n % 3 != 2]
    (folder / "some.txt").write_text("".join(f"{key}\n" for key in some), encoding="utf-8")
    np.save(folder / "some.npy", np.array(some))
    bad = [key for key, n in every if n % 7 == 4]
    (folder / "bad.txt").write_text("\n".join(["", *bad]), encoding="utf-8")
    (folder / "users.txt").write_text("".join(f"u{n}\n" for n in range(0, 40, 2)), encoding="utf-8")


LETTERS = [*"abcdefghij", " ", "<unk>", "<end>"]
"""The tokens of `letters.json`: the id of each is its place. Other letters are `<unk>`."""
TALK = [*LETTERS, "<img>"]
"""The tokens of `talk.json`."""
TALK_TEMPLATE = (
    "{% for message in messages %}{{ message['role'][0] }} {{ message['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}a {% endif %}"
)
"""`talk.jinja`: the first letter of the role, a space, the text, and `<end>`."""


def _write_tokenizer(folder: Path) -> None:
    """`letters.json`: a tokenizer of `tokenizers` whose tokens are single letters."""
    special = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
    added = [{"id": LETTERS.index(text), "content": text, **special} for text in ("<unk>", "<end>")]
    split = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
    model = {"type": "WordLevel", "vocab": {text: n for n, text in enumerate(LETTERS)}, "unk_token": "<unk>"}
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    tokenizer = {"version": "1.0", **parts, "added_tokens": added, "pre_tokenizer": split, "model": model}
    (folder / "letters.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    model["vocab"] = {text: n for n, text in enumerate(TALK)}
    added += [{"id": TALK.index("<img>"), "content": "<img>", **special}]
    (folder / "talk.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "talk.jinja").write_text(TALK_TEMPLATE, encoding="utf-8")


RICH = (9, 7, 8)
"""The samples of each shard of `rich`, which have what `chat` and `crop` need."""


def rich_of(shard: int, number: int) -> dict[str, Any]:
    """The values of a sample of `rich`: texts, chats with images, and an image with boxes and points."""
    n = sum(RICH[:shard]) + number
    plain = values_of("a", 0, n)
    high, wide = 9 + n % 5, 8 + n * 3 % 7
    talk: list[dict[str, str]] = [{"role": "system", "content": "abc <end> j"}] if n % 3 == 0 else []
    images = 0
    for turn in range(1 + n % 3):
        images += (n + turn) % 2
        question = "<img> bad" if (n + turn) % 2 else "a cab"
        talk += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": "fed"[: turn + 1] + " xyz"},
        ]
    boxes = [[at, at + 1, wide - at, high - 2 * at] for at in range(n % 4)]
    return {
        "txt": plain["txt"],
        "json": {
            **plain["json"],
            "messages": talk,
            "before": [{"role": "user", "content": "face"}] if n % 4 else None,
            "images": [f"i{each}" for each in range(images)],
            "sizes": [2 + each for each in range(images)],
            "captions": [f"caption {n} {each}" for each in range(1 + n % 4)],
            "alt": None if n % 3 else f"alt {n}",
            "boxes": boxes,
            "points": [[1, 2, 1], [wide - 1, 3, 2], [4, high - 0.5, 1]],
        },
        "ids.npy": plain["ids.npy"],
        "labels.npy": plain["labels.npy"],
        "pic.npy": (np.arange(high * wide, dtype=np.uint8).reshape(high, wide) * 2 + n),
    }


def _write_rich(folder: Path) -> None:
    """`rich`: samples with chats, captions, images, boxes and points, in tars."""
    for shard, size in enumerate(RICH):
        samples = [(key_of("rich", shard, number), encode(rich_of(shard, number))) for number in range(size)]
        write_shard(folder / f"rich-{shard:03d}.tar", samples)


def tokens_of(kind: str, file: int, count: int) -> np.ndarray:
    """The first tokens of a file; in `raw`, every ninth is 0."""
    numbers = np.arange(count) + 500 * file
    return 1 + numbers % 900 if kind != "raw" else np.where(numbers % 9 == 8, 0, 1 + numbers % 900)


def _write_tokens(folder: Path) -> None:
    for file, count in enumerate(TOKEN_FILES["npy"]):
        np.save(folder / f"ids-{file:03d}.npy", tokens_of("npy", file, count).astype("<u2"))
    for file, rows in enumerate(TOKEN_FILES["grid"]):
        tokens = tokens_of("grid", file, rows * 16).astype("<i4")
        np.save(folder / f"grid-{file:03d}.npy", tokens.reshape(rows, 16))
    raw = tokens_of("raw", 0, TOKEN_FILES["raw"][0]).astype("<u2")
    (folder / "raw-000.bin").write_bytes(raw.tobytes())
    for file, lengths in enumerate(TOKEN_FILES["megatron"]):
        tokens = tokens_of("megatron", file, sum(lengths)).astype("<i4")
        (folder / f"mega-{file:03d}.bin").write_bytes(tokens.tobytes())
        (folder / f"mega-{file:03d}.idx").write_bytes(_megatron_index(lengths))


def _megatron_index(lengths: tuple[int, ...]) -> bytes:
    """The index of a Megatron file of int32 tokens with one sequence per document."""
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]]) * 4
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, len(lengths), len(lengths) + 1)
    documents = np.arange(len(lengths) + 1, dtype="<i8").tobytes()
    return header + np.array(lengths, "<i4").tobytes() + offsets.astype("<i8").tobytes() + documents
