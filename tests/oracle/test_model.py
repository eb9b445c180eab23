"""The reference model gives the batches that the loader gives, field by field."""

import ast
import io
import json
import sqlite3
from pathlib import Path

import numpy as np
import oracle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import within
from oracle.data import SHARDS, TOKENS, write_data
from oracle.model import Model, replay
from oracle.plain import plain
from PIL import Image
from shardmaking import write_shard

import wdspec

FORBIDDEN = (
    "wdspec.read",
    "wdspec.run",
    "wdspec.shards",
    "wdspec.fields",
    "wdspec.formats",
    "wdspec.planning.windows",
    "wdspec.planning.passes",
    "wdspec.planning.plan",
)
OF_MODEL = ("batching", "files", "grouping", "model", "samples")
STEPS = 36


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory):
    """A folder with the data of the oracle, which is the working directory."""
    folder = tmp_path_factory.mktemp("oracle")
    write_data(folder)
    sizes = [5, 5, 5, 9, 9, 9, 1, 1, 9, 2, 9, 9, 3, 9, 9]
    lines = [json.dumps({"__key__": f"{n:03d}", "txt": "x" * sizes[n % 15]}) + "\n" for n in range(45)]
    (folder / "steep-0.jsonl").write_text("".join(lines), encoding="utf-8")
    write_damaged_partners(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


def write_damaged_partners(folder):
    """Partners of `steep`: lines, one of which is cut short, and a table with a damaged group of rows."""
    rows = [{"__key__": f"{n:03d}", "more": n * 10**9} for n in range(45)]
    lines = [json.dumps(row) for row in rows]
    lines[7] = lines[7][:12]
    (folder / "torn-0.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path = folder / "torn-0.parquet"
    table = pa.Table.from_pylist(rows)
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, path, row_group_size=5, **options)
    column = pq.read_metadata(path).row_group(2).column(1)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 2] ^= 0xFF
    path.write_bytes(data)


def source(name, **keys):
    """A source of the data by its name."""
    return {"name": name, "shards": SHARDS[name], **keys}


def tokens(kind, **keys):
    """A source of token files."""
    return {"name": kind, "shards": TOKENS[kind], **keys}


def read(spec, steps, *, live=(), skips=()):
    """The items of each step as the loader gives them, as plain values, and its lengths and its end."""
    found, lengths = {}, {}
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        _call(loader, 0, live, skips)
        lengths[0] = length_of(loader)
        items, step = [], 0
        while step < steps:
            before = step
            for item in loader:
                items.append(plain(item))
                state = loader.state_dict()
                if state["given"]:
                    continue
                found[state["batch"] - 1], items, step = items, [], state["batch"]
                if step >= steps:
                    break
                _call(loader, step, live, skips)
                if any(called == step for called, *_ in skips):
                    break
            step = loader.state_dict()["batch"]
            lengths.setdefault(step, length_of(loader))
            if step == before:
                break
    return found, lengths


def _call(loader, step, live, skips):
    for called, shares, after in live:
        if called == step:
            loader.set_shares(shares, after=after)
    for called, first, last in skips:
        if called == step:
            loader.skip_steps(first, last)


def length_of(loader):
    """`len`, or None of an endless stream."""
    try:
        return len(loader)
    except TypeError:
        return None


def text_of(value):
    """A text that is equal only for equal values."""
    return json.dumps(value, sort_keys=True)


def compare(spec, steps=STEPS, **calls):
    """Check that the model and the loader give the same items and lengths."""
    model = Model(spec, **calls)
    found, lengths = read(spec, steps, **calls)
    assert found
    for step in range(max(found) + 1):
        right = [plain(item) for item in model.items(step)]
        assert text_of(found.get(step, [])) == text_of(right), f"step {step}"
    assert lengths == {step: model.length(step) for step in lengths}


ELASTIC = {"elastic": {"ranks": 2, "workers": 2}}
TEXT = {"fields": "txt json"}
TWO = [source("a", weight=3), source("b", weight=1)]
TEXTS = [source("a", weight=3), source("e", weight=1)]
COST = {"cost": "txt.length", "max_cost": 60, "window": 20}
SUM = {**COST, "padded": False}
PACK = {
    "pack": {"fields": ["ids.npy", "labels.npy"], "length": 64, "pad": {"labels.npy": -100}},
    "window": 20,
}
LISTS = {"collate": {"ids.npy": "list", "labels.npy": "list"}}
PADDED = {"collate": {"ids.npy": "pad", "labels.npy": {"pad": {"side": "left", "value": -1, "multiple": 8}}}}


def only(*names, **keys):
    """Sources of the data that give `txt` and `json`."""
    return [source(name, extensions="txt json", **keys) for name in names]


PLAIN = {
    "one source without a batch": {"dataset": [source("a")]},
    "one source without a batch on four slots": {**ELASTIC, "dataset": [source("a"), source("c")]},
    "tuples": {**ELASTIC, "to_tuple": "txt json", "batch": 4, "dataset": only("a", "e")},
    "tuples without a batch": {"to_tuple": "txt cls;txt", "dataset": [source("b"), source("a")]},
    "lists and padding": {"batch": {"size": 3, **PADDED}, "dataset": [source("a"), source("e")]},
    "even draws": {**ELASTIC, "batch": 4, "dataset": only("a", "e", "c")},
    "random draws": {**ELASTIC, "batch": 4, "mix": {"draw": "random"}, "dataset": only("a", "e", "c")},
    "turns": {**ELASTIC, "batch": 4, "mix": {"draw": "round_robin"}, "dataset": only("a", "e", "tiny")},
    "one source a batch": {**ELASTIC, "batch": 4, "mix": {"unit": "batch"}, "dataset": only("a", "e", "c")},
    "random source a batch": {
        **ELASTIC,
        "batch": 4,
        "mix": {"unit": "batch", "draw": "random"},
        "dataset": only("a", "e", "c"),
    },
    "a nested mix": {
        **ELASTIC,
        "batch": 4,
        "seed": 7,
        "dataset": [
            {"name": "inner", "weight": 1, "dataset": only("a", "c"), "mix": {"temperature": 2, "cap": 3}},
            *only("e", weight=2),
        ],
    },
    "ordered": {**ELASTIC, "batch": 4, "dataset": only("a", "e", order="sequential", shuffle=0)},
    "resampled": {**ELASTIC, "batch": 4, "dataset": only("a", "e", order="resampled", shuffle=20)},
    "resampled without shuffling": {"batch": 4, "dataset": only("a", "b", order="resampled", shuffle=0)},
    "long delays": {"batch": 4, "dataset": only("e", shuffle=300, interleave=2)},
    "short delays": {"batch": 4, "dataset": only("e", "a", shuffle=5, interleave=2)},
    "a schedule": {
        **ELASTIC,
        "batch": 4,
        "mix": {
            "schedule": [
                {"at": 0, "shares": {"a": 1}},
                {"at": 100, "shares": {"a": 1, "e": 3}, "ramp": "linear"},
                {"at": 160, "shares": {"e": 1}},
            ]
        },
        "dataset": only("a", "e"),
    },
    "epochs of samples and a limit": {"batch": 4, "epoch": 43, "limit": 36, "dataset": only("a", "e")},
    "skipped steps": {
        "batch": 4,
        "epoch": {"batches": 7},
        "skip": ["3..5", 9, "14..21"],
        "dataset": only("a", "e"),
    },
    "accumulation": {**ELASTIC, "batch": {"size": 3, "accumulate": True}, "dataset": only("a", "e")},
    "a global size": {**ELASTIC, "batch": {"global_size": 6}, "dataset": only("a", "tiny")},
    "a stop": {
        "batch": 4,
        "epoch": {"batches": 5},
        "dataset": [*only("a", samples=30, max_passes=1.5, on_exhausted="stop"), *only("e")],
    },
    "a drop": {
        "batch": 4,
        "dataset": [*only("a", samples=30, max_passes=1, on_exhausted="drop"), *only("e")],
    },
    "names and missing fields": {
        "batch": 4,
        "dataset": [
            source("b", extensions="txt cls", rename={"text": "txt", "label": "cls"}, missing="skip"),
            source("a", extensions="txt cls", rename={"text": "txt", "label": "cls"}),
        ],
    },
    "missing fields as None": {
        "batch": {"size": 4, "collate": {"cls": "list"}},
        "dataset": [source("b", extensions="txt cls", missing="none")],
    },
    "functions": {
        "batch": 4,
        "map": ["oracle_functions:jitter"],
        "dataset": [
            source("a", extensions="txt", tags={"kind": 1}, map={"txt": "oracle_functions:shout"}),
            source("e", extensions="txt", tags={"kind": 2}, select="oracle_functions:is_heads"),
        ],
    },
    "selections": {
        "batch": 4,
        "dataset": [
            source("a", extensions="txt", where="json.score >= 3 and cls in [1, 2, 3, 4]"),
            source("e", extensions="txt", subset={"of": "json.user", "part": "60%"}, exclude="@bad.txt"),
            source("b", extensions="txt", keys="@some.txt", subset=["10%", "90%"]),
        ],
    },
    "keys of values": {
        "batch": 4,
        "dataset": [
            source(
                "e",
                extensions="txt",
                keys="@users.txt",
                keys_of="json.user",
                select="oracle_functions:is_most",
            )
        ],
    },
    "joins": {
        "batch": {"size": 4, "collate": {"caption.txt": "list"}},
        "fields": "txt caption.txt;txt",
        "dataset": [
            source(
                "a",
                join=[{"shards": "a-gaps-{000..004}.tar", "fields": "caption.txt", "missing": "none"}],
                extensions="txt caption.txt",
            ),
            source(
                "b",
                join=[{"shards": "b-gaps-{000..011}.tar", "fields": "caption.txt", "missing": "skip"}],
                extensions="txt caption.txt",
            ),
        ],
    },
    "joins of lines": {
        "batch": 4,
        "dataset": [
            source(
                "a",
                join=[{"shards": "a-lines-{000..004}.jsonl", "fields": "caption", "missing": "skip"}],
                extensions="txt caption",
            ),
        ],
    },
    "tables of scores": {
        "batch": {"size": 4, "collate": {"grade": "list", "mark": "list"}},
        "dataset": [
            source(
                "a",
                extensions="txt",
                lookup=[{"table": "scores.csv", "fields": ["grade", "mark"], "missing": "none"}],
                where="default(grade, 1) < 5",
            ),
            source(
                "e",
                extensions="txt",
                lookup=[{"table": "scores.parquet", "fields": ["grade", "mark"], "missing": "skip"}],
            ),
        ],
    },
    "a table by a value": {
        "batch": 4,
        "dataset": [
            source(
                "a",
                extensions="txt",
                lookup=[{"table": "ns.csv", "on": "json.n", "fields": "kind", "missing": "skip"}],
            )
        ],
    },
    "formats": {
        "batch": {"size": 4, "ragged": "list"},
        "dataset": [source("rows"), source("parquet"), source("arrow")],
    },
    "parquet rows": {"batch": 4, "fields": "txt cls", "dataset": [source("parquet"), source("arrow")]},
    "mds and lance": {
        **ELASTIC,
        "batch": {"size": 4, "ragged": "list"},
        "dataset": [source("mds", weight=2), source("lance", weight=1), source("rows", weight=3)],
    },
    "lance rows": {"batch": 4, "fields": "txt cls", "dataset": [source("lance"), source("mds")]},
    "token files": {
        **ELASTIC,
        "batch": 4,
        "dataset": [
            tokens("npy", tokens={"length": 16}),
            tokens("grid", tokens={}),
            tokens("megatron", tokens={"length": 16}),
        ],
    },
    "documents": {
        "batch": {"size": 3, "collate": {"tokens": "pad"}},
        "dataset": [tokens("megatron", tokens={}), tokens("raw", tokens={"dtype": "uint16", "eos": 0})],
    },
    "damaged samples": {"batch": 3, "errors": "skip", "dataset": [source("broken", extensions="txt json")]},
    "damaged arrays": {
        "batch": {"size": 3, **LISTS},
        "errors": "skip",
        "dataset": [source("broken"), source("a")],
    },
    "keys with dots": {"batch": 4, "dataset": [source("dotted", key="last_dot")]},
    "keys with dots by default": {"batch": 4, "dataset": [source("dotted")]},
    "keys by a regex": {"batch": 4, "dataset": [source("dotted", key={"regex": r"(\w+)\.v1\.(\w+)"})]},
    **{
        f"the stage {name}": {
            **ELASTIC,
            "batch": 4,
            "stage": {"call": f"oracle_functions:{name}", "every": every},
            "dataset": only("a", "e"),
        }
        for name, every in [
            ("mark", 10),
            ("drop_short", 30),
            ("double", 8),
            ("by_length", 50),
            ("join_pairs", 7),
        ]
    },
    "a stage with skipped steps": {
        "batch": 4,
        "skip": "4..9",
        "stage": {"call": "oracle_functions:by_length", "every": 50},
        "map": ["oracle_functions:jitter"],
        "dataset": only("a", "e"),
    },
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_mixes(name):
    compare(PLAIN[name])


RESHUFFLED = {"pass": "drop", "reshuffle": True}
CHAT = {
    "chat": "json.messages",
    "file": "talk.json",
    "template": "talk.jinja",
    "labels": "answer_ids",
    "images": "json.images",
    "image_token": "<img>",
    "image_length": "json.sizes",
}
CROP = {
    "crop": "pic",
    "size": [5, 7],
    "scale": [0.2, 0.7],
    "hflip": 0.5,
    "interpolation": "nearest",
    "masks": {"mask": "pic"},
    "boxes": {"boxes": "json.boxes"},
    "points": {"points": "json.points"},
    "flip_points": [[0, 2]],
}
MASKED = {
    "word_ids": {"tokenize": "txt", "file": "letters.json", "eos": "<end>"},
    "masked_ids": {
        "mask_tokens": "word_ids",
        "file": "letters.json",
        "mask_token": "<end>",
        "probability": 0.5,
        "labels": "masked_labels",
    },
}
MADE = {
    "choose from a list": {"make": {"caption": {"choose": "json.captions"}}},
    "choose from fields": {"make": {"caption": {"choose": ["txt", "json.alt"], "weights": [1, 3]}}},
    "choose and select": {
        "make": {"caption": {"choose": ["txt", "json.alt"]}},
        "where": "caption.length > 9",
    },
    "mask_tokens": {"make": MASKED},
    "chat": {"make": {"talk_ids": {**CHAT, "loss": "last"}}, "where": "answer_ids.length > 12"},
    "chat after a prompt": {"make": {"talk_ids": {**CHAT, "prompt": "json.before"}}, "missing": "skip"},
    "crop": {"make": {"image": {**CROP, "kept": "kept"}}},
    "crop that keeps all boxes": {"make": {"image": CROP}},
}
DELIVERED = {"mask_tokens": ["masked_labels"], "chat after a prompt": ["answer_ids", "json"]}


MADE_IN = [(name, None) for name in MADE]
MADE_IN += [(name, "pass" if "where" in keys else RESHUFFLED) for name, keys in MADE.items()]
MADE_IN += [("choose from fields", "resampled"), ("choose from fields", "pass")]


@pytest.mark.parametrize(("name", "epoch"), MADE_IN)
def test_steps_of_make(name, epoch):
    rich = {"name": "rich", "shards": "rich-{000..002}.tar", "extensions": "txt json pic.npy"}
    rich |= {"rename": {"pic": "pic.npy"}, **MADE[name]}
    if epoch == "resampled":
        rich["order"], epoch = "resampled", None
    if epoch is not None and "where" not in rich:
        rich["repeat"] = 2.5
    batch = {"size": 3, "ragged": "list"}
    spec = {**ELASTIC, "seed": 5, "batch": batch, "dataset": [rich], "fields": DELIVERED.get(name)}
    compare({**spec, "epoch": epoch}, steps=12)


PASSES = {
    "a pass": {**ELASTIC, "batch": 4, "dataset": only("a", "b", "c")},
    "a pass without a batch": {**ELASTIC, "dataset": only("a", "c")},
    "a pass without its rest": {
        **ELASTIC,
        "batch": 3,
        "epoch": {"pass": "drop"},
        "dataset": only("a", "b", "c"),
    },
    "a pass of one sample a slot": {**ELASTIC, "batch": 4, "dataset": only("tiny")},
    "a limited pass": {**ELASTIC, "batch": 4, "limit": 33, "dataset": only("a", "b", "c")},
    "a shuffled pass": {**ELASTIC, "batch": 4, "dataset": only("a", "e", order="shuffled", shuffle=20)},
    "a shuffled pass with its first sample dropped": {
        **ELASTIC,
        "batch": 2,
        "dataset": only("a", shuffle=20, select="oracle_functions:is_rare"),
    },
    "repeated samples": {**ELASTIC, "batch": 4, "dataset": [*only("a", repeat=2.5), *only("b", repeat=0.3)]},
    "repeated parts": {
        **ELASTIC,
        "batch": 4,
        "dataset": only("a", repeat=1.4, subset=["20%", "80%"]) + only("e", repeat=1.5, where="json.n < 4"),
    },
    "selected samples": {
        **ELASTIC,
        "batch": 4,
        "dataset": only("a", subset="50%") + only("b", exclude="@bad.txt", where="json.score > 3"),
    },
    "random selections": {
        **ELASTIC,
        "batch": 4,
        "dataset": only("a", "e", select="oracle_functions:is_heads"),
    },
    "rare samples": {**ELASTIC, "batch": 2, "dataset": only("a", select="oracle_functions:is_rare")},
    "missing fields": {**ELASTIC, "batch": 4, "dataset": [source("b", extensions="txt cls", missing="skip")]},
    "joins": {
        **ELASTIC,
        "batch": 4,
        "dataset": [
            source(
                "a",
                join=[{"shards": "a-gaps-{000..004}.tar", "missing": "skip", "fields": "caption.txt"}],
                extensions="txt caption.txt",
            ),
        ],
    },
    "lookups": {
        **ELASTIC,
        "batch": 4,
        "dataset": [
            source(
                "a", extensions="txt", lookup=[{"table": "scores.csv", "fields": "grade", "missing": "skip"}]
            ),
        ],
    },
    "tables": {**ELASTIC, "batch": 4, "fields": "txt cls", "dataset": [source("parquet"), source("rows")]},
    "mds and lance": {
        **ELASTIC,
        "batch": 4,
        "fields": "txt cls",
        "dataset": [source("lance"), source("mds")],
    },
    "tokens": {**ELASTIC, "batch": 4, "dataset": [tokens("npy", tokens={"length": 16})]},
    "damage": {"batch": 4, "errors": "skip", "dataset": [source("broken", extensions="txt json")]},
    "functions": {**ELASTIC, "batch": 4, "map": ["oracle_functions:jitter"], "dataset": only("a", repeat=2)},
}


@pytest.mark.parametrize("name", PASSES)
def test_passes(name):
    compare({"epoch": "pass", **PASSES[name]})


WINDOWS = {
    "padded": COST,
    "sums": SUM,
    "limited": {**COST, "limits": {"json.score": 12}, "max_size": 5},
    "limited sums": {**SUM, "limits": {"json.score": 12}, "max_size": 5},
    "multiples": {**COST, "max_cost": 200, "size_multiple": 4},
    "fractions": {**SUM, "cost": "txt.length / 7", "max_cost": 9},
    "padded fractions": {**COST, "cost": "txt.length / 7", "max_cost": 9},
    "dropped": {**COST, "max_cost": 30, "overlong": "drop"},
    "alone": {**COST, "max_cost": 30, "overlong": "alone"},
    "alone sums": {**SUM, "max_cost": 30, "overlong": "alone", "limits": {"json.score": 5}},
    "balanced": {**COST, "balance": "json.score"},
    "functions": {**SUM, "cost": "oracle_functions:cost"},
    "groups": {"size": 4, "group_by": "json.lang", "group_wait": 30, "window": 12},
    "groups without a window": {"size": 4, "group_by": "json.lang", "group_wait": 30, "window": 1},
    "merged groups": {
        "size": 4,
        "group_by": "json.score",
        "group_wait": 30,
        "window": 12,
        "incomplete": "merge",
    },
    "dropped groups": {
        "size": 4,
        "group_by": "json.lang",
        "group_wait": 30,
        "window": 40,
        "incomplete": "drop",
    },
    "groups by cost": {**COST, "group_by": "__source__", "group_wait": 50},
    "groups by sums": {
        **SUM,
        "group_by": "json.lang",
        "group_wait": 50,
        "max_size": 4,
        "incomplete": "merge",
    },
}
PACKS = {
    "rows": PACK,
    "rows without a length": {**PACK, "pack": {"fields": "ids.npy"}, "max_cost": 70},
    "all fields": {
        **PACK,
        "pack": {
            **PACK["pack"],
            "position_ids": "position",
            "segment_ids": "segment",
            "cu_seqlens": "ends",
            "max_seqlen": "longest",
            "pad_to_multiple_of": 8,
        },
    },
    "in order": {**PACK, "pack": {**PACK["pack"], "method": "in_order", "cu_seqlens": "ends"}},
    "concatenated": {**PACK, "pack": {**PACK["pack"], "method": "concatenate", "position_ids": "position"}},
    "truncated": {**PACK, "pack": {**PACK["pack"], "length": 25}, "overlong": "truncate"},
    "split": {**PACK, "pack": {**PACK["pack"], "length": 25}, "overlong": "split"},
    "dropped": {**PACK, "pack": {**PACK["pack"], "length": 25}, "overlong": "drop"},
    "balanced": {**PACK, "balance": "json.score"},
    "limited": {**PACK, "limits": {"json.score": 12}},
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("passes", [False, True], ids=["endless", "pass"])
def test_windows(name, passes):
    spec = {**ELASTIC, "batch": WINDOWS[name], "dataset": only("a", "e")}
    compare({**spec, "epoch": "pass"} if passes else spec)


@pytest.mark.parametrize("name", PACKS)
@pytest.mark.parametrize("passes", [False, True], ids=["endless", "pass"])
def test_packs(name, passes):
    spec = {**ELASTIC, "batch": PACKS[name], "dataset": TEXTS}
    compare({**spec, "epoch": "pass", "dataset": [source("a"), source("e")]} if passes else spec)


LABELS_AND_IDS = {
    "word_ids": {"tokenize": "txt", "file": "letters.json", "eos": "<end>", "truncate": 30},
    "lang_id": {"label": "json.lang", "names": ["de", "en"], "unknown": 7},
}
MAKE = {"extensions": "txt json", "make": LABELS_AND_IDS}
RESHUFFLED_SPECS = {
    **{
        name: {"batch": WINDOWS[name], "dataset": only("a", "e")} for name in ("padded", "balanced", "groups")
    },
    **{name: {"batch": PACKS[name], "dataset": [source("a"), source("e")]} for name in ("rows", "split")},
    "copies": {"batch": SUM, "dataset": [source("a"), source("e", repeat=2.5)], **TEXT},
    "selections": {"batch": COST, "dataset": only("a", "e", where="txt.length > 8")},
    "make": {
        "batch": {"size": 3, "collate": {"word_ids": "list"}},
        "dataset": [source("a", **MAKE), source("e", **MAKE, repeat=2)],
    },
    "make in groups": {
        "batch": {**WINDOWS["groups"], "group_by": "lang_id", "collate": {"word_ids": "list"}},
        "dataset": [source("a", **MAKE, where="word_ids.length > 9"), source("e", **MAKE)],
    },
    "make in rows": {
        "batch": {"pack": {"fields": "word_ids", "length": 64}, "window": 20},
        "dataset": [source("a", **MAKE, where="word_ids.length > 9"), source("e", **MAKE, subset="60%")],
    },
}


@pytest.mark.parametrize("name", RESHUFFLED_SPECS)
@pytest.mark.parametrize("remainder", ["pad", "drop"])
def test_passes_that_reshuffle(name, remainder):
    compare({**ELASTIC, **RESHUFFLED_SPECS[name], "epoch": {"pass": remainder, "reshuffle": True}})


OF_IDS = {**SUM, **LISTS, "cost": 'fields["ids.npy"].length'}
IN_TOKENS = {
    "samples": {"batch": 4, "dataset": [tokens("npy", tokens={"length": 16})]},
    "windows": {
        "batch": OF_IDS,
        "dataset": [source("a", mean_cost=20, weight=3), source("e", mean_cost=9.5, weight=1)],
    },
    "sizes": {"batch": {**OF_IDS, "max_size": 2}, "dataset": [source("a", mean_cost=20)]},
    "shares that change": {
        "batch": PACKS["rows"],
        "mix": {"schedule": [{"at": 0, "shares": {"a": 1, "e": 3}}, {"at": 90, "shares": {"a": 1}}]},
        "dataset": [source("a", mean_cost=20), source("e", mean_cost=70)],
    },
}


@pytest.mark.parametrize("name", IN_TOKENS)
def test_epochs_in_tokens(name):
    spec = {**ELASTIC, **IN_TOKENS[name], "epoch": {"tokens": 1500}}
    spec |= {} if name == "samples" else {"fields": "txt json ids.npy labels.npy"}
    compare(spec, 20)


MORE_WINDOWS = {
    "a tiny source": {"batch": COST, "dataset": only("tiny")},
    "a tiny source in a pass": {**ELASTIC, "batch": COST, "epoch": "pass", "dataset": only("tiny")},
    "a tiny source in groups": {
        "batch": {"size": 4, "group_by": "json.lang", "group_wait": 30},
        "dataset": only("tiny", "c"),
    },
    "several passes in a window": {**ELASTIC, "batch": {**SUM, "window": 200}, "dataset": only("a", "c")},
    "a cut pass": {**ELASTIC, "batch": SUM, "epoch": {"pass": "drop"}, "dataset": only("a", "e")},
    "repeated samples": {
        **ELASTIC,
        "batch": SUM,
        "epoch": "pass",
        "dataset": only("a", repeat=2.5, subset="80%"),
    },
    "repeated groups": {
        **ELASTIC,
        "batch": {"size": 4, "group_by": "json.lang", "group_wait": 30},
        "epoch": "pass",
        "dataset": only("a", repeat=1.5),
    },
    "selections": {
        **ELASTIC,
        "batch": SUM,
        "dataset": [
            *only("a", where="json.score >= 3"),
            *only("e", select="oracle_functions:is_heads", exclude="@bad.txt"),
        ],
    },
    "selections in a pass": {
        **ELASTIC,
        "batch": SUM,
        "epoch": "pass",
        "dataset": [
            *only("a", where="json.score >= 3", repeat=1.5),
            *only("e", select="oracle_functions:is_most", exclude="@bad.txt"),
        ],
    },
    "joins": {
        **ELASTIC,
        "batch": {**SUM, "cost": "caption.length"},
        "dataset": [
            source(
                "a",
                join=[{"shards": "a-lines-{000..004}.jsonl", "fields": "caption", "missing": "skip"}],
                extensions="txt caption",
            )
        ],
    },
    "joins in a pass": {
        **ELASTIC,
        "batch": {**SUM, "cost": "caption.length"},
        "epoch": "pass",
        "dataset": [
            source(
                "a",
                join=[{"shards": "a-lines-{000..004}.jsonl", "fields": "caption", "missing": "skip"}],
                extensions="txt caption",
            )
        ],
    },
    "lookups": {
        **ELASTIC,
        "batch": {**SUM, "cost": "grade + 1", "max_cost": 12},
        "dataset": [
            source(
                "a", extensions="txt", lookup=[{"table": "scores.csv", "fields": "grade", "missing": "skip"}]
            )
        ],
    },
    "missing fields": {
        **ELASTIC,
        "batch": COST,
        "fields": "txt cls",
        "dataset": [source("b", missing="skip"), source("a")],
    },
    "packed tokens": {
        **ELASTIC,
        "batch": {"pack": {"fields": "tokens", "length": 64, "segment_ids": "segments"}, "window": 20},
        "dataset": [tokens("megatron", tokens={}), tokens("raw", tokens={"dtype": "uint16", "eos": 0})],
    },
    "packed rows": {
        **ELASTIC,
        "batch": {"pack": {"fields": "ids", "length": 64}, "window": 20},
        "dataset": [source("parquet", extensions="ids txt"), source("arrow", extensions="ids txt")],
    },
    "packed lists": {
        "batch": {"pack": {"fields": "ids", "length": 64}, "window": 20},
        "dataset": [source("rows", extensions="ids txt")],
    },
    "packed tuples": {"batch": PACK, "to_tuple": "ids.npy labels.npy", "dataset": TEXTS},
    "tuples by cost": {"batch": COST, "to_tuple": "txt json", "dataset": only("a", "e")},
    "shares of cost": {
        **ELASTIC,
        "batch": SUM,
        "mix": {"shares_in": "cost"},
        "dataset": [*only("a", mean_cost=18, weight=3), *only("e", mean_cost=23, weight=1)],
    },
    "a schedule": {
        **ELASTIC,
        "batch": COST,
        "mix": {"schedule": [{"at": 0, "shares": {"a": 1}}, {"at": 100, "shares": {"e": 3, "a": 1}}]},
        "dataset": only("a", "e"),
    },
    "skipped steps": {
        **ELASTIC,
        "batch": COST,
        "epoch": {"batches": 9},
        "skip": ["3..7", "16..19"],
        "dataset": only("a", "e"),
    },
    "damage": {
        "batch": COST,
        "errors": "skip",
        "dataset": [source("broken", extensions="txt json"), *only("a")],
    },
    "damage that is found late": {
        "batch": {**COST, "collate": {"ids.npy": "list"}},
        "errors": "skip",
        "dataset": [source("broken", extensions="txt ids.npy")],
    },
    "costs and maps": {
        **ELASTIC,
        "batch": COST,
        "map": {"txt": "oracle_functions:shout"},
        "dataset": only("a", "e", tags={"kind": 1}),
    },
    "a table of lines": {
        "batch": {**COST, "group_by": "json.lang", "group_wait": 20},
        "fields": "txt",
        "dataset": [source("rows")],
    },
}


@pytest.mark.parametrize("name", MORE_WINDOWS)
def test_windows_with_other_features(name):
    compare(MORE_WINDOWS[name])


def torn(partner, missing, **keys):
    """A spec with a partner that has damaged samples."""
    join = [{"shards": partner, "missing": missing, "fields": "more"}]
    steep = {
        "name": "steep",
        "shards": "steep-{0..0}.jsonl",
        "shuffle": 0,
        "order": "sequential",
        "join": join,
    }
    return {"batch": 3, "errors": "skip", "dataset": [steep], **keys}


STOP = {
    "batch": 4,
    "dataset": [*only("a", samples=30, max_passes=1.5, on_exhausted="stop"), *only("e")],
}
REPAIRED = {
    "a stop with skipped steps": {**STOP, "epoch": {"batches": 50}, "skip": "3..6"},
    "a stop within an epoch": {**STOP, "epoch": {"batches": 4}},
    "a batch that cannot be decoded is skipped": {
        "batch": {**COST, "max_size": 1},
        "errors": "skip",
        "skip": "3..12",
        "dataset": [source("broken", extensions="txt json", shuffle=0)],
    },
    "a group is closed below `size_multiple` and above `max_cost`": {
        "batch": {**COST, "max_cost": 16, "group_by": "__source__", "group_wait": 45, "size_multiple": 2},
        "epoch": "pass",
        "dataset": [{"name": "steep", "shards": "steep-{0..0}.jsonl"}],
    },
    "the end of a section is not cut to `size_multiple`": {
        "batch": {
            "cost": "txt.length",
            "max_cost": 400,
            "group_by": "json.lang",
            "group_wait": 60,
            "max_size": 4,
            "size_multiple": 2,
        },
        "epoch": "pass",
        "dataset": only("e"),
    },
    "a damaged line of a partner with `missing: none`": torn(
        "torn-{0..0}.jsonl", "none", batch={"size": 3, "ragged": "list"}
    ),
    "a damaged group of rows of a partner": torn("torn-{0..0}.parquet", "error"),
    "a damaged group of rows of a partner in a pass": torn("torn-{0..0}.parquet", "error", epoch="pass"),
    "a partner that does not exist, in a pass by cost": {
        "batch": {"cost": "1", "max_cost": 4},
        "errors": "skip",
        "epoch": "pass",
        "dataset": [
            source("a", extensions="txt", join=[{"shards": "b-full-{000..004}x.tar"}]),
            *only("c"),
        ],
        "fields": "txt",
    },
    "a random `select` in a pass by cost": {
        **ELASTIC,
        "batch": SUM,
        "epoch": "pass",
        "dataset": only("a", "e", select="oracle_functions:is_heads"),
    },
}


@pytest.mark.parametrize("name", REPAIRED)
def test_what_was_once_wrong_is_right(name):
    compare(REPAIRED[name])


LIVE = [(3, {"a": 1, "e": 4}, 0), (11, {"e": 1}, 3), (12, {"a": 5, "e": 1}, 0)]


@pytest.mark.parametrize("kind", ["plain", "schedule", "random", "cost", "pack", "groups"])
def test_shares_that_are_set(kind):
    batch = {"cost": COST, "pack": PACK, "groups": WINDOWS["groups"]}.get(kind, 4)
    mix = {"random": {"draw": "random"}, "schedule": PLAIN["a schedule"]["mix"]}.get(kind, {})
    compare(
        {**ELASTIC, "batch": batch, "mix": mix, "dataset": TEXTS if kind == "pack" else only("a", "e")},
        live=LIVE,
    )


@pytest.mark.parametrize("batch", [4, COST, WINDOWS["groups"]], ids=["plain", "cost", "groups"])
def test_steps_that_the_loop_skips(batch):
    spec = {**ELASTIC, "batch": batch, "epoch": {"batches": 10}, "skip": 6, "dataset": only("a", "e")}
    compare(spec, skips=[(2, 4, 7), (12, 15, 21)])


CHANGES = {
    "a weight": {"dataset": [*only("a", weight=1), *only("e", weight=5)]},
    "shuffle": {"dataset": [*only("a", weight=3, shuffle=5), *only("e", weight=1, shuffle=200)]},
    "shuffle of all": {"dataset": [*only("a", weight=3, shuffle=0), *only("e", weight=1, shuffle=0)]},
    "interleave": {"dataset": [*only("a", weight=3, interleave=1), *only("e", weight=1, interleave=20)]},
    "select": {"dataset": [*only("a", weight=3, select="oracle_functions:is_most"), *only("e", weight=1)]},
    "a source more": {"dataset": [*only("a", weight=3), *only("e", weight=1), *only("c", weight=1)]},
    "a source less": {"dataset": only("a")},
    "a shard less": {
        "dataset": [{**only("a", weight=3)[0], "shards": "a-{000..003}.tar"}, *only("e", weight=1)]
    },
    "order": {"dataset": [*only("a", weight=3, order="sequential"), *only("e", weight=1)]},
    "where": {"dataset": [*only("a", weight=3, where="json.score > 2"), *only("e", weight=1)]},
    "the seed": {"seed": 5},
    "draws": {"mix": {"draw": "random"}},
    "epochs and skips": {"epoch": {"batches": 9}, "skip": "14..17"},
}


def read_changes(phases, steps):
    """The items of each step of a run that is saved and loaded with another spec at the first step of each phase."""
    found, state = {}, None
    stops = [first for _, first in phases[1:]] + [steps]
    for (spec, _), stop in zip(phases, stops, strict=True):
        with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
            if state is not None:
                loader.load_state_dict(state, allow_changed=True)
            items = []
            while (step := loader.state_dict()["batch"]) < stop:
                for item in loader:
                    items.append(plain(item))
                    state = json.loads(json.dumps(loader.state_dict()))
                    if not state["given"]:
                        found[state["batch"] - 1], items = items, []
                        if state["batch"] >= stop:
                            break
                if loader.state_dict()["batch"] == step:
                    break
            state = json.loads(json.dumps(loader.state_dict()))
    return found


@pytest.mark.parametrize("cut", [1, 6, 13])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.filterwarnings("ignore")
def test_runs_after_a_change(change, cut):
    spec = {**ELASTIC, "batch": 4, "dataset": [*only("a", weight=3), *only("e", weight=1)]}
    phases = [(spec, 0), ({**spec, **CHANGES[change]}, cut), (spec, cut + 8)]
    found, model = read_changes(phases, 30), replay(phases)
    for step in range(30):
        assert text_of(found.get(step, [])) == text_of([plain(item) for item in model.items(step)]), (
            f"step {step}"
        )


@pytest.mark.parametrize("batch", [4, None, COST, PACK], ids=["plain", "single", "cost", "pack"])
def test_two_ranks_without_elastic(batch):
    spec = {
        "dataset": TEXTS if batch is PACK else only("a", "e"),
        **({} if batch is None else {"batch": batch}),
    }
    ranks = [wdspec.loader(spec, num_workers=0, rank=rank, world_size=2) for rank in range(2)]
    model = Model(spec, ranks=2)
    for step, parts in zip(range(20), zip(*ranks, strict=False), strict=False):
        right = [plain(item) for item in model.items(step)]
        if batch == 4:  # one batch of both ranks
            assert [key for part in parts for key in part["__key__"]] == right[0]["__key__"]
        else:
            assert text_of([plain(part) for part in parts]) == text_of(right)
    for loader in ranks:
        loader.close()


def measure(spec, path):
    """Write a spec to a file, and what `wdspec stats` measures next to it; return the file."""
    path.write_text(json.dumps({**spec, "stats": f"{path.stem}.stats.json"}), encoding="utf-8")
    within("stats", path)
    return path


@pytest.mark.parametrize("batch", [4, SUM], ids=["plain", "cost"])
def test_passes_with_measured_selections(batch, data):
    sources = [
        *only("a", where="json.score >= 3", repeat=1.5),
        *only("e", subset={"of": "json.user", "part": "60%"}),
    ]
    spec = {**ELASTIC, "batch": batch, "epoch": "pass", "dataset": sources}
    compare(measure(spec, data / f"pass-{type(batch).__name__}.json"))


def test_shares_by_measured_sizes_and_costs(data):
    mix = {"by": "samples", "temperature": 2, "shares_in": "cost"}
    compare(
        measure({**ELASTIC, "batch": SUM, "mix": mix, "dataset": only("a", "e", "b")}, data / "sizes.json")
    )


@pytest.mark.parametrize("kind", ["npz", "sqlite", "jsonl", "parquet"])
def test_lookups_in_every_format(kind, data):
    keys = [f"a{shard:03d}{n:04d}" for shard in range(5) for n in range(9)]
    rows = [{"key": key, "mark": n * 3, "vector": [n, n + 1]} for n, key in enumerate(keys)]
    path, fields = data / f"marks.{kind}", ["mark", "vector"]
    if kind == "npz":
        np.savez(path, key=keys, mark=[row["mark"] for row in rows], vector=[row["vector"] for row in rows])
    elif kind == "sqlite":
        fields = ["mark"]
        with sqlite3.connect(path) as base:
            base.execute("create table marks (key text, mark integer)")
            base.executemany("insert into marks values (?, ?)", [(row["key"], row["mark"]) for row in rows])
        base.close()
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    lookup = [{"table": path.name, "fields": fields, "rename": {"score": "mark"}}]
    batch = {"size": 3, "ragged": "list"}
    compare({"batch": batch, "dataset": [source("a", extensions="txt", lookup=lookup, where="score < 60")]})


@pytest.mark.parametrize("decode", ["rgb8", "torchrgb8", None])
def test_images(decode, data):
    samples = []
    for n in range(20):
        buffer = io.BytesIO()
        Image.new("RGB", (8 + n % 5, 8 + n % 3), (n, 2 * n, 3 * n)).save(buffer, "png")
        samples.append((f"{n:03d}", {"png": buffer.getvalue()}))
    write_shard(data / "pictures-0.tar", samples)
    keys = {} if decode is None else {"decode": decode}
    pictures = {"name": "pictures", "shards": "pictures-{0..0}.tar", "rename": {"image": "png"}, **keys}
    spec = {
        "batch": {"cost": "image.pixels", "max_cost": 300, "window": 12, "ragged": "list"},
        "dataset": [pictures],
    }
    compare(spec)
    compare(
        {**spec, "batch": {"size": 3, "group_by": "image.aspect > 1", "group_wait": 12, "ragged": "list"}}
    )


KINDS = {
    "cost": {"batch": {"cost": "txt.length", "max_cost": 100, "window": 24}},
    "groups": {"batch": {"size": 3, "group_by": "json.lang", "group_wait": 24, "window": 8}},
    "stage": {"batch": 4, "stage": {"call": "oracle_functions:by_length", "every": 24}},
}


@pytest.mark.parametrize("shuffle", [0, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_open_at_a_change_is_finished_and_nothing_is_lost(kind, shuffle):
    sources = [
        source("e", extensions="txt json", shuffle=shuffle),
        source("a", extensions="txt json", shuffle=shuffle),
    ]
    first, second, third = (
        {**KINDS[kind], "dataset": [{**sources[0], "weight": weight}, {**sources[1], "weight": 1}]}
        for weight in (1, 4, 2)
    )
    changed = replay([(first, 0), (second, 2), (third, 3), (second, 5)])
    step, found = 0, []
    while len(found) < 140:
        found += [key for item in changed.items(step) for key in item["__key__"]]
        step += 1
    held = 24 + 3 * shuffle * (shuffle > 1) + 16
    for name, total in (("e", 80), ("a", 30)):
        of_source = [key for key in found if key.startswith(name)]
        passes = [of_source.count(key) for key in set(of_source)]
        most = -(-(len(of_source) + held) // total)
        assert max(passes) <= most
        assert len(set(of_source)) >= min(total, len(of_source) - held)
    assert changed.items(1) == Model(first).items(1)
    assert changed.items(2) == Model(first).items(2)  # the open window or section


def test_the_model_imports_no_code_that_reads_or_plans_windows():
    folder = Path(oracle.__file__).parent
    for name in OF_MODEL:
        tree = ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
            elif isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            else:
                continue
            for imported in names:
                assert not imported.startswith(FORBIDDEN), f"{name}.py imports {imported}"
