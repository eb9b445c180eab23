"""Batches by cost: their limits, and that order and resume do not depend on ranks, workers or where a run stopped."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from io import BytesIO
from itertools import combinations, pairwise

import numpy as np
import pytest
from PIL import Image
from shardmaking import write_shard

import wdspec
from wdspec.jobs.engine import LocalEngine
from wdspec.jobs.stats import StatsJob
from wdspec.planning.windows import WindowRules, gather_groups, plan_window
from wdspec.testing import assert_resumable

RANKS, WORKERS = 12, 2


def array(length: int, start: int = 0) -> bytes:
    out = BytesIO()
    np.save(out, np.arange(start, start + length))
    return out.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    draw = random.Random(1)
    for source, mean in (("a", 4.0), ("b", 3.0)):
        for shard in range(3):
            samples = []
            for number in range(60):
                length = min(300, max(1, round(draw.lognormvariate(mean, 0.8))))
                facts = {"n": length, "group": number % 4, "seen": draw.random()}
                fields = {
                    "npy": array(length, number),
                    "json": json.dumps(facts).encode(),
                    "txt": b"x" * length,
                }
                samples.append((f"{source}{shard}{number:03d}", fields))
            write_shard(folder / f"{source}-{shard}.tar", samples)
    return folder


def spec_of(folder, batch, ranks=RANKS, workers=WORKERS, **more):
    sources = [
        {"name": name, "shards": f"{folder}/{name}-{{0..2}}.tar", "weight": weight, "shuffle": 20}
        for name, weight in (("a", 2), ("b", 1))
    ]
    spec = {"dataset": sources, "elastic": {"ranks": ranks, "workers": workers}, "batch": batch, **more}
    return spec if "epoch" in more else {**spec, "epoch": {"batches": 12}}


def global_batches(spec, ranks=1, state=None, workers=0, stop=None, seen=None):
    """The keys of the micro-batches of each step, and the merged state at the end."""
    canonical = spec["elastic"]["ranks"] // ranks
    loaders = [wdspec.loader(spec, num_workers=workers, rank=rank, world_size=ranks) for rank in range(ranks)]
    steps: list[list] = []
    try:
        if state is not None:
            for loader in loaders:
                loader.load_state_dict(state)
        iterators = [iter(loader) for loader in loaders]
        while stop is None or len(steps) < stop:
            step = []
            for iterator in iterators:
                for _ in range(canonical):
                    batch = next(iterator, None)
                    if batch is not None:
                        step.append(batch)
            if not step:
                break
            assert len(step) == spec["elastic"]["ranks"], "every canonical rank gives a batch"
            if seen is not None:
                seen.extend(step)
            steps.append([tuple(batch["__key__"]) for batch in step])
        return steps, wdspec.merge_states([loader.state_dict() for loader in loaders])
    finally:
        for loader in loaders:
            loader.close()


PACK = {"fields": "npy", "length": 320}
KINDS = {
    "padded": {"cost": "npy.length", "max_cost": 800, "window": 40},
    "function of fields": {"cost": "ceil(json.n / 8) * 8 + 1", "max_cost": 700, "max_size": 6, "window": 30},
    "multiples": {"cost": "txt.length", "max_cost": 900, "size_multiple": 4, "window": 50},
    "sums": {"cost": "npy.length", "max_cost": 500, "padded": False, "window": 40, "limits": {"json.n": 450}},
    "balanced": {"cost": "npy.length", "max_cost": 500, "padded": False, "window": 40, "balance": "json.n"},
    "packed": {"window": 40, "pack": PACK},
    "in order": {"window": 40, "pack": {**PACK, "method": "in_order"}},
    "concatenated": {"window": 40, "pack": {**PACK, "length": 100, "method": "concatenate"}},
    "split": {"window": 40, "pack": {**PACK, "length": 64}, "overlong": "split"},
    "truncated": {"window": 40, "pack": {**PACK, "length": 64}, "overlong": "truncate"},
    "dropped": {"cost": "npy.length", "max_cost": 60, "window": 40, "overlong": "drop"},
    "alone": {"cost": "npy.length", "max_cost": 60, "window": 40, "overlong": "alone"},
    "groups": {"size": 3, "group_by": "json.group", "group_wait": 40},
    "merged groups": {"size": 5, "group_by": "json.group", "group_wait": 30, "incomplete": "merge"},
    "groups by cost": {
        "cost": "npy.length",
        "max_cost": 400,
        "group_by": "json.group",
        "group_wait": 40,
        "incomplete": "drop",
    },
}


def padded(batch):
    return batch if "pack" in batch else {**batch, "collate": {"npy": "pad"}}


@pytest.mark.parametrize("kind", KINDS)
def test_batches_stay_within_their_limits(folder, kind):
    batch, seen = KINDS[kind], []
    global_batches(spec_of(folder, padded(batch), ranks=2), seen=seen)
    pack = batch.get("pack", {})
    most = batch.get("max_cost", pack.get("length", float("inf")))
    for made in seen:
        size, cost = made["__size__"], made["__cost__"]
        assert size == len(made["__key__"])
        assert cost <= most or (batch.get("overlong") == "alone" and size == 1)
        assert size <= batch.get("max_size", batch.get("size", size))
        assert size < batch.get("size_multiple", 1) or size % batch.get("size_multiple", 1) == 0
        if "group_by" in batch and batch.get("incomplete") != "merge":
            assert len({facts["group"] for facts in made["json"]}) == 1
        if batch.get("limits"):
            assert sum(facts["n"] for facts in made["json"]) <= 450
        if pack:
            assert made["npy"].shape == (1, pack["length"])
            assert made["__tokens__"] == cost


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"dropped", "groups by cost"}))
def test_a_window_delivers_each_sample_once(folder, kind):
    batch = KINDS[kind]
    window = batch.get("window", batch.get("group_wait"))
    plain = spec_of(folder, {"size": window, "collate": {"npy": "pad"}}, 1, 1, epoch={"batches": 4})
    with wdspec.loader(plain, num_workers=0) as loader:
        windows = [sorted(made["__key__"]) for made in loader]
    with wdspec.loader(spec_of(folder, padded(batch), 1, 1, epoch={"batches": 999}), num_workers=0) as loader:
        batches = iter(loader)
        for expected in windows:
            keys, tokens = [], Counter()
            while set(keys) != set(expected) or (
                "pack" in batch and sum(tokens.values()) < due(batch, expected)
            ):
                made = next(batches)
                assert set(made["__key__"]) <= set(expected)
                keys += made["__key__"]
                tokens["all"] += made.get("__tokens__", 0)
            if kind not in ("concatenated", "split"):
                assert sorted(keys) == expected


def lengths_of_samples():
    """Key → tokens of the samples in `folder`."""
    draw, lengths = random.Random(1), {}
    for source, mean in (("a", 4.0), ("b", 3.0)):
        for shard in range(3):
            for number in range(60):
                lengths[f"{source}{shard}{number:03d}"] = min(
                    300, max(1, round(draw.lognormvariate(mean, 0.8)))
                )
                draw.random()
    return lengths


def due(batch, keys):
    """The tokens of the samples of a window that its packs have to hold."""
    lengths = lengths_of_samples()
    most = batch["pack"]["length"] if batch.get("overlong") == "truncate" else 999
    return sum(min(lengths[key], most) for key in keys)


def random_spec(draw, folder):
    batch = dict(KINDS[draw.choice(list(KINDS))])
    if "window" in batch:
        batch["window"] = draw.choice([10, 25, 60])
    more = {"seed": draw.randrange(5)}
    if draw.random() < 0.3:
        more["skip"] = f"{draw.randrange(4)}..{draw.randrange(4, 7)}"
    if draw.random() < 0.3:
        more["mix"] = {"draw": draw.choice(["random", "round_robin"])}
        if more["mix"]["draw"] == "random":
            more["mix"]["schedule"] = [
                {"at": 0, "shares": {"a": 1, "b": 1}},
                {"at": 1500, "shares": {"a": 1, "b": 3}},
            ]
    spec = spec_of(folder, padded(batch), **more)
    if "schedule" in more.get("mix", {}) or more.get("mix", {}).get("draw") == "round_robin":
        for source in spec["dataset"]:
            del source["weight"]
    return spec


def check_random_spec(draw, folder, resumes):
    spec = random_spec(draw, folder)
    expected, _ = global_batches(spec)
    compared = 0
    for _ in range(resumes):
        first, second, third = draw.choice([(12, 3, 4), (4, 12, 1), (1, 6, 12), (3, 2, 6)])
        one = draw.randrange(1, len(expected) - 2)
        two = draw.randrange(one + 1, len(expected))
        steps, state = global_batches(spec, first, stop=one)
        assert steps == expected[:one], spec
        more, state = global_batches(spec, second, json.loads(json.dumps(state)), stop=two - one)
        assert more == expected[one:two], (spec, one, two)
        rest, _ = global_batches(spec, third, state)
        assert rest == expected[two:], (spec, one, two)
        compared += len(expected) * RANKS
    return compared


@pytest.mark.parametrize("seed", range(6))
def test_resuming_on_other_ranks_changes_nothing(folder, seed):
    check_random_spec(random.Random(seed), folder, resumes=1)


@pytest.mark.long
def test_resuming_on_other_ranks_changes_nothing_in_many_specs(folder):
    draw = random.Random(7)
    compared = sum(check_random_spec(draw, folder, resumes=3) for _ in range(60))
    assert compared > 20_000


@pytest.mark.parametrize("kind", ["padded", "packed", "groups"])
def test_workers_do_not_change_the_batches(folder, kind):
    spec = spec_of(folder, padded(KINDS[kind]), ranks=2, workers=2)
    expected, _ = global_batches(spec)
    assert global_batches(spec, workers=2)[0] == expected
    first, state = global_batches(spec, workers=2, stop=5)
    assert first + global_batches(spec, 2, state, workers=1)[0] == expected


def test_shares_that_are_set_apply_from_the_next_window_and_survive_a_resume(folder):
    spec = spec_of(folder, padded(KINDS["padded"]), ranks=2, workers=1, epoch={"batches": 30})

    def run(ranks, stop=None):
        loaders = [wdspec.loader(spec, num_workers=0, rank=rank, world_size=ranks) for rank in range(ranks)]
        keys, number = [], 0
        iterators = [iter(loader) for loader in loaders]
        while stop is None or number < stop:
            if number == 7:
                for loader in loaders:
                    loader.set_shares({"b": 1})
            step = [next(iterator, None) for iterator in iterators for _ in range(2 // ranks)]
            if step[0] is None:
                break
            keys.append([tuple(batch["__key__"]) for batch in step])
            number += 1
        return keys, wdspec.merge_states([loader.state_dict() for loader in loaders])

    expected, _ = run(1)
    assert run(2)[0] == expected
    assert all(key.startswith("b") for keys in expected[-1] for key in keys)
    for stop in (9, 12, 15):
        first, state = run(2, stop)
        assert first + global_batches(spec, 1, state)[0] == expected


def test_the_state_grows_by_few_bytes_per_slot(folder):
    sizes = []
    for batch in ({"size": 4, "ragged": "list"}, KINDS["packed"]):
        _, state = global_batches(spec_of(folder, batch, ranks=4), 1, stop=5)
        sizes.append(len(json.dumps(state["ranks"])))
    assert (sizes[1] - sizes[0]) / (4 * WORKERS) <= 32


def test_a_packed_row_has_the_positions_and_bounds_of_its_samples(folder):
    names = {
        "position_ids": "places",
        "cu_seqlens": "ends",
        "max_seqlen": "longest",
        "segment_ids": "segments",
    }
    pack = {"fields": "npy", "length": 320, "pad": {"npy": -7}, "pad_to_multiple_of": 8, **names}
    with wdspec.loader(spec_of(folder, {"pack": pack, "window": 30}, 1, 1), num_workers=0) as loader:
        row = next(iter(loader))
    tokens, places, segments = (row[name][0].tolist() for name in ("npy", "places", "segments"))
    ends = row["ends"].tolist()
    assert ends[0] == 0
    assert ends[-1] == 320 == len(tokens)
    sizes = [facts["n"] for facts in row["json"]]
    for number, (facts, start, size) in enumerate(zip(row["json"], ends, sizes, strict=False), 1):
        first = int(row["__key__"][number - 1][2:])
        assert facts["n"] == size
        assert tokens[start : start + size] == list(range(first, first + size))
        assert places[start : start + size] == list(range(size))
        assert segments[start : start + size] == [number] * size
        assert ends[number] == start + -(-size // 8) * 8
    assert tokens.count(-7) == 320 - sum(sizes) == segments.count(0)
    assert row["longest"] == max(b - a for a, b in pairwise(ends))
    assert row["__tokens__"] == sum(sizes)
    assert row["__cost__"] == sum(-(-size // 8) * 8 for size in sizes)


@pytest.mark.parametrize("key", ["position_ids", "cu_seqlens", "max_seqlen", "segment_ids"])
def test_a_field_that_pack_adds_never_replaces_another_one(folder, key):
    pack = {"fields": "npy", "length": 320, key: "txt"}
    with pytest.raises(wdspec.FieldError, match="the samples have a field `txt`, which `pack` would replace"):
        global_batches(spec_of(folder, {"pack": pack}, 1, 1))
    other = "cu_seqlens" if key != "cu_seqlens" else "position_ids"
    for more in ({key: "npy"}, {key: "__size__"}, {key: "x", other: "x"}):
        with pytest.raises(wdspec.SpecError, match="E356"):
            wdspec.load(spec_of(folder, {"pack": {"fields": "npy", "length": 320, **more}}, 1, 1))


def test_padding_of_fields_that_are_not_packed_is_an_error(folder):
    pack = {"fields": "npy", "length": 320, "pad": {"npy": 1, "txt": 2}}
    with pytest.raises(wdspec.SpecError, match="`pad` of `txt` has no effect"):
        wdspec.load(spec_of(folder, {"pack": pack}, 1, 1))


@pytest.mark.parametrize(
    ("dtype", "fill", "message"),
    [
        ("int64", 1e30, r"`pad` fills with 1e\+30, which int64 cannot hold"),
        ("int64", 0.5, "`pad` fills with 0.5, but the values are int64"),
        ("uint8", -1, "`pad` fills with -1, which uint8 cannot hold"),
        ("uint8", 256, "`pad` fills with 256, which uint8 cannot hold"),
        ("bool", 2, "`pad` fills with 2, which bool cannot hold"),
        ("float16", 1e6, r"`pad` fills with 1e\+06, which float16 cannot hold"),
    ],
)
@pytest.mark.parametrize("way", ["pack", "collate"])
def test_padding_that_the_type_cannot_hold_is_a_field_error(tmp_path, way, dtype, fill, message):
    out = BytesIO()
    np.save(out, np.ones(3, dtype=dtype))
    write_shard(tmp_path / "a.tar", [("k", {"npy": out.getvalue()})])
    batch = {"pack": {"fields": "npy", "length": 8, "pad": {"npy": fill}}, "window": 4}
    if way == "collate":
        batch = {"size": 1, "collate": {"npy": {"pad": {"value": fill, "multiple": 8}}}}
    spec = {"dataset": [{"shards": f"{tmp_path}/a.tar"}], "batch": batch}
    with wdspec.loader(spec, num_workers=0) as loader, pytest.raises(wdspec.FieldError, match=message):
        next(iter(loader))


CODE = """
def length(sample):
    return len(sample["txt"])

def short(sample):
    return len(sample["txt"]) < 40

def breaks(sample):
    if sample["__key__"].endswith("7"):
        raise ValueError("no sevens")
    return sample

def tokens(sample):
    return {**sample, "tokens": sample["npy"][:10]}
"""


@pytest.fixture
def functions(folder):
    (folder / "windowed.py").write_text(CODE)
    return folder


def run_beside(folder, batch, **more):
    """The batches of a spec file next to `windowed.py`, and the loader's counts."""
    path = folder / "spec.json"
    path.write_text(json.dumps(spec_of(folder, batch, 2, 1, **more)))
    with wdspec.loader(str(path), num_workers=0, rank=0, world_size=1) as loader:
        return list(loader), loader.stats()


def test_a_function_of_decoded_samples_can_be_the_cost(functions):
    by_function, _ = run_beside(functions, padded({"cost": "windowed:length", "max_cost": 600, "window": 40}))
    by_field, _ = run_beside(functions, padded({"cost": "txt.length", "max_cost": 600, "window": 40}))
    assert [made["__key__"] for made in by_function] == [made["__key__"] for made in by_field]


def test_samples_that_select_drops_are_in_no_window(functions):
    batches, _ = run_beside(functions, padded(KINDS["padded"]), defaults={"select": "windowed:short"})
    assert all(facts["n"] < 40 for made in batches for facts in made["json"])


def test_a_sample_that_fails_after_planning_shortens_its_batch(functions):
    whole, _ = run_beside(functions, padded(KINDS["padded"]))
    batches, stats = run_beside(
        functions, padded(KINDS["padded"]), map="windowed:breaks", errors={"skip": ["map"], "max_rate": 1}
    )
    left = [[key for key in made["__key__"] if not key.endswith("7")] for made in whole]
    assert [made["__key__"] for made in batches] == left
    lost = sum(len(made["__key__"]) for made in whole) - sum(map(len, left))
    assert sum(sum(source.skipped.values()) for source in stats.sources.values()) == lost > 0


def test_a_field_that_map_adds_can_be_packed_but_not_be_a_cost(functions):
    pack = {"fields": "tokens", "length": 64}
    batches, _ = run_beside(functions, {"cost": 10, "pack": pack, "window": 20}, map="windowed:tokens")
    assert batches[0]["tokens"].shape == (1, 64)
    with pytest.raises(wdspec.FieldError, match="which the sample does not have before `map`"):
        run_beside(functions, {"pack": pack, "window": 20}, map="windowed:tokens")


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"cost": "json.n - json.n"}, "is 0; it must be a finite number above 0"),
        ({"cost": "0 - json.n"}, "it must be a finite number above 0"),
        ({"cost": "json.n / (json.n - json.n)"}, "division by zero"),
        ({"cost": "ceil(1e308 * 10 * json.n)"}, "the sample: `ceil` is for finite numbers, but this is inf"),
        ({"cost": "1e308 * 10 * json.n"}, "it must be a finite number above 0"),
        ({"cost": "txt"}, "is a str"),
        ({"cost": "json.nothing"}, "there is no `nothing` in it"),
        ({"cost": "jpg.width"}, "needs the field `jpg`"),
        ({"cost": "npy.length", "max_cost": 20}, "`max_cost` is 20; raise it, or set `overlong"),
        ({"cost": "json.n", "limits": {"txt.length": 3}}, "raise it, or set `overlong"),
        ({"cost": "json.n", "balance": "txt"}, "is a str"),
        ({"cost": "json.n", "max_cost": 1, "overlong": "drop"}, "have made no batch|yielded nothing"),
    ],
)
def test_invalid_costs_are_rejected(folder, batch, message):
    with pytest.raises(wdspec.WdspecError, match=message):
        global_batches(spec_of(folder, padded({"max_cost": 400, "window": 20, **batch}), 1, 1))


@pytest.mark.parametrize("skip", [None, "0..1"])
def test_windows_of_which_no_sample_can_be_decoded_end_with_an_error(folder, skip):
    spec = spec_of(folder, padded({"cost": "json.n", "max_cost": 400, "window": 20}), 1, 1)
    spec |= {"errors": "skip", "defaults": {"decode": {"txt": "rgb8"}}} | ({"skip": skip} if skip else {})
    with pytest.raises(
        wdspec.ShardError, match=r"no sample is left of 20 windows \(dropped or skipped: D202 [\d,]+\)"
    ):
        global_batches(spec)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            {"cost": "json.score"},
            r"is null; it must be a finite number above 0\. Write `default\(json\.score, 1\)`",
        ),
        ({"cost": 1, "limits": {"json.score": 9}}, r"of at least 0\. Write `default\(json\.score, 0\)`"),
        ({"cost": "nothing:measure"}, r"`nothing:measure` is null; it must be a finite number above 0 \["),
    ],
)
def test_a_null_names_the_default_to_write(tmp_path, batch, message):
    write_shard(tmp_path / "a.tar", [(f"{n}", {"json": b'{"score": null}'}) for n in range(20)])
    (tmp_path / "nothing.py").write_text("def measure(sample):\n    return None\n")
    spec = {
        "dataset": [{"shards": "a.tar", "decode": {"json": "json"}}],
        "batch": {"max_cost": 4, "window": 20, **batch},
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    with (
        wdspec.loader(str(tmp_path / "spec.json"), num_workers=0) as loader,
        pytest.raises(wdspec.FieldError, match=message),
    ):
        next(iter(loader))


def test_a_packed_value_inside_a_field_needs_a_field_of_its_own(folder):
    batch = {"pack": {"fields": "json.n", "length": 64}, "window": 20}
    with pytest.raises(
        wdspec.FieldError, match=r"`json` is a field, and `json.n` a value in it: add a field for this"
    ):
        global_batches(spec_of(folder, batch, 1, 1))


def test_equal_costs_make_equal_batches(folder):
    steps, _ = global_batches(spec_of(folder, padded({"cost": 1, "max_cost": 8, "window": 40}), 1, 1))
    assert [len(batch) for [batch] in steps] == [8] * 12


def test_a_default_replaces_missing_fields(folder):
    cost = "default(jpg.pixels, 50) + default(json.nothing, 0) + 1"
    seen = []
    global_batches(spec_of(folder, padded({"cost": cost, "max_cost": 510, "window": 40}), 1, 1), seen=seen)
    assert {made["__cost__"] for made in seen} == {510}


def test_a_rank_count_that_does_not_divide_is_rejected(folder):
    with pytest.raises(wdspec.UsageError, match="5 ranks cannot share 12 canonical ranks"):
        wdspec.loader(spec_of(folder, KINDS["packed"]), rank=0, world_size=5)


def test_shares_of_cost_divide_tokens(folder, tmp_path):
    spec = spec_of(folder, padded({"cost": "npy.length", "max_cost": 800, "window": 200}), 1, 1)
    spec |= {"mix": {"shares_in": "cost"}, "stats": str(tmp_path / "stats.json"), "epoch": {"batches": 600}}
    StatsJob(wdspec.load(spec), spec["stats"]).run(LocalEngine(0))
    measured = wdspec.load(spec)
    means = {source.name: source.mean_cost for source in measured.sources}
    lengths = lengths_of_samples()
    for name, mean in means.items():
        own = [length for key, length in lengths.items() if key.startswith(name)]
        assert mean == pytest.approx(sum(own) / len(own))
    tokens: Counter[str] = Counter()
    with wdspec.loader(spec, num_workers=0) as loader:
        for made in loader:
            for source, facts in zip(made["__source__"], made["json"], strict=True):
                tokens[source] += facts["n"]
    assert tokens["a"] / tokens.total() == pytest.approx(2 / 3, abs=0.01)
    assert float(wdspec.plan(spec).sources[0].share) == pytest.approx(
        2 / means["a"] / (2 / means["a"] + 1 / means["b"])
    )


def test_shares_of_cost_need_the_mean_cost(folder):
    spec = spec_of(folder, KINDS["packed"], mix={"shares_in": "cost"})
    with pytest.raises(wdspec.SpecError, match="needs the mean cost of each source"):
        wdspec.load(spec)
    with pytest.raises(wdspec.SpecError, match="needs a cost of samples"):
        wdspec.load(spec_of(folder, 4, mix={"shares_in": "cost"}))


def test_images_in_a_bucket_have_its_size_and_nearest_aspect(tmp_path):
    draw = random.Random(3)
    sizes = [(draw.randrange(40, 260), draw.randrange(40, 260)) for _ in range(60)]
    samples = []
    for number, size in enumerate(sizes):
        out = BytesIO()
        Image.new("RGB", size, (number, 0, 0)).save(out, draw.choice(["png", "jpeg"]))
        samples.append((f"{number:03d}", {"jpg": out.getvalue()}))
    write_shard(tmp_path / "p.tar", samples)
    spec = {
        "dataset": [
            {"shards": f"{tmp_path}/p.tar", "decode": {"jpg": "rgb8+bucket=64x96+step=16+ratio=1/2..2"}}
        ],
        "batch": {"size": 4, "group_by": "jpg.bucket", "group_wait": 60},
        "epoch": {"batches": 12},
    }
    sides = range(16, 200, 16)
    inside = {(w, h) for w in sides for h in sides if w * h <= 64 * 96}
    allowed = [
        (w, h)  # as large as possible in one of the two directions
        for w, h in inside
        if not {(w + 16, h), (w, h + 16)} <= inside and 0.5 <= w / h <= 2
    ]
    with wdspec.loader(spec, num_workers=0) as loader:
        for made in loader:
            _, height, width, _ = made["jpg"].shape
            assert (width, height) in allowed
            for key in made["__key__"]:
                aspect = sizes[int(key)][0] / sizes[int(key)][1]
                nearest = min(abs(math.log(w / h / aspect)) for w, h in allowed)
                assert abs(math.log(width / height / aspect)) == pytest.approx(nearest)


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        ("rgb8+bucket=64+resize=32", "both set the size"),
        ("rgb8+step=64", "which is missing"),
        ("rgb8+bucket=64+upright", "turn images when you write the shards"),
        ("rgb8+bucket=big", "is not a side"),
    ],
)
def test_invalid_buckets_are_rejected(tmp_path, decoder, message):
    with pytest.raises(wdspec.SpecError, match=message):
        wdspec.load({"dataset": [{"shards": f"{tmp_path}/p.tar", "decode": {"jpg": decoder}}]})


def test_a_bucket_needs_a_decoder_with_buckets(folder):
    batch = {"size": 4, "group_by": "npy.bucket"}
    with pytest.raises(wdspec.FieldError, match="needs a decoder with buckets"):
        global_batches(spec_of(folder, padded(batch), 1, 1))


def test_a_spec_with_packing_is_resumable(folder):
    spec = spec_of(folder, KINDS["packed"], ranks=4, workers=1, epoch={"batches": 3})
    assert_resumable(lambda: wdspec.loader(spec, num_workers=0, rank=0, world_size=2))


def test_a_missing_library_is_not_a_sample_error(folder, monkeypatch):
    def read(data, extension):
        raise wdspec.UsageError("a library is not installed")

    monkeypatch.setattr("wdspec.fields.codecs.image_decoder.image_size", read)
    write_shard(folder / "picture.tar", [("a", {"jpg": b"\xff\xd8\xff"})])
    spec = spec_of(folder, {"cost": "jpg.width", "max_cost": 9}, 1, 1, errors={"skip": True})
    spec["dataset"] = [{"shards": f"{folder}/picture.tar"}]
    with pytest.raises(wdspec.UsageError, match="a library is not installed"):
        global_batches(spec)


def fewest_batches(costs, most, size):
    """The least number of batches with n × the largest cost up to `most`, over all ways to divide the samples."""
    if not costs:
        return 0
    first, rest = costs[0], costs[1:]
    return 1 + min(
        fewest_batches([cost for at, cost in enumerate(rest) if at not in chosen], most, size)
        for count in range(len(rest) + 1)
        for chosen in combinations(range(len(rest)), count)
        if count < size and (count + 1) * max([first, *(rest[at] for at in chosen)]) <= most
    )


@pytest.mark.parametrize("seed", range(30))
def test_no_plan_has_fewer_padded_batches(seed):
    draw = random.Random(seed)
    costs, size = [draw.randint(1, 12) for _ in range(draw.randint(1, 7))], draw.choice([2, 3, 99])
    rules = WindowRules(draw.randint(12, 30), max_size=size)
    planned = plan_window(np.array(costs, float), np.zeros((len(costs), 0)), rules)
    assert len(planned) == fewest_batches(costs, rules.max_cost, size)


@pytest.mark.parametrize("kind", ["integers", "fractions", "huge"])
def test_best_fit_matches_a_plain_loop(kind):
    draw = np.random.default_rng(4)
    for _ in range(20):
        costs = np.clip(draw.lognormal(4, 1, 200), 1, 900)
        costs = {"integers": np.ceil(costs), "fractions": costs, "huge": np.ceil(costs) * 1e12}[kind]
        most = 1000 * (1e12 if kind == "huge" else 1)
        size = int(draw.integers(2, 20))
        batches = []
        for at in sorted(range(200), key=lambda at: (-costs[at], at)):
            fitting = [
                batch for batch in batches if len(batch) < size and costs[batch].sum() + costs[at] <= most
            ]
            if not fitting:
                fitting = [[]]
                batches += fitting
            max(fitting, key=lambda batch: costs[batch].sum()).append(at)  # the first one of those
        rules = WindowRules(most, padded=False, max_size=size)
        assert plan_window(costs, np.zeros((200, 0)), rules) == [sorted(batch) for batch in batches]


def test_most_slots_choose_the_same_group_in_a_turn():
    """20 slots with groups of 12 values, of other frequencies; a group comes once for each full batch of it."""
    rules, taken = WindowRules(max_size=8), {0: [], 600: []}
    for slot in range(20):
        draw = random.Random(slot)
        values = draw.choices(range(12), weights=range(4, 16), k=4000)
        samples = [(1, (), 0, value, place) for place, value in enumerate(values)]
        for ahead, of_slots in taken.items():
            batches = list(gather_groups(samples, rules, "drop", lambda left: None, ahead, key=7))
            assert all(len(batch) == 8 and len({entry[3] for entry in batch}) == 1 for batch in batches)
            places = [entry[4] for batch in batches for entry in batch]
            assert len(places) == len(set(places)) == sum(n - n % 8 for n in Counter(values).values())
            of_slots.append([batch[0][3] for batch in batches[:300]])
    agreement = {
        ahead: sum(Counter(turn).most_common(1)[0][1] / 20 for turn in zip(*of_slots, strict=True)) / 300
        for ahead, of_slots in taken.items()
    }
    assert agreement[600] > 0.85
    assert agreement[0] < 0.35


def write_lines(folder, lines):
    text = "".join(json.dumps({"__key__": f"{at}", **line}) + "\n" for at, line in enumerate(lines))
    (folder / "lines.jsonl").write_text(text, encoding="utf-8")
    return [{"name": "lines", "shards": f"{folder}/lines.jsonl"}]


def first_batch(sources, batch, **keys):
    spec = {
        "dataset": sources,
        "epoch": "pass",
        "batch": batch,
        "elastic": {"ranks": 1, "workers": 1},
        **keys,
    }
    with wdspec.loader(spec, num_workers=0) as loader:
        return next(iter(loader)), loader.stats().sources["lines"]


PACKED = {"pack": {"fields": "ids", "length": 6}, "window": 10}


@pytest.mark.parametrize(
    ("values", "row"),
    [
        ([[1, 2], [1.5, 2.5]], [1, 2, 1.5, 2.5, 0, 0]),
        ([[1.5], [2**24 + 1]], [2**24 + 1, 1.5, 0, 0, 0, 0]),
        ([[True, False], [7, 8]], [1, 0, 7, 8, 0, 0]),
        ([[], [2**24 + 1, 2]], [2**24 + 1, 2, 0, 0, 0, 0]),
    ],
)
def test_lists_of_a_row_get_a_common_type(tmp_path, values, row):
    batch = {**PACKED, "cost": "max(ids.length, 1)"}
    found, _ = first_batch(write_lines(tmp_path, [{"ids": each} for each in values]), batch)
    assert sorted(found["ids"][0].tolist()) == sorted(row)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            [[[1, 2], [3, 4]], [5, 6]],
            r"cannot be joined: the values differ in type or in their number of axes",
        ),
        ([[[1, 2], [3, 4]], [[5], [6]]], r"the elements differ in shape: \(2, 2\) int64, \(2, 1\) int64"),
    ],
)
def test_samples_whose_elements_differ_in_shape_are_not_joined(tmp_path, values, message):
    with pytest.raises(wdspec.FieldError, match=message) as raised:
        first_batch(write_lines(tmp_path, [{"ids": each} for each in values]), PACKED)
    assert raised.value.key == "1"


def test_arrays_of_a_row_have_one_type(tmp_path, monkeypatch):
    (tmp_path / "narrow.py").write_text(
        "import numpy as np\n"
        "def narrow(ids):\n    return np.array(ids, np.uint8 if max(ids) < 256 else np.int64)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    sources = write_lines(tmp_path, [{"ids": [1, 2]}, {"ids": [300_001, 2]}])
    with pytest.raises(wdspec.FieldError, match=r"\(2\) uint8, \(2\) int64; make them alike in `map`"):
        first_batch(sources, PACKED, map={"ids": "narrow:narrow"})


@pytest.mark.parametrize(("pad", "tokens"), [({"limit": 2}, 3), ({"length": 3}, 4), ({"multiple": 8}, 5)])
def test_tokens_that_padding_cuts_off_are_not_counted(tmp_path, pad, tokens):
    sources = write_lines(tmp_path, [{"ids": [1, 2, 3, 4]}, {"ids": [1]}])
    found, counts = first_batch(sources, {"size": 2, "collate": {"ids": {"pad": pad}}})
    assert int(found["ids"].mask.sum()) == counts.tokens == tokens


def test_values_that_are_no_numbers_are_one_group(tmp_path):
    sources = write_lines(tmp_path, [{"v": float("nan")} for _ in range(4)])
    found, _ = first_batch(sources, {"size": 4, "group_by": "v - 1", "window": 8, "ragged": "list"})
    assert len(found["__key__"]) == 4


def test_integers_that_no_float_holds_are_groups(tmp_path):
    sources = write_lines(tmp_path, [{"v": 10**400} for _ in range(4)])
    found, _ = first_batch(sources, {"size": 4, "group_by": "v", "window": 8, "ragged": "list"})
    assert len(found["__key__"]) == 4


def test_a_group_is_no_tensor(tmp_path, monkeypatch):
    (tmp_path / "tensors.py").write_text(
        "import torch\ndef one(sample):\n    return {**sample, 'w': torch.ones(1)}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    batch = {"size": 4, "group_by": "w", "window": 8, "ragged": "list"}
    with pytest.raises(wdspec.FieldError, match=r"`w` is a Tensor; a group has a text, a number or null"):
        first_batch(write_lines(tmp_path, [{"v": 1}]), batch, map={"call": "tensors:one", "sets": "w"})


def test_a_cost_function_may_return_a_number_of_numpy(tmp_path, monkeypatch):
    (tmp_path / "costing.py").write_text(
        "import numpy as np\ndef cost(sample):\n    return np.int64(sample['v'])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    batch = {"cost": "costing:cost", "max_cost": 9, "padded": False, "ragged": "list"}
    found, _ = first_batch(write_lines(tmp_path, [{"v": 4}, {"v": 5}]), batch)
    assert found["__cost__"] == 9


def test_the_remedy_for_a_sample_that_is_too_long_for_a_row_can_be_followed(tmp_path):
    with pytest.raises(wdspec.FieldError, match="set `overlong` to `drop`, `truncate` or `split`"):
        first_batch(write_lines(tmp_path, [{"ids": list(range(9))}]), PACKED)
