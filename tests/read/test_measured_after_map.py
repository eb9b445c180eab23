"""Samples that are measured by what `map` makes of them: the same batches as over data that was prepared beforehand."""

from __future__ import annotations

import json
import random
from io import BytesIO

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from shardmaking import write_shard

import wdspec
from wdspec.cli.main import cli
from wdspec.jobs.engine import LocalEngine
from wdspec.jobs.stats import StatsJob
from wdspec.spec.reading import digest_costing
from wdspec.testing import assert_resumable

CODE = """
import numpy as np
import wdspec

def strip(text):
    return text.strip()

def encode(text):
    return np.arange(len(text.split()))

def tokens(sample):
    ids = encode(sample["txt"])
    return {**sample, "ids": ids, "n": len(ids)}

def tokens_in_place(sample):
    sample["ids"] = encode(sample["txt"])
    return sample

def breaks(text):
    if text.startswith("bad"):
        raise ValueError("no tokens")
    return encode(text)

def bad_number(sample, value="none"):
    made = tokens(sample)
    if sample["txt"].startswith("bad"):
        values = {"none": None, "nan": float("nan"), "inf": float("inf"), "zero": 0, "negative": -3, "bool": True}
        values |= {"text": "7", "array": np.arange(3), "dict": {"n": 3}, "list": [1, 2]}
        made["n"] = values[value]
    else:
        made["n"] = np.int64(made["n"])
    return made

def random_length(sample):
    return {**sample, "ids": np.arange(1 + wdspec.sample_rng(sample).integers(40))}

def twice(number):
    return 2 * number

def length(sample):
    return len(sample["ids"])

def short(sample):
    return len(sample["txt"].split()) < 30

def grow(samples):
    for sample in samples:
        yield {**sample, "ids": sample["ids"][:9]}

def embed(image):
    return image.mean(axis=(0, 1))
"""
SIZES = {"a": 35, "b": 12}
OF_TEXT = {"rename": {"ids": "txt"}}


def array(length):
    out = BytesIO()
    np.save(out, np.arange(length))
    return out.getvalue()


def picture(width):
    out = BytesIO()
    Image.new("RGB", (width, 8)).save(out, "png")
    return out.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("after_map")
    (folder / "aftermap.py").write_text(CODE)
    draw = random.Random(3)
    for source, mean in SIZES.items():
        for shard in range(2):
            samples = []
            for number in range(60):
                words = min(90, 1 + int(draw.expovariate(1 / mean)))
                is_bad = source == "a" and number % 20 == 7
                text = " ".join(["bad" if is_bad else "word", *["word" * draw.randint(1, 3)] * (words - 1)])
                files = {
                    "txt": text.encode(),
                    "npy": array(words),
                    "cls": b"%d" % words,
                    "png": picture(4 + words),
                }
                samples.append((f"{source}{shard}{number:03d}", files))
            write_shard(folder / f"{source}-{shard}.tar", samples)
    return folder


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)


def spec_of(batch, source=OF_TEXT, ranks=2, **more):
    each = {"extensions": "txt cls", "shuffle": 10, **source}
    sources = [{"name": name, "shards": f"{name}-{{0..1}}.tar", **each} for name in SIZES]
    spec = {"seed": 5, "dataset": sources, "elastic": {"ranks": ranks, "workers": 1}, "batch": batch, **more}
    return spec if "epoch" in more else {**spec, "epoch": {"batches": 14}}


def prepared(batch, **more):
    """The spec of the same batches, over data that is tokenized already."""
    return spec_of(batch, {"extensions": "npy cls", "rename": {"ids": "npy"}}, **more)


def loader_of(spec, **options):
    """A loader of a spec in the folder of the functions."""
    with open("spec.json", "w") as file:
        json.dump(spec, file)
    return wdspec.loader("spec.json", num_workers=0, **{"rank": 0, "world_size": 1, **options})


def read(spec, **options):
    """The batches of a loader, and what it counted."""
    with loader_of(spec, **options) as loader:
        return list(loader), loader.stats()


def keys(spec, **options):
    return [batch["__key__"] for batch in read(spec, **options)[0]]


MEASURES = {
    "pack": {"window": 40, "pack": {"fields": "ids", "length": 128}, "overlong": "drop"},
    "pack in order": {"window": 40, "pack": {"fields": "ids", "length": 128, "method": "in_order"}},
    "concatenate": {"window": 40, "pack": {"fields": "ids", "length": 64, "method": "concatenate"}},
    "truncate": {"window": 40, "pack": {"fields": "ids", "length": 32}, "overlong": "truncate"},
    "split": {"window": 40, "pack": {"fields": "ids", "length": 32}, "overlong": "split"},
    "cost": {"window": 40, "cost": "ids.length", "max_cost": 400, "collate": {"ids": "pad"}},
    "named cost": {"window": 40, "cost": "2 * n", "max_cost": 400, "collate": {"ids": "pad"}},
    "limits": {
        "window": 40,
        "cost": "cls",
        "max_cost": 400,
        "limits": {"ids.length": 90},
        "collate": {"ids": "pad"},
    },
    "balance": {
        "window": 40,
        "cost": "cls",
        "max_cost": 400,
        "balance": "ids.length",
        "collate": {"ids": "pad"},
    },
    "group_by": {"size": 4, "group_by": "ids.length > 20", "group_wait": 40, "collate": {"ids": "pad"}},
    "mixed": {"window": 40, "cost": "ids.length + cls", "max_cost": 400, "collate": {"ids": "pad"}},
    "function": {"window": 40, "cost": "aftermap:length", "max_cost": 400, "collate": {"ids": "pad"}},
    "default": {"window": 40, "cost": "default(ids.length, 3)", "max_cost": 400, "collate": {"ids": "pad"}},
}
COSTS = {"costs": {"n": "ids.length"}}
MAPS = {
    "field": {"map": {"ids": "aftermap:encode"}},
    "two functions of a field": {"map": {"ids": ["aftermap:strip", "aftermap:encode"]}},
    "sample": {"map": {"call": "aftermap:tokens", "sets": ["ids", "n"]}},
    "sample in place": {"map": [{"call": "aftermap:tokens_in_place", "sets": "ids"}]},
}
SOURCES = {name: OF_TEXT if "field" in name else {} for name in MAPS}


@pytest.mark.filterwarnings("ignore:.*W357")
@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("way", MAPS)
def test_batches_are_those_of_data_that_was_mapped_beforehand(name, way):
    batch = MEASURES[name]
    mapped, counts = read(spec_of(batch, SOURCES[way], **MAPS[way], **COSTS))
    expected, expected_counts = read(prepared(batch, **COSTS))
    assert [each["__key__"] for each in mapped] == [each["__key__"] for each in expected]
    assert [each.get("__cost__") for each in mapped] == [each.get("__cost__") for each in expected]
    for of_mapped, of_expected in zip(mapped, expected, strict=True):
        left, right = (each["ids"] for each in (of_mapped, of_expected))
        assert all(
            map(np.array_equal, *((each if isinstance(each, tuple) else (each,)) for each in (left, right)))
        )
    for source in SIZES:
        assert counts.sources[source].delivered == expected_counts.sources[source].delivered
        assert counts.sources[source].dropped == expected_counts.sources[source].dropped


@pytest.mark.parametrize("name", ["pack", "cost", "group_by", "concatenate"])
@pytest.mark.parametrize("has_stats", [False, True])
def test_passes_are_those_of_data_that_was_mapped_beforehand(name, has_stats, tmp_path):
    batch = {**MEASURES[name]}
    files = [{"stats": str(tmp_path / f"{which}.json")} if has_stats else {} for which in "ab"]
    specs = [
        spec_of(batch, epoch="pass", **MAPS["field"], **files[0]),
        prepared(batch, epoch="pass", **files[1]),
    ]
    for spec, file in zip(specs, files, strict=True):
        if file:
            StatsJob(load_here(spec), file["stats"]).run(LocalEngine(0))
    assert keys(specs[0]) == keys(specs[1])


def load_here(spec):
    with open("spec.json", "w") as file:
        json.dump(spec, file)
    return wdspec.load("spec.json")


@pytest.mark.parametrize("name", ["pack", "cost", "concatenate", "group_by"])
@pytest.mark.parametrize("way", ["field", "sample"])
def test_runs_resume_within_a_window(name, way):
    spec = load_here(spec_of(MEASURES[name], SOURCES[way], **MAPS[way]))

    def make_loader():
        return wdspec.loader(spec, num_workers=0, rank=0, world_size=2)

    assert_resumable(make_loader, batches=12, stops=[0, 1, 2, 3, 7])


def test_workers_resume_within_a_window():
    spec = load_here(spec_of(MEASURES["pack"], **MAPS["field"]) | {"elastic": {"ranks": 2, "workers": 2}})

    def make_loader():
        return wdspec.loader(spec, num_workers=2, rank=0, world_size=2)

    assert_resumable(make_loader, batches=12, stops=[3], live=False)


def test_random_functions_give_the_same_windows_after_resuming():
    call = {"call": "aftermap:random_length", "sets": "ids"}
    spec = spec_of(MEASURES["pack"], {}, map=call)
    whole = keys(spec)
    with loader_of(spec) as loader:
        iterator = iter(loader)
        for _ in range(5):
            next(iterator)
        state = loader.state_dict()
    with loader_of(spec) as loader:
        loader.load_state_dict(state)
        assert [batch["__key__"] for batch in loader] == whole[5:]


def test_a_state_is_refused_if_another_function_makes_what_is_measured():
    spec = spec_of(MEASURES["pack"], **MAPS["field"])
    with loader_of(spec) as loader:
        next(iter(loader))
        state = loader.state_dict()
    other = spec | {"map": {"ids": "aftermap:breaks"}}
    with loader_of(other) as loader, pytest.raises(wdspec.UsageError, match=r"costs\.read\.a\.ids\.map"):
        loader.load_state_dict(state)


def test_a_state_loads_with_another_function_that_decides_no_measure():
    estimate = {**MEASURES["pack"], "cost": "before_map(ids.length)"}
    with loader_of(spec_of(estimate, **MAPS["field"])) as loader:
        next(iter(loader))
        state = loader.state_dict()
    other = spec_of(estimate, map={"ids": "aftermap:breaks"})
    with loader_of(other) as loader, pytest.warns(UserWarning, match="the order is the same"):
        loader.load_state_dict(state)


def test_ranks_read_the_same_global_batches():
    spec = spec_of(MEASURES["pack"], **MAPS["field"])
    whole = keys(spec)
    apart = [keys(spec, rank=rank, world_size=2) for rank in range(2)]
    assert whole == [batch for step in zip(*apart, strict=True) for batch in step]


def test_packs_of_a_tokenizer_are_full(folder):
    with open("docs.jsonl", "w") as file:
        for number in range(1500):
            print(json.dumps({"__key__": f"{number}", "text": "word " * (20 + number % 700)}), file=file)
    source = {"shards": "docs.jsonl", "extensions": "text", "rename": {"ids": "text"}}
    spec = {
        "dataset": [{"name": "docs", **source}],
        "map": {"ids": "aftermap:encode"},
        "batch": {"pack": {"fields": "ids", "length": 1024}, "window": 1000, "overlong": "drop"},
        "epoch": {"batches": 300},
    }
    batches, counts = read(spec)
    tokens = [batch["__tokens__"] for batch in batches]
    assert sum(tokens) / len(tokens) / 1024 >= 0.97
    assert not counts.sources["docs"].dropped


def test_each_source_is_measured_by_what_its_own_map_sets():
    batch = {"window": 40, "cost": "ids.length", "max_cost": 400, "collate": {"ids": "pad"}}
    spec = spec_of(batch)
    of_text = {"extensions": "txt cls", "rename": {"ids": "txt"}, "map": {"ids": "aftermap:encode"}}
    of_array = {"extensions": "npy cls", "rename": {"ids": "npy"}}
    spec["dataset"] = [
        {**each, **keys} for each, keys in zip(spec["dataset"], (of_text, of_array), strict=True)
    ]
    assert keys(spec) == keys(prepared(batch))


def test_values_before_map_stay_reachable():
    listed = {"window": 40, "max_cost": 2000, "collate": {"ids": "list"}}
    plain = {**listed, "cost": "ids.length"}
    assert keys(spec_of({**listed, "cost": "before_map(ids.length)"}, **MAPS["field"])) == keys(
        spec_of(plain)
    )
    texts, ids = (
        {
            key: len(value)
            for batch in read(spec)[0]
            for key, value in zip(batch["__key__"], batch["ids"], strict=True)
        }
        for spec in (spec_of(plain, epoch="pass"), prepared(plain, epoch="pass"))
    )
    both = {**listed, "cost": "before_map(ids.length) + ids.length", "padded": False}
    for batch in read(spec_of(both, **MAPS["field"]))[0]:
        assert batch["__cost__"] == sum(texts[key] + ids[key] for key in batch["__key__"])


def test_headers_are_read_where_map_sets_another_field():
    batch = {"window": 40, "cost": "ids.length + png.width", "max_cost": 500, "collate": {"ids": "pad"}}
    source = {"extensions": "txt png", "rename": {"ids": "txt"}}
    mapped = spec_of(batch, source, map={"ids": "aftermap:encode"})
    beside = prepared(batch)
    beside["dataset"] = [{**each, "extensions": "npy png"} for each in beside["dataset"]]
    assert keys(mapped) == keys(beside)


def test_a_tag_that_replaces_a_mapped_field_is_what_counts():
    batch = {"window": 40, "cost": "cls", "max_cost": 50}
    spec = spec_of(batch, {"extensions": "cls", "map": {"cls": "aftermap:twice"}, "tags": {"cls": 5}})
    sizes = [len(batch["__key__"]) for batch in read(spec)[0]]
    assert set(sizes) == {10}
    spec = spec_of(batch, {"extensions": "cls", "tags": {"cls": 5}}, map={"cls": "aftermap:twice"})
    assert {len(batch["__key__"]) for batch in read(spec)[0]} == {5}


def test_samples_that_select_drops_are_in_no_window():
    batch = MEASURES["cost"]
    batches, _ = read(spec_of(batch, {"extensions": "txt cls", "select": "aftermap:short"}, **MAPS["sample"]))
    assert max(max(batch["cls"]) for batch in batches) < 30


def test_a_map_that_raises_is_the_error_of_its_sample():
    spec = spec_of(MEASURES["pack"], map={"ids": "aftermap:breaks"})
    with pytest.raises(ValueError, match="no tokens") as raised:
        read(spec)
    assert "a0" in str(raised.value) or "a1" in str(raised.value)
    batches, counts = read(spec | {"errors": {"skip": ["map"], "max_rate": 1}})
    assert counts.sources["a"].skipped
    assert not any(key in bad_keys() for batch in batches for key in batch["__key__"])
    assert keys(spec | {"errors": {"skip": ["map"], "max_rate": 1}}) == [
        batch["__key__"] for batch in batches
    ]


def bad_keys():
    return {f"a{shard}{number:03d}" for shard in range(2) for number in range(60) if number % 20 == 7}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("none", "is null; it must be a finite number"),
        ("nan", "is nan"),
        ("inf", "is inf"),
        ("zero", "is 0"),
        ("negative", "is -3"),
        ("bool", "is True"),
        ("text", "a str, '7'"),
        ("array", r"a ndarray, array\(\[0, 1, 2\]\)"),
        ("dict", "a dict"),
        ("list", r"a list, \[1, 2\]"),
    ],
)
@pytest.mark.parametrize("key", ["cost", "limits", "balance"])
def test_a_measure_that_is_no_number_is_the_error_of_its_sample(key, value, message):
    if key != "cost" and value == "zero":
        pytest.skip("a part of `limits` may be 0")
    measure = {
        "cost": {"cost": "n"},
        "limits": {"cost": "1", "limits": {"n": 300}},
        "balance": {"cost": "1", "balance": "n"},
    }
    batch = {
        "window": 40,
        "max_cost": 300,
        **measure[key],
        "collate": {"ids": "list", "n": "list"},
    }
    call = {"call": "aftermap:bad_number", "args": {"value": value}, "sets": "n"}
    spec = spec_of(batch, {}, map=call)
    with pytest.raises(wdspec.FieldError, match=message) as raised:
        read(spec)
    assert raised.value.key in bad_keys()
    batches, counts = read(spec | {"errors": {"skip": True, "max_rate": 1}})
    assert counts.sources["a"].skipped.keys() == {"D202"}
    assert not counts.sources["b"].skipped
    assert not any(key in bad_keys() for batch in batches for key in batch["__key__"])


def test_a_function_of_samples_that_does_not_say_what_it_sets_gets_a_hint():
    for batch in ({"pack": {"fields": "ids", "length": 128}}, {"cost": "ids.length", "max_cost": 128}):
        with pytest.raises(wdspec.SpecError, match=r"map: .{call: 'aftermap:tokens', sets: ids}"):
            read(spec_of(batch, {}, map="aftermap:tokens"))
        spec = spec_of(batch, {}, map="aftermap:tokens")
        spec["dataset"] = [
            {key: value for key, value in each.items() if key != "extensions"} for each in spec["dataset"]
        ]
        with pytest.raises(wdspec.FieldError, match="`sets: ids` next to the `call`"):
            read(spec)


def test_a_field_that_the_function_does_not_set_is_an_error():
    batch = {"cost": "nothing", "max_cost": 9}
    spec = spec_of(batch, {}, map={"call": "aftermap:tokens", "sets": "nothing"})
    with pytest.raises(wdspec.FieldError, match="`nothing`, which the sample does not have after `map`"):
        read(spec)


def test_estimates_of_the_past_are_reported(recwarn):
    batch = {"window": 40, "cost": "ids.length / 3", "max_cost": 400, "collate": {"ids": "pad"}}
    read(spec_of(batch, **MAPS["field"]))
    messages = [str(each.message) for each in recwarn if "W357" in str(each.message)]
    assert len(messages) == 1
    assert "write `before_map(ids.length) / 3`" in messages[0]


def media(batch, **more):
    """A spec whose images are decoded; that is not visible without `extensions`."""
    spec = spec_of(batch, {"rename": {"ids": "txt"}, "decode": ["rgb8"]}, **more)
    for source in spec["dataset"]:
        del source["extensions"]
    return spec


def test_decoded_images_in_a_window_are_an_error_at_run_time():
    batch = {
        "window": 40,
        "cost": "ids.length",
        "max_cost": 4000,
        "collate": {"ids": "list", "png": "list", "npy": "list"},
    }
    with pytest.raises(wdspec.UsageError, match="a window of them keeps `png` decoded in memory"):
        read(media(batch, map={"ids": "aftermap:encode"}) | {"errors": {"skip": True, "max_rate": 1}})
    with pytest.raises(wdspec.UsageError, match="after a `stage`, so a window of them keeps `png`"):
        read(media(batch, stage="aftermap:grow", map={"ids": "aftermap:encode"}))
    assert read(media({**batch, "cost": "before_map(ids.length)"}, map={"ids": "aftermap:encode"}))[0]
    bare = {**batch, "collate": {"ids": "list"}}
    assert read(media(bare, map={"ids": "aftermap:encode"}, fields="ids"))[0]


def test_headers_of_fields_that_map_sets_are_an_error_at_run_time():
    join = {"join": [{"shards": "a-{0..1}.tar", "fields": "png", "rename": {"i": "png"}}]}
    spec = spec_of({"window": 40, "cost": "i.width", "max_cost": 400}, {"extensions": "cls i"})
    spec["dataset"] = [spec["dataset"][0] | join]
    assert read(spec)[0]
    with pytest.raises(wdspec.UsageError, match=r"write `before_map\(i.width\)`"):
        read(spec | {"map": {"i": "builtins:len"}})
    assert read(
        spec | {"map": {"i": "builtins:len"}, "batch": {**spec["batch"], "cost": "before_map(i.width)"}}
    )[0]


def test_a_spec_can_be_explained_and_its_batches_traced():
    load_here(spec_of(MEASURES["pack"], **MAPS["field"]))
    explained = CliRunner().invoke(cli, ["explain", "spec.json"])
    assert explained.exit_code == 0, explained.output
    assert "planned from windows of 40 samples" in explained.output
    traced = CliRunner().invoke(cli, ["batch", "spec.json", "--step", "3"])
    assert traced.exit_code == 0, traced.output
    first = keys(spec_of(MEASURES["pack"], **MAPS["field"]))[6]
    assert all(key in traced.output for key in first)


def test_statistics_of_costs_depend_on_the_functions_that_are_measured(tmp_path):
    def costing(**more):
        spec = spec_of({"cost": "ids.length", "max_cost": 90}, epoch="pass", **more)
        spec = load_here(spec)
        return digest_costing(spec, spec.sources_by_name[0], {})

    tokens, others = costing(map={"ids": "aftermap:encode"}), costing(map={"ids": "aftermap:breaks"})
    assert len({tokens, others, costing()}) == 3
