"""The same data in every format of shards give the same samples under the keys of a source."""

import io
import json
import tarfile
from functools import cache
from itertools import chain

import cbor2
import lance
import msgpack
import numpy
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
from keychanges import KEYS as DECLARED
from mdsdata import plain_shard
from tokenizers_made import END, trained

import wdspec
from wdspec.spec.language.expect import Expectations
from wdspec.spec.language.fetching import FetchedObject
from wdspec.spec.language.joins import JoinOptions, LookupOptions
from wdspec.spec.language.making import Choose, Label, Take
from wdspec.spec.language.options import TarOptions, TokenOptions
from wdspec.spec.language.samples import KeyRule
from wdspec.spec.language.selection import Subset
from wdspec.spec.load import check

ROWS = [
    {
        "__key__": f"k{n:02d}",
        "txt": f"text {n}",
        "cls": n % 3,
        "json": {
            "n": n,
            "even": n % 2 == 0,
            "tags": [f"tag {tag}" for tag in range(n % 4)],
            "chat": [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"text {n}"}],
        },
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
    "tokenize": {"make": {"ids": {"tokenize": "txt", "file": "tok.json", "eos": END}}},
    "chat": {
        "make": {
            "ids": {"chat": "json.chat", "file": "tok.json", "template": "chat.jinja", "labels": "labels"}
        }
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
    trained("bpe").save(str(folder / "tok.json"))
    (folder / "chat.jinja").write_text(
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}\n{% else %}"
        "{% generation %}{{ m.content }}" + END + "{% endgeneration %}{% endif %}{% endfor %}"
    )
    (folder / "objects").mkdir()
    for label in range(3):
        (folder / "objects" / f"{label}.html").write_text(f"page {label}")
        (folder / "objects" / f"tag {label}").write_text(f"object {label}")
        (folder / "objects" / f"text {label}").write_text(f"text of {label}")
    return folder


def outcome(path, source, **top):
    """The samples or batches of a pass without their URLs, or the start of the error."""
    folder, format = f"{path.parent}/", path.suffix[1:]
    text = json.dumps(source).replace("b.{format}", f"{folder}b.{format}")
    for name in "t.csv", "objects", "tok.json", "chat.jinja":
        text = text.replace(name, f"{folder}{name}")
    try:
        with wdspec.loader(
            {"dataset": [{"name": "a", "shards": str(path), **json.loads(text)}], "epoch": "pass", **top},
            num_workers=0,
        ) as loader:
            samples = [
                {
                    name: value.tolist() if isinstance(value, numpy.ndarray) else value
                    for name, value in each.items()
                }
                for each in loader
                if top or each["__mask__"]
            ]
    except wdspec.WdspecError as error:
        return error.code, error.message.partition(". Samples also have")[0]
    for sample in samples:
        del sample["__url__"]
    return samples if not top else [repr(sorted(each.items())) for each in samples]


JOIN = {"shards": "b.{format}", "fields": "text", "missing": "none"}
LOOKUP = {"table": "t.csv", "fields": "score", "missing": "none"}
PAGE = {"url": "{cls}.html", "root": "objects"}
NAMES = [f"text {n}" for n in range(12)]
TAKEN = {"make": {"pair": {"take": "other.text"}}}
COUNTER = {"call": "oracle_functions:Counter", "method": "count", "args": {"step": 1}, "with": {"name": "a"}}


def beside(**keys):
    return {"companions": {"other": {"shards": "b.{format}", "shuffle": 0, **keys}}, **TAKEN}


EFFECTS = {
    **{
        f"join.{key}": ({"join": [JOIN]}, {"join": [JOIN | {key: value}]})
        for key, value in {
            "shards": "c.{format}",
            "missing": "skip",
            "on": "txt",
            "fields": "text nothing",
            "rename": {"extra": "text"},
            "format": "tokens",
        }.items()
    },
    **{
        f"lookup.{key}": (
            {"lookup": [LOOKUP | {"on": "txt"}]},
            {"lookup": [LOOKUP | {"on": "txt", key: value}]},
        )
        for key, value in {
            "table": "other.csv",
            "on": "cls",
            "key": "score",
            "fields": "score more",
            "rename": {"s": "score"},
            "missing": "skip",
            "format": "parquet",
        }.items()
    },
    **{
        f"fetch.{key}": ({"fetch": {"page": PAGE}}, {"fetch": {"page": PAGE | {key: value}}})
        for key, value in {
            "url": "txt",
            "root": "objects/nowhere",
            "bytes": [0, 3],
            "seconds": [0, 3],
            "sha256": "txt",
        }.items()
    },
    "fetch.missing": tuple(
        {"fetch": {"page": PAGE | {"url": "{json.n}.html", "missing": value}}} for value in ("none", "skip")
    ),
    **{
        f"subset.{key}": ({"subset": {"part": "50%"}}, {"subset": {"part": "50%", key: value}})
        for key, value in {"part": "25%", "of": "json.n", "seed": 3}.items()
    },
    **{
        f"label.{key}": tuple({"make": {"n": {"label": "txt", "names": NAMES[2:], **keys}}} for keys in pair)
        for key, pair in {
            "label": ({"unknown": 9}, {"unknown": 9, "label": "json.tags[0]"}),
            "names": ({"unknown": 9}, {"unknown": 9, "names": NAMES}),
            "aliases": ({"unknown": 9}, {"unknown": 9, "aliases": {"text 1": "text 2"}}),
            "unknown": ({}, {"unknown": 9}),
        }.items()
    },
    "label.file": (
        {"make": {"n": {"label": "txt", "names": NAMES}}},
        {"make": {"n": {"label": "txt", "file": "t.csv", "unknown": 9}}},
    ),
    "choose.choose": ({"make": {"t": {"choose": "txt"}}}, {"make": {"t": {"choose": ["txt", "cls"]}}}),
    "choose.weights": tuple(
        {"make": {"t": {"choose": ["txt", "cls"], "weights": weights}}} for weights in ([0, 1], [1, 0])
    ),
    "take.take": (beside(), {**beside(), "make": {"pair": {"take": "other.nothing"}}}),
    "take.default": (
        beside(),
        {**beside(chance=0.5), "make": {"pair": {"take": "other.text", "default": "x"}}},
    ),
    **{
        f"companions.{key}": (beside(), beside(**{key: value}))
        for key, value in {
            "chance": 0.5,
            "count": 2,
            "shuffle": 3,
            "where": "text == 'more 4'",
            "rename": {"said": "text"},
            "subset": "50%",
            "keys": ["k04"],
            "extensions": "text nothing",
        }.items()
    },
    **{
        f"map.{key}": ({"map": [COUNTER]}, {"map": [COUNTER | {key: value}]})
        for key, value in {
            "call": "oracle_functions:add_number",
            "args": {"step": 2},
            "method": "__repr__",
            "with": {"name": "b"},
        }.items()
    },
    **{
        f"tokens.{key}": ({}, {"tokens": {key: value}})
        for key, value in {"length": 3, "dtype": "uint16", "eos": 3, "vocabulary": 9}.items()
    },
    "tar.end": ({}, {"tar": {"end": "lenient"}}),
    "key.kind": ({}, {"key": "last_dot"}),
    "key.regex": ({}, {"key": {"regex": "(..)(.*)"}}),
    "expect.fields": ({}, {"expect": {"fields": {"cls": {"range": [0, 1]}}}}),
    "errors.skip": tuple(
        {"expect": {"fields": {"cls": {"range": [0, 1]}}}, "errors": errors} for errors in ("stop", "skip")
    ),
    "decode of a number": ({}, {"decode": {"cls": "txt"}}),
    "decode of numbers": ({}, {"decode": {"cls": "npy"}}),
    "decode of text": ({}, {"decode": {"txt": "json"}}),
}
"""A key below one of a source → a source without it or with another value, and one with it."""
NO_EFFECT = {
    "fetch.hosts": "it allows what is an error without it",
    "map.sets": "it names what a function sets, for expressions that read that",
    "expect.samples": "`check` counts",
    "expect.dropped": "`check` counts",
    "tar.end": "it allows what is an error without it",
    "key.kind": "the names have one dot",
}
"""Keys that change no sample of these tars."""


@cache
def outcome_before(path, source):
    return outcome(path, json.loads(source))


@pytest.mark.parametrize("key", EFFECTS)
def test_a_key_below_another_has_an_effect_an_error_or_a_warning_in_every_format(shards, key):
    before, after = EFFECTS[key]
    for name in ("tar", *OTHERS):
        path = shards / f"a.{name}"
        if outcome_before(path, json.dumps(before)) == outcome(path, after):
            spec = {"dataset": [{"name": "a", "shards": str(path), **after}], "epoch": "pass"}
            codes = {problem.code for problem in check(spec)[1]}
            assert "W385" in codes or (name == "tar" and key in NO_EFFECT), name


@pytest.mark.parametrize(
    "spec",
    [
        {"dataset": [{"shards": ["a.jsonl", "b.tgz"], "tar": {"end": "lenient"}}]},
        {"dataset": [{"shards": "a.bin.tar", "key": "last_dot"}, {"shards": "a", "key": "last_dot"}]},
        {"dataset": [{"shards": "a.jsonl"}, {"shards": "a.tar"}], "defaults": {"key": "last_dot"}},
        {"dataset": [{"shards": "a.jsonl", "join": {"shards": "b.tar"}, "key": "last_dot"}]},
    ],
)
def test_keys_of_tars_for_sources_that_may_have_some_are_no_problem(spec):
    assert "W385" not in {problem.code for problem in check(spec)[1]}


def test_every_key_below_one_of_a_source_has_a_case():
    models = {
        "join": JoinOptions,
        "lookup": LookupOptions,
        "fetch": FetchedObject,
        "subset": Subset,
        "label": Label,
        "choose": Choose,
        "take": Take,
        "tokens": TokenOptions,
        "tar": TarOptions,
        "key": KeyRule,
        "expect": Expectations,
    }
    declared = {f"{key}.{name}" for key, model in models.items() for name in model.model_fields}
    declared |= {name.split()[1] for name in DECLARED if name.startswith("source map.")}
    assert declared - {"join.base", "lookup.base", "fetch.span"} <= EFFECTS.keys() | NO_EFFECT.keys()


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
