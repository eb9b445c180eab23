"""Windows and stages: sections of a slot that are drawn by the shares with which they begin, alone and together."""

import collections
import contextlib
import io
import itertools
import json
import tarfile

import numpy as np
import pytest
from speed import mostly_long

import wdspec
from wdspec.run.state import read_entry

ELASTIC = {"ranks": 2, "workers": 2}
COST = {"cost": "txt.length", "max_cost": 40, "window": 30, "ragged": "list"}
GROUPS = {
    "size": 4,
    "group_by": "txt.length > 10",
    "group_wait": 40,
    "window": 20,
    "ragged": "list",
}
PACK = {"pack": {"fields": "ids", "length": 30}, "window": 30}
STAGE = {"call": "oracle_functions:by_length", "every": 20}
KINDS = {
    "cost": {"batch": COST},
    "groups": {"batch": GROUPS},
    "pack": {"batch": PACK},
    "stage": {"stage": STAGE, "batch": {"size": 4, "ragged": "list"}},
    "stage and cost": {"stage": STAGE, "batch": COST},
    "stage and groups": {"stage": STAGE, "batch": GROUPS},
    "stage and pack": {"stage": STAGE, "batch": PACK},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sections")
    for name, shard in itertools.product("ab", range(3)):
        with tarfile.open(folder / f"{name}-{shard}.tar", "w") as tar:
            for number in range(40):
                length = 1 + number * 7 % 11
                ids = io.BytesIO()
                np.save(ids, np.arange(length))
                for suffix, data in (("txt", b"x" * length), ("ids.npy", ids.getvalue())):
                    member = tarfile.TarInfo(f"{name}{shard}{number:02d}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return folder


def spec_of(folder, **more):
    sources = [
        {
            "name": name,
            "shards": f"{folder}/{name}-{{0..2}}.tar",
            "weight": weight,
            "rename": {"ids": "ids.npy"},
        }
        for name, weight in (("a", 2), ("b", 1))
    ]
    return {"dataset": sources, "elastic": ELASTIC, "epoch": {"batches": 10}, **more}


def read(spec, stop, workers=0, sets=(), state=None, first=0):
    """The items from `first` on, their states, and what `set_shares` returned; `sets`: item → shares set before it."""
    items, states, starts = [], [], []
    with wdspec.loader(spec, num_workers=workers, rank=0, world_size=1) as loader:
        if state is not None:
            loader.load_state_dict(state)
        endless = itertools.chain.from_iterable(itertools.repeat(loader))
        for number in range(first, stop):
            if number in sets:
                starts.append(loader.set_shares(sets[number]))
            batch = next(endless)
            items.append((tuple(batch["__key__"]), batch.get("__cost__")))
            states.append(json.loads(json.dumps(loader.state_dict())))
    return items, states, starts


SETS = {12: {"a": 1}, 34: {"a": 1, "b": 5}, 36: {"b": 1}, 60: {"a": 1, "b": 1}}


@pytest.mark.parametrize("between", mostly_long([20, 7], [20]))
@pytest.mark.parametrize("kind", KINDS)
def test_shares_that_are_set_give_the_same_batches_with_any_workers_and_after_every_resume(
    kind, between, folder
):
    spec = spec_of(folder, **KINDS[kind])
    whole, states, starts = read(spec, 100, sets=SETS)
    assert len({key[0] for keys, _ in whole for key in keys}) == 2
    assert starts == sorted(starts)
    for workers in (2,) if between == 20 else (1, 2):
        assert read(spec, 100, workers, SETS)[0] == whole
    for cut in range([*KINDS].index(kind), 90, between):
        later = {at: shares for at, shares in SETS.items() if at > cut}
        assert read(spec, 100, 0, later, states[cut], cut + 1)[0] == whole[cut + 1 :], cut


def test_the_input_of_a_stage_is_drawn_by_the_shares_of_the_window_that_needs_it(folder):
    sets = {3: {"b": 1}, 10: {"a": 1}, 11: {"a": 1, "b": 3}, 30: {"b": 1}}
    whole, _, _ = read(spec_of(folder, batch=COST), 40, sets=sets)
    spec = spec_of(folder, batch=COST, stage={"call": "oracle_functions:mark", "every": COST["window"]})
    staged, states, _ = read(spec, 40, sets=sets)
    assert staged == whole
    for cut in range(2, 36, 3):
        later = {at: shares for at, shares in sets.items() if at > cut}
        assert read(spec, 40, 0, later, states[cut], cut + 1)[0] == whole[cut + 1 :], cut


def read_part(spec, items, state=None):
    """The keys of the next items of a run, and the states after each of them."""
    keys, states = [], []
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        if state is not None:
            loader.load_state_dict(state, allow_changed=True)
        for batch in itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader)), items):
            keys.append(list(batch["__key__"]))
            states.append(json.loads(json.dumps(loader.state_dict())))
    return keys, states


def read_changed(specs, cuts, stop):
    """The keys of each item of a run whose spec changes before items `cuts`."""
    keys, states = [], [None]
    for spec, cut in zip(specs, [*cuts, stop], strict=True):
        more, states = read_part(spec, cut - len(keys), states[-1])
        keys += more
    return keys


CHANGES = ({"weight": 9}, {"shuffle": 3}, {"interleave": 1})


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        pytest.param(kind, change, marks=[] if n % 3 == m else pytest.mark.long)
        for n, kind in enumerate(KINDS)
        for m, change in enumerate(CHANGES)
    ],
)
def test_a_run_whose_spec_has_changed_resumes_exactly_after_every_later_step(kind, change, folder):
    old = spec_of(folder, **KINDS[kind], elastic={"ranks": 1, "workers": 1})
    old["dataset"] = [{**source, "shuffle": 12, "interleave": 2} for source in old["dataset"]]
    new = {**old, "dataset": [{**old["dataset"][0], **change}, old["dataset"][1]]}
    _, states = read_part(old, 3)
    whole, states = read_part(new, 27, states[-1])
    for cut in range(1, 17):
        assert read_part(new, 27 - cut, states[cut - 1])[0] == whole[cut:], cut


@pytest.mark.parametrize("kind", KINDS)
def test_specs_that_change_within_a_window_and_soon_after_it_lose_and_repeat_nothing(kind, folder):
    old = spec_of(folder, **KINDS[kind], elastic={"ranks": 1, "workers": 1})
    old["dataset"] = [{**source, "shuffle": 8, "interleave": 1} for source in old["dataset"]]
    more, wide = (
        {**old, "dataset": [{**old["dataset"][0], **change}, old["dataset"][1]]}
        for change in ({"weight": 5}, {"weight": 4, "shuffle": 15})
    )
    for first in range(2, 8):
        cuts = [first, first + 2, first + 4]
        seen = itertools.chain.from_iterable(read_changed([old, more, wide, old], cuts, first + 8))
        assert max(collections.Counter(seen).values()) == 1, first


@pytest.mark.parametrize("kind", ["cost", "groups", "stage and cost"])
def test_states_stay_small_however_often_shares_are_set(kind, folder):
    spec = spec_of(folder, **KINDS[kind])
    sets = {at: {"a": 1 + at % 5, "b": 1} for at in range(4, 160)}
    _, states, _ = read(spec, 160, sets=sets)
    sizes = [len(json.dumps(state)) for state in states]
    assert max(sizes[20:]) < 1.4 * sizes[20]
    assert all(len(json.loads(state["shares"])) <= 2 for state in states)


def test_the_shares_of_a_loader_are_those_of_the_window_of_its_next_batch(folder):
    spec = spec_of(folder, batch={**COST, "max_size": 5})
    spec |= {"elastic": {"ranks": 1, "workers": 1}, "mix": {"schedule": [{"at": 0, "shares": {"a": 1}}]}}
    spec["mix"]["schedule"].append({"at": 90, "shares": {"b": 1}})
    for source in spec["dataset"]:
        del source["weight"]
    seen = collections.Counter()
    with wdspec.loader(spec, num_workers=0) as loader:
        endless = itertools.chain.from_iterable(itertools.repeat(loader))
        for number in range(60):
            if number == 40:
                loader.set_shares({"a": 1})
            shares = loader.shares
            assert {*next(endless)["__source__"]} == {name for name, share in shares.items() if share}
            seen[json.dumps(shares)] += 1
    assert len(seen) == 2


def test_a_run_whose_sources_are_all_gone_begins_new_windows(folder):
    spec = spec_of(folder, batch=COST)
    renamed = {**spec, "dataset": [{**each, "name": f"new {each['name']}"} for each in spec["dataset"]]}
    with wdspec.loader(spec, rank=0, world_size=1, num_workers=0) as loader:
        list(itertools.islice(loader, 3))
        state = loader.state_dict()
    with wdspec.loader(renamed, rank=0, world_size=1, num_workers=0) as loader:
        with pytest.warns(UserWarning, match="the source `a` is gone"):
            loader.load_state_dict(state, allow_changed=True)
        assert len(list(itertools.islice(loader, 5))) == 5


def test_a_window_that_gave_all_its_batches_is_not_read_again_after_a_resume(folder):
    spec = spec_of(folder, batch={**COST, "max_cost": 1000}, elastic={"ranks": 1, "workers": 1})
    with wdspec.loader(spec, num_workers=0) as loader:
        for number, _ in enumerate(itertools.islice(loader, 10), 1):
            *_, place = next(iter(read_entry(loader.state_dict(), 0, 1, lambda slot: True)))
            assert (place.turn, place.ordinal) == (number, 0)


@pytest.mark.parametrize("then", ["drop", "error"])
@pytest.mark.parametrize("kind", ["cost", "pack", "stage", "stage and cost"])
def test_a_source_is_never_read_more_than_max_passes(kind, then, folder):
    spec = spec_of(folder, **KINDS[kind])
    spec["dataset"][1] |= {"max_passes": 1.5, "samples": 120, "on_exhausted": then}
    seen = collections.Counter()
    with wdspec.loader(spec, num_workers=0) as loader:
        endless = itertools.chain.from_iterable(itertools.repeat(loader))
        expected = pytest.raises(wdspec.UsageError, match="would exceed `max_passes`")
        with contextlib.nullcontext() if then == "drop" else expected:
            for batch in itertools.islice(endless, 200):
                seen.update(batch["__key__"])
    from_b = sum(count for key, count in seen.items() if key[0] == "b")
    assert 60 < from_b <= 180
    assert "stage" in kind or max(count for key, count in seen.items() if key[0] == "b") <= 3


def test_stop_is_refused_where_ranks_would_not_end_together(folder):
    for kind in ("cost", "stage"):
        spec = spec_of(folder, **KINDS[kind])
        spec["dataset"][1] |= {"max_passes": 1.5, "samples": 120, "on_exhausted": "stop"}
        assert [problem.code for problem in wdspec.validate(spec) if problem.is_error] == ["E207"]


@pytest.mark.parametrize("limit", [1, 50, 119, 240, 1000])
def test_a_limit_ends_a_pass_by_cost(limit, folder):
    spec = spec_of(folder, batch=COST, epoch="pass", limit=limit, map="oracle_functions:add_size")
    whole = spec_of(folder, batch={"size": 4, "ragged": "list"}, epoch="pass") | {
        "elastic": {"ranks": 1, "workers": 1}
    }
    for source in (*spec["dataset"], *whole["dataset"]):
        del source["weight"]
    with wdspec.loader(whole, num_workers=0) as loader:
        keys = [key for batch in loader for key in batch["__key__"]]
    with wdspec.loader(spec, num_workers=0) as loader:
        batches = list(loader)
        assert len(batches) == len(loader)
    found = [key for batch in batches for key in batch["__key__"][: batch["__size__"]]]
    assert sorted(found) == sorted(keys[:limit])


@pytest.mark.parametrize("kind", ["stage and cost", "stage and pack"])
def test_what_a_stage_yields_is_measured_as_it_is(kind, folder):
    spec = spec_of(folder, **KINDS[kind])
    spec["stage"] = {"call": "oracle_functions:double", "every": 20}
    field = "txt" if kind == "stage and cost" else "ids"
    with wdspec.loader(spec, num_workers=0) as loader:
        for batch in loader:
            if field == "txt":
                lengths = [len(text) for text in batch["txt"]]
                assert batch["__cost__"] == len(lengths) * max(lengths) <= 40
            else:
                assert batch["__tokens__"] == batch["__cost__"] <= 30


def test_samples_of_a_stage_without_a_source_cannot_be_measured(folder, tmp_path, monkeypatch):
    (tmp_path / "bare_stage.py").write_text(
        "def bare(samples):\n    for sample in samples:\n        yield {'txt': sample['txt']}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = spec_of(folder, batch=COST, stage="bare_stage:bare")
    with (
        wdspec.loader(spec, num_workers=0) as loader,
        pytest.raises(wdspec.UsageError, match=r"no `__source__`.*copy `__key__`"),
    ):
        next(iter(loader))


@pytest.mark.parametrize("multiple", [1, 2, 3, 5])
@pytest.mark.parametrize("incomplete", ["keep", "merge"])
def test_batches_of_groups_keep_their_limits_and_multiples(multiple, incomplete, folder):
    batch = {**COST, "group_by": "txt.length > 5", "group_wait": 60, "size_multiple": multiple}
    spec = spec_of(folder, batch={**batch, "incomplete": incomplete}, epoch="pass")
    for source in spec["dataset"]:
        del source["weight"]
    with wdspec.loader(spec, num_workers=0) as loader:
        sizes = [(batch["__size__"], batch["__cost__"]) for batch in loader]
    assert max(cost for _, cost in sizes) <= 40
    assert all(size < multiple or size % multiple == 0 for size, _ in sizes)
    assert sum(size for size, _ in sizes) == 240


@pytest.mark.parametrize("batch", [{**COST, "max_size": 1}, {**GROUPS, "size": 1, "window": 5}])
def test_skipped_steps_leave_the_others_as_they_are_where_samples_are_damaged(batch, tmp_path):
    with tarfile.open(tmp_path / "a-0.tar", "w") as tar:
        for number in range(40):
            for suffix, data in (("txt", b"x" * (1 + number % 5)), ("json", b"{}" if number % 3 else b"{")):
                member = tarfile.TarInfo(f"{number:03d}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    dataset = [{"name": "a", "shards": f"{tmp_path}/a-{{0..0}}.tar", "shuffle": 0, "errors": "skip"}]
    spec = {"dataset": dataset, "batch": {**batch, "window": 20}, "elastic": {"ranks": 1, "workers": 1}}

    def keys(count, **more):
        with wdspec.loader({**spec, **more}, num_workers=0) as loader:
            return [tuple(batch["__key__"]) for batch in itertools.islice(loader, count)]

    whole = keys(40)
    assert keys(36, skip="3..6") == whole[:3] + whole[7:]
