"""The same data in every format of shards give the same samples under the keys of a source."""

import io
import json
import tarfile
from itertools import chain

import cbor2
import lance
import msgpack
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
from keychanges import KEYS as DECLARED
from mdsdata import plain_shard

import wdspec

ROWS = [
    {
        "__key__": f"k{n:02d}",
        "txt": f"text {n}",
        "cls": n % 3,
        "json": {"n": n, "even": n % 2 == 0, "tags": [f"tag {tag}" for tag in range(n % 4)]},
    }
    for n in range(12)
]
MORE = [{"__key__": f"k{n:02d}", "text": f"more {n}"} for n in range(0, 12, 2)]
"""Samples of partners: every second one has no partner."""
KEYS = {
    "nothing": {},
    "extensions": {"extensions": "txt cls"},
    "alternatives": {"extensions": "text;txt cls"},
    "rename": {"rename": {"caption": "txt"}},
    "missing: skip": {"extensions": "txt nothing", "missing": "skip", "empty": "allow"},
    "missing: none": {"extensions": "txt nothing", "missing": "none"},
    "where on a number": {"where": "cls == 1"},
    "where on a text": {"where": "txt in ['text 1', 'text 4'] or txt.length > 6"},
    "where on a map": {"where": "json.n >= 4 and not json.even"},
    "where on a list": {"where": "'tag 1' in json.tags"},
    "where of another kind": {"where": "cls == '1'"},
    "where on a file that is not delivered": {"where": "json.n < 3", "extensions": "txt"},
    "where and rename": {"where": "label != 0", "rename": {"label": "cls"}},
    "subset": {"subset": "50%"},
    "subset of a value": {"subset": {"of": "json.n", "part": "50%"}},
    "keys": {"keys": ["k03", "k07"]},
    "exclude": {"exclude": ["k03", "k07"]},
    "keys_of": {"keys": ["1"], "keys_of": "cls"},
    "tags": {"tags": {"origin": "web", "n": 3}},
    "repeat": {"repeat": 2},
    "expect": {"expect": {"fields": {"cls": {"range": [0, 2]}, "txt": {"type": "str"}}}},
    "expect that fails": {"expect": {"fields": {"cls": {"range": [0, 1]}}}},
    "map": {"map": {"txt": {"call": "builtins:str.upper"}}},
    "shuffle": {"shuffle": 5},
    "order": {"order": "sequential", "shuffle": 0},
    "interleave": {"interleave": 2},
    "select": {"select": "builtins:bool"},
    "make": {"make": {"label": {"label": "txt", "names": [f"text {n}" for n in range(12)]}}},
    "companions": {
        "companions": {"other": {"shards": "b.{format}", "shuffle": 0}},
        "make": {"pair": {"take": "other.text"}},
    },
    "fetch": {"fetch": {"page": {"url": "{cls}.html", "root": "objects"}}},
    "fetch of a value": {"fetch": {"page": {"url": "txt", "root": "objects", "missing": "none"}}},
    "fetch of a list": {"fetch": {"pages": {"url": "json.tags", "root": "objects"}}, "extensions": "cls"},
    "fetch of a range": {
        "fetch": {"page": {"url": "{cls}.html", "root": "objects", "bytes": ["cls", "json.n"]}},
        "where": "json.n >= 3 and json.n <= 6",
    },
    "fetch that lacks objects": {
        "fetch": {"page": {"url": "{json.n}.html", "root": "objects", "missing": "skip"}}
    },
    "choose": {"make": {"text": {"choose": ["nothing", "txt"]}}},
    "make of a list": {"make": {"tag": {"choose": "json.tags"}}, "where": "json.n == 3"},
    "two companions": {
        "companions": {"other": {"shards": "b.{format}", "shuffle": 0, "count": 2}},
        "make": {"pair": {"take": "other.text"}},
    },
    "decode of text": {"decode": {"txt": "txt", "cls": "cls", "json": "json"}},
    "decode of whole samples": {"decode": ["rgb8", "json"]},
    "join": {
        "join": [{"shards": "b.{format}", "fields": "text", "rename": {"extra": "text"}, "missing": "none"}]
    },
    "join that skips": {"join": [{"shards": "b.{format}", "fields": "text", "missing": "skip"}]},
    "join and where": {
        "join": [{"shards": "b.{format}", "fields": "text", "missing": "skip"}],
        "where": "text == 'more 4'",
    },
    "lookup": {"lookup": [{"table": "t.csv", "fields": "score"}]},
    "lookup on a value": {
        "lookup": [{"table": "t.csv", "on": "cls", "fields": "score", "rename": {"s": "score"}}]
    },
    "lookup on a text": {"lookup": [{"table": "t.csv", "on": "txt", "fields": "score", "missing": "skip"}]},
}
BATCHES = {
    "size": 5,
    "accumulate": {"size": 4, "accumulate": True},
    "ragged": {"size": 4, "ragged": "list"},
    "collate": {"size": 4, "collate": {"cls": "list"}},
    "cost of a value": {"cost": "cls + 1", "max_cost": 6, "window": 6},
    "cost of a text": {"cost": "txt.length", "max_cost": 20, "window": 6},
    "cost of a map": {"cost": "json.n + 1", "max_cost": 20, "window": 6, "overlong": "drop"},
    "limits": {"cost": "cls + 1", "max_cost": 9, "limits": {"json.n": 12}, "window": 6},
    "size_multiple": {"cost": "cls + 1", "max_cost": 9, "size_multiple": 2, "window": 6},
    "group_by": {"size": 2, "group_by": "cls", "window": 12},
    "group_by a text": {"size": 2, "group_by": "txt.length", "window": 12, "incomplete": "drop"},
}  # fmt: skip


OTHERS = ("jsonl", "cbor", "msgpack", "parquet", "arrow", "lance", "mds")
"""Formats to compare with tar."""
MDS = {"__key__": "str", "txt": "str", "text": "str", "cls": "int", "json": "json"}
"""Column -> its encoding."""
GAPS = [
    {name: value for place, (name, value) in enumerate(row.items()) if not place or n >> (place - 1) & 1}
    for n, row in enumerate(ROWS[:9])
]
"""Samples that lack some fields, or all of them."""


def as_mds(row):
    """The values of a row as the bytes of MDS."""
    texts = {name: json.dumps(value) if name == "json" else value for name, value in row.items()}
    return {
        name: value.encode() if isinstance(value, str) else value.to_bytes(8, "little")
        for name, value in texts.items()
    }


def write_records(path, rows):
    """Write rows in the formats in which they need not have all fields."""
    path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path.with_suffix(".cbor").write_bytes(b"".join(map(cbor2.dumps, rows)))
    path.with_suffix(".msgpack").write_bytes(b"".join(map(msgpack.packb, rows)))
    table = pyarrow.table(
        {name: [row.get(name) for row in rows] for name in dict.fromkeys(chain.from_iterable(rows))}
    )
    pyarrow.parquet.write_table(table, path.with_suffix(".parquet"))
    pyarrow.feather.write_feather(table, path.with_suffix(".arrow"), compression="uncompressed")
    lance.write_dataset(table, str(path.with_suffix(".lance")))


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("formats")
    with tarfile.open(folder / "a.tar", "w") as tar:
        for row in ROWS:
            for name, text in (
                ("txt", row["txt"]),
                ("cls", str(row["cls"])),
                ("json", json.dumps(row["json"])),
            ):
                info = tarfile.TarInfo(f"{row['__key__']}.{name}")
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))
    with tarfile.open(folder / "b.tar", "w") as tar:
        for row in MORE:
            info = tarfile.TarInfo(f"{row['__key__']}.text")
            info.size = len(row["text"])
            tar.addfile(info, io.BytesIO(row["text"].encode()))
    for name, rows in ("a", ROWS), ("b", MORE):
        write_records(folder / name, rows)
        (folder / f"{name}.mds").write_bytes(
            plain_shard({each: MDS[each] for each in rows[0]}, map(as_mds, rows))
        )
    write_records(folder / "gaps", GAPS)
    table = [f"{row['__key__']},{row['__key__'][1:]}" for row in ROWS]
    table += [f"{label},{label}.5" for label in range(3)] + [f"text {n},{n}" for n in range(6)]
    (folder / "t.csv").write_text("key,score\n" + "\n".join(table) + "\n")
    (folder / "objects").mkdir()
    for label in range(3):
        (folder / "objects" / f"{label}.html").write_text(f"page {label}")
        (folder / "objects" / f"tag {label}").write_text(f"object {label}")
        (folder / "objects" / f"text {label}").write_text(f"text of {label}")
    return folder


def outcome(path, source, **top):
    """The samples or batches of a pass without their URLs, or the start of the error."""
    folder, format = f"{path.parent}/", path.suffix[1:]
    text = json.dumps(source).replace("b.{format}", f"{folder}b.{format}").replace("t.csv", f"{folder}t.csv")
    text = text.replace("objects", f"{folder}objects")
    try:
        with wdspec.loader(
            {"dataset": [{"name": "a", "shards": str(path), **json.loads(text)}], "epoch": "pass", **top},
            num_workers=0,
        ) as loader:
            samples = [dict(sample) for sample in loader if top or sample["__mask__"]]
    except wdspec.WdspecError as error:
        return error.code, error.message.partition(". Samples also have")[0]
    for sample in samples:
        del sample["__url__"]
    return samples if not top else [repr(sorted(each.items())) for each in samples]


OTHER_FORMATS = {"shards", "scale", "scaleprob", "tokens"}
"""They choose the format, or are for images and token files."""
MIXES = {
    "name",
    "mix",
    "key",
    "probability",
    "weight",
    "upsample",
    "samples",
    "bytes",
    "mean_cost",
    "max_passes",
}
MIXES |= {"on_exhausted", "aistore"}
"""They are about shards as a whole, and how often each source is read."""


def test_every_key_that_changes_samples_has_a_case():
    declared = {
        name.split()[1].partition(".")[0]
        for name, key in DECLARED.items()
        if name.startswith("source ") and key.affects.what != "neither"
    }
    assert declared - OTHER_FORMATS - MIXES <= set().union(*KEYS.values())


@pytest.mark.parametrize("source", KEYS.values(), ids=KEYS)
def test_a_key_means_the_same_in_every_format(shards, source):
    expected = outcome(shards / "a.tar", source)
    for name in OTHERS:
        assert outcome(shards / f"a.{name}", source) == expected, name


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_a_key_of_batch_means_the_same_in_every_format(shards, batch):
    expected = outcome(shards / "a.tar", {}, batch=batch)
    assert isinstance(expected, list), expected
    for name in OTHERS:
        assert outcome(shards / f"a.{name}", {}, batch=batch) == expected, name
    assert expected != outcome(shards / "a.tar", {}, batch=3)


@pytest.mark.parametrize("source", KEYS.values(), ids=KEYS)
def test_samples_without_some_or_all_fields_are_alike_in_every_format(shards, source):
    """A null of a table is a field that a record does not have. MDS has neither.

    Tables also say that the shard has the field.
    """
    expected = without_remedy(outcome(shards / "gaps.jsonl", source))
    for name in OTHERS[1:-1]:
        assert without_remedy(outcome(shards / f"gaps.{name}", source)) == expected, name


def without_remedy(found):
    """What came out, with the first part of an error."""
    return found if isinstance(found, list) else [each.partition("; ")[0] for each in found]


def test_the_cases_have_samples_or_the_error_that_they_are_for(shards):
    counts = {
        name: len(found)
        for name, source in KEYS.items()
        if isinstance(found := outcome(shards / "a.tar", source), list)
    }
    assert sorted(KEYS.keys() - counts.keys()) == [
        "expect that fails",
        "missing: skip",
        "where of another kind",
    ]
    assert counts["where on a map"] == 4
    assert counts["where on a list"] == 6
    assert counts["repeat"] == 24
    assert all(counts.values())
