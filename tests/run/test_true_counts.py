"""Samples, cost and tokens by source are those that a plain loop over the received batches counts, at every step."""

import collections
import contextlib
import io
import itertools
import json
import tarfile
from fractions import Fraction

import numpy as np
import pytest
from speed import mostly_long

import wdspec
from wdspec.cli.state import describe_state
from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.topology import Topology
from wdspec.read.counts import Amount, count_tokens, token_fields
from wdspec.run.received import Receipts, add_up, decode, encode, received_in
from wdspec.run.state import TOTALS

COST = {"cost": "txt.length", "max_cost": 60, "window": 30, "ragged": "list"}
GROUPS = {"size": 4, "group_by": "txt.length > 10", "group_wait": 40, "window": 20, "ragged": "list"}
PACK = {"pack": {"fields": "ids", "length": 30, "cu_seqlens": "ends"}, "window": 30}
SPLIT = {**PACK, "overlong": "split", "pack": {**PACK["pack"], "length": 8}}
JOINED = {**PACK, "pack": {**PACK["pack"], "length": 12, "method": "concatenate"}}
LISTS = {"size": 4, "ragged": "list"}
PADDED = {"size": 4, "collate": {"ids": "pad"}, "ragged": "list"}
STAGE = {"call": "oracle_functions:by_length", "every": 20}
SCHEDULE = {"schedule": [{"at": 0, "shares": {"a": 1, "b": 1}}, {"at": 60, "shares": {"a": 1, "b": 5}}]}
PASS = {"epoch": "pass"}
SKIPS = {"defaults": {"errors": "skip", "rename": {"ids": "ids.npy"}, "extensions": "txt ids.npy cls"}}
KINDS = {
    "plain": {"batch": LISTS},
    "without batches": {"batch": None, "epoch": {"samples": 80}},
    "random": {"batch": LISTS, "mix": {"draw": "random"}},
    "turns": {"batch": LISTS, "mix": {"draw": "round_robin"}},
    "one source a batch": {"batch": LISTS, "mix": {"unit": "batch"}},
    "schedule": {"batch": LISTS, "mix": SCHEDULE},
    "skip": {"batch": LISTS, "skip": ["3..4", 9]},
    "cost": {"batch": COST},
    "cost and skip": {"batch": COST, "skip": ["3..4", 9]},
    "groups": {"batch": GROUPS},
    "pack": {"batch": PACK},
    "pack, samples are split": {"batch": SPLIT},
    "pack, samples are joined": {"batch": JOINED},
    "stage": {"stage": STAGE, "batch": LISTS},
    "stage and cost": {"stage": STAGE, "batch": COST},
    "pass": {"batch": LISTS, **PASS},
    "pass by cost": {"batch": COST, **PASS},
    "pass, packed": {"batch": SPLIT, **PASS},
    "errors": {"batch": LISTS, **SKIPS},
    "errors and cost": {"batch": COST, **SKIPS},
    "errors in a pass": {"batch": LISTS, **PASS, **SKIPS},
    "padded ids": {"batch": PADDED},
    "padded ids and cost": {"batch": {**COST, "collate": {"ids": "pad"}}},
    "token files": {"batch": 4, "tokens": {"length": 16}},
    "documents": {"batch": {"size": 4, "ragged": "list"}, "tokens": {"eos": 0}},
    "documents, packed": {
        "batch": {"pack": {"fields": "tokens", "length": 96, "cu_seqlens": "ends"}, "window": 20},
        "tokens": {"eos": 0},
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Shards whose samples have ids that say where they start, and token files; every ninth class is damaged."""
    folder, rng = tmp_path_factory.mktemp("counts"), np.random.default_rng(0)
    for name, shard in itertools.product("abc", range(3)):
        with tarfile.open(folder / f"{name}-{shard}.tar", "w") as tar:
            for number in range(40):
                length = 1 + number * 7 % 11
                ids = io.BytesIO()
                np.save(ids, 100 * (1 + number) + np.arange(length))
                files = {
                    "txt": b"x" * length,
                    "ids.npy": ids.getvalue(),
                    "cls": b"?" if number % 9 == 4 else b"1",
                }
                for suffix, data in files.items():
                    member = tarfile.TarInfo(f"{name}{shard}{number:02d}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
        ids = rng.integers(0, 12, 700).astype(np.uint16)
        ids[-1] = 0
        np.save(folder / f"{name}-{shard}.npy", ids)
    return folder


def spec_of(folder, kind, **more):
    kind = dict(KINDS[kind])
    tokens = kind.pop("tokens", None)
    suffix, own = ("npy", {"tokens": tokens}) if tokens else ("tar", {})
    sources = [
        {"name": name, "shards": f"{folder}/{name}-{{0..2}}.{suffix}", "weight": weight, "shuffle": 20, **own}
        for name, weight in (("a", 2), ("b", 1))
    ]
    if "schedule" in kind.get("mix", {}) or kind.get("epoch") == "pass":
        for source in sources:
            del source["weight"]
    usual = {} if tokens else {"defaults": {"rename": {"ids": "ids.npy"}, "extensions": "txt ids.npy"}}
    elastic = {"ranks": 2, "workers": 2}
    return {"dataset": sources, "elastic": elastic, "epoch": {"batches": 10}, **usual, **kind, **more}


class Loop:
    """Counts what batches have, by source."""

    def __init__(self):
        self.samples, self.cost, self.tokens = (collections.Counter() for _ in range(3))

    def add(self, batch, kind):
        if "ends" in batch:
            row, ends = batch["ids" if "ids" in batch else "tokens"][0], batch["ends"].tolist()
            for source, start, stop in zip(batch["__source__"], ends, ends[1:], strict=False):
                self.samples[source] += "ids" not in batch or int(row[start]) % 100 == 0
                self.cost[source] += stop - start
                self.tokens[source] += stop - start
            return
        rows = batch
        if isinstance(batch["__key__"], str):
            rows = {name: [value] for name, value in batch.items()}
        for at, source in enumerate(rows["__source__"]):
            if "__mask__" in rows and not rows["__mask__"][at]:
                continue
            self.samples[source] += 1
            if "tokens" in rows:
                self.tokens[source] += len(rows["tokens"][at])
            else:
                self.cost[source] += len(rows["txt"][at])
                self.tokens[source] += 1 + int(rows["__key__"][at][2:]) * 7 % 11

    def expected(self, kind, sources):
        has_cost = "cost" in kind or "pack" in kind
        has_tokens = "pack" in kind or "padded" in kind or "token" in kind or "documents" in kind
        return {
            name: (
                self.samples[name],
                self.cost[name] if has_cost else None,
                self.tokens[name] if has_tokens else None,
            )
            for name in sources
        }


@contextlib.contextmanager
def loaders_of(spec, world, workers, state=None, **load):
    loaders = [wdspec.loader(spec, num_workers=workers, rank=rank, world_size=world) for rank in range(world)]
    try:
        for loader in loaders if state is not None else ():
            loader.load_state_dict(json.loads(json.dumps(state)), **load)
        yield loaders
    finally:
        for loader in loaders:
            loader.close()


def added_up(loaders, sources):
    """What the stats of all ranks say, together."""
    stats = [loader.stats().sources for loader in loaders]
    found = {}
    for name in sources:
        each = [(own[name].received, own[name].received_cost, own[name].tokens) for own in stats]
        found[name] = tuple(None if None in column else sum(column) for column in zip(*each, strict=True))
    return found


def in_state(loaders, sources):
    """What the merged state of all ranks says."""
    state = wdspec.merge_states([loader.state_dict() for loader in loaders])
    total = add_up(list(received_in(json.loads(json.dumps(state))).values()))
    assert total is not None
    return state, {name: tuple(total[name]) for name in sources if name in total}


def run_leg(kind, loop, loaders, steps, sources="ab", every=1):
    """Read this many steps on all ranks, compare the counts after each, and return the state."""
    endless = [itertools.chain.from_iterable(itertools.repeat(loader)) for loader in loaders]
    per_step = loaders[0].run.items_per_step
    for number in range(steps):
        for each in endless:
            for _ in range(per_step):
                loop.add(next(each), kind)
        if number % every == 0 or number == steps - 1:
            assert added_up(loaders, sources) == loop.expected(kind, sources), number
            state, found = in_state(loaders, sources)
            assert found == loop.expected(kind, sources), number
    return state


LEGS = ((1, 0, 7), (2, 0, 6), (1, 2, 9), (2, 0, 5), (1, 0, 12))


TWO_AT_ONCE = {
    "cost and skip",
    "pack",
    "stage and cost",
    "errors and cost",
    "errors in a pass",
    "padded ids and cost",
}
"""Kinds that join two others, or are like one."""


@pytest.mark.parametrize("kind", mostly_long(KINDS, KINDS.keys() - TWO_AT_ONCE))
def test_counts_are_those_of_a_plain_loop_over_resumes_on_any_topology(kind, folder):
    spec, loop, state = spec_of(folder, kind), Loop(), None
    for world, workers, steps in LEGS:
        with loaders_of(spec, world, workers, state) as loaders:
            state = run_leg(kind, loop, loaders, steps)
    assert sum(loop.samples.values()) > 60


@pytest.mark.parametrize("kind", ["plain", "cost", "pack, samples are split", "pass", "padded ids", "errors"])
def test_counts_from_threads_are_those_of_a_plain_loop(kind, folder):
    spec, loop = spec_of(folder, kind, loader={"kind": "threads"}), Loop()
    with loaders_of(spec, 1, 2) as loaders:
        state = run_leg(kind, loop, loaders, 23)
    with loaders_of(spec, 2, 1, state) as loaders:
        run_leg(kind, loop, loaders, 10)


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        *((kind, 0) for kind in ("random", "schedule", "cost", "token files")),
        *((kind, 2) for kind in ("plain", "stage", "pack, samples are split")),
        *(
            pytest.param(kind, 0, marks=pytest.mark.long)
            for kind in ("plain", "stage", "pack, samples are split")
        ),
        *(
            pytest.param(kind, 2, marks=pytest.mark.long)
            for kind in ("random", "schedule", "cost", "token files")
        ),
    ],
)
def test_counts_stay_true_when_shares_are_set_and_steps_are_skipped(kind, workers, folder):
    spec, loop, state = spec_of(folder, kind), Loop(), None
    for world, shares in ((1, {"a": 1, "b": 3}), (2, {"b": 1}), (1, {"a": 3, "b": 1})):
        with loaders_of(spec, world, workers, state) as loaders:
            run_leg(kind, loop, loaders, 4)
            for loader in loaders:
                loader.set_shares(shares)
            run_leg(kind, loop, loaders, 7)
            for loader in loaders:
                loader.skip_steps(loader.state_dict()["batch"] + 2, loader.state_dict()["batch"] + 4)
            state = run_leg(kind, loop, loaders, 6)
            for loader in loaders:
                loader.set_shares({"a": 1, "b": 1}, after=3)
            state = run_leg(kind, loop, loaders, 2)


def changes(spec, kind):
    """The spec with other shares, with another source, and without the first one."""
    first, second = spec["dataset"]
    third = {**second, "name": "c", "shards": second["shards"].replace("b-", "c-")}
    yield "ab", {**spec, "dataset": [{**first, "weight": 1}, {**second, "weight": 4}]}
    yield "abc", {**spec, "dataset": [first, second, third]}
    yield "abc", {**spec, "dataset": [second, third]}


@pytest.mark.parametrize(
    "kind",
    [
        "plain",
        "random",
        "turns",
        "cost",
        "groups",
        "pack, samples are split",
        "stage",
        "errors",
        "token files",
    ],
)
@pytest.mark.filterwarnings("ignore:decode, scale, rename")
def test_counts_stay_true_over_changes_of_the_spec_also_of_sources_that_were_removed(kind, folder):
    spec, loop = spec_of(folder, kind, skip=[2]), Loop()
    with loaders_of(spec, 1, 0) as loaders:
        state = run_leg(kind, loop, loaders, 9)
    for number, (names, changed) in enumerate(changes(spec, kind)):
        with loaders_of(changed, 1 + number % 2, 0, state, allow_changed=True) as loaders:
            kept = [source.name for source in loaders[0].plan.sources]
            for _ in range(6):
                state = run_leg(kind, loop, loaders, 1, kept)
            _, found = in_state(loaders, names)
            assert found == loop.expected(kind, names)
    shown = {each["source"]: each["samples"] for each in describe_state(state)["sources"]}
    assert shown == dict(loop.samples)


def test_a_spec_that_gets_a_cost_has_no_cost_where_it_is_unknown(folder):
    plain, loop = spec_of(folder, "plain"), Loop()
    with loaders_of(plain, 1, 0) as loaders:
        state = run_leg("plain", loop, loaders, 5)
    with loaders_of(spec_of(folder, "cost"), 1, 0, state, allow_changed=True) as [loader]:
        for batch in itertools.islice(loader, 2):
            loop.add(batch, "cost")
        stats = loader.stats()
        assert {name: each.received for name, each in stats.sources.items()} == dict(loop.samples)
        assert [each.received_cost for each in stats.sources.values()] == [None, None]
        assert not any(name.startswith("received_cost") for name in stats.flat())


def test_ranks_that_share_samples_of_a_slot_count_all_of_it(folder):
    batch = {"global_size": 8, "ragged": "list"}
    spec, loop, state = spec_of(folder, "plain", batch=batch), Loop(), None
    for world, steps in ((4, 6), (1, 5), (8, 4)):
        with loaders_of(spec, world, 0, state) as loaders:
            endless = [itertools.chain.from_iterable(itertools.repeat(loader)) for loader in loaders]
            for _ in range(steps):
                for each in endless:
                    loop.add(next(each), "plain")
                state, found = in_state(loaders, "ab")
                assert found == loop.expected("plain", "ab")
                assert {loader.stats().of_ranks for loader in loaders} <= {"0 of 2", "1 of 2", "0 to 1 of 2"}


@pytest.mark.parametrize("kind", ["pass", "pass by cost", "errors in a pass"])
def test_a_pass_that_was_left_early_counts_what_it_gave(kind, folder):
    spec, loop, state = spec_of(folder, kind), Loop(), None
    for world in (1, 2):
        with loaders_of(spec, world, 0, state) as loaders:
            for steps in (3, 1, 4):
                for loader in loaders:
                    for batch in itertools.islice(loader, steps):
                        loop.add(batch, kind)
                state, found = in_state(loaders, "ab")
                assert found == loop.expected(kind, "ab") == added_up(loaders, "ab")


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_that_are_only_read_ahead_do_not_count(workers, folder):
    with loaders_of(spec_of(folder, "cost"), 1, workers) as [loader]:
        assert {each.received for each in loader.stats().sources.values()} == {0}
        next(iter(loader))
        stats = loader.stats().sources.values()
        assert sum(each.received for each in stats) <= sum(each.delivered for each in stats)
        assert sum(each.received_cost for each in stats) < 130


@pytest.mark.parametrize("kind", ["cost", "without batches", "pass", "pack, samples are split"])
def test_each_item_of_a_step_counts_when_it_is_yielded(kind, folder):
    batch = {"batch": {**LISTS, "accumulate": True}} if kind == "pass" else {}
    spec, loop, state = spec_of(folder, kind, **batch), Loop(), None
    for steps in (3, 4, 3):
        with loaders_of(spec, 1, 0, state) as loaders:
            for item in itertools.islice(loaders[0], steps):
                loop.add(item, kind)
                assert added_up(loaders, "ab") == loop.expected(kind, "ab")
                state, found = in_state(loaders, "ab")
                assert found == loop.expected(kind, "ab")


@pytest.mark.parametrize("at", [5, 64])  # also as parts are added up
def test_a_step_that_is_interrupted_while_it_is_counted_counts_once(at, folder, monkeypatch):
    spec, loop, calls, add = spec_of(folder, "cost and skip"), Loop(), itertools.count(1), Receipts.add

    def add_and_stop(self, *part):
        add(self, *part)
        if next(calls) == at:
            raise KeyboardInterrupt  # as Ctrl-C does in the last instruction

    monkeypatch.setattr(Receipts, "add", add_and_stop)
    with loaders_of(spec, 1, 0) as loaders:
        batches = itertools.chain.from_iterable(itertools.repeat(loaders[0]))
        try:
            for batch in batches:
                loop.add(batch, "cost and skip")
        except KeyboardInterrupt:
            for batch in itertools.islice(itertools.chain.from_iterable(itertools.repeat(loaders[0])), 9):
                loop.add(batch, "cost and skip")
        assert added_up(loaders, "ab") == loop.expected("cost and skip", "ab")


def test_an_item_of_a_step_that_a_state_is_in_counts_once_after_shares_were_set(folder):
    spec, loop, state = spec_of(folder, "without batches"), Loop(), None
    for steps, shares in ((3, {"a": 1, "b": 3}), (2, {"a": 1}), (4, {"b": 1})):
        with loaders_of(spec, 1, 0, state) as loaders:
            for item in itertools.islice(loaders[0], steps):
                loop.add(item, "plain")
                assert added_up(loaders, "ab") == loop.expected("plain", "ab")
            loaders[0].set_shares(shares)
            for item in itertools.islice(loaders[0], 4):
                loop.add(item, "plain")
                state, found = in_state(loaders, "ab")
                assert found == loop.expected("plain", "ab")


@pytest.mark.parametrize("kind", ["plain", "random", "schedule", "skip", "token files", "pass"])
def test_states_whose_counts_follow_from_the_position_do_not_store_them(kind, folder):
    with loaders_of(spec_of(folder, kind), 1, 0) as loaders:
        state = run_leg(kind, Loop(), loaders, 13)
    assert state["version"] == 5
    assert not any(TOTALS in entry for entry in state["ranks"].values())


@pytest.mark.parametrize("sort", ["cost", "pack"])
def test_counts_add_at_most_a_fifth_to_small_states(sort, folder):
    names = [f"s{number}" for number in range(6)]
    source = {"shards": f"{folder}/a-{{0..2}}.tar", "rename": {"ids": "ids.npy"}, "extensions": "txt ids.npy"}
    spec = {
        "dataset": [{"name": name, **source} for name in names],
        "elastic": {"ranks": 4, "workers": 8},
        "batch": COST if sort == "cost" else PACK,
    }
    with loaders_of(spec, 1, 0) as [loader]:
        for _ in itertools.islice(loader, 4 * 256):
            pass
        state = loader.state_dict()
    whole = sum(map(len, state["ranks"].values()))
    without = sum(len(entry.partition(TOTALS)[0]) for entry in state["ranks"].values())
    assert whole <= 1.2 * without, (whole, without)


def test_a_state_without_counts_has_no_numbers_and_never_zeros(folder):
    with loaders_of(spec_of(folder, "cost"), 1, 0) as loaders:
        state = run_leg("cost", Loop(), loaders, 6)
    state["ranks"] = {rank: entry.partition(TOTALS)[0] for rank, entry in state["ranks"].items()}
    with loaders_of(spec_of(folder, "cost"), 1, 0, state) as [loader]:
        for _ in itertools.islice(loader, 4):
            pass
        stats = loader.stats()
        assert [(each.received, each.received_cost) for each in stats.sources.values()] == [(None, None)] * 2
        assert not any(name.startswith("received/") for name in stats.flat())
        assert {each["samples"] for each in describe_state(loader.state_dict())["sources"]} == {None}


def test_states_of_a_rank_that_does_not_know_what_it_received_merge_with_others(folder):
    spec = spec_of(folder, "cost")
    with loaders_of(spec, 1, 0) as loaders:
        state = run_leg("cost", Loop(), loaders, 6)
    changed = {**spec, "dataset": spec["dataset"][1:]}
    with loaders_of(changed, 2, 0, state, allow_changed=True) as loaders:
        first, other = (loader.state_dict() for loader in loaders)
    assert first.pop("removed") == other["removed"] == ["a"]
    first["ranks"] = {rank: entry.partition(TOTALS)[0] for rank, entry in first["ranks"].items()}
    merged = received_in(wdspec.merge_states([first, other]))
    assert merged[0] is None
    assert merged[1]["a"].samples > 0


def test_damaged_counts_are_refused(folder):
    with loaders_of(spec_of(folder, "cost"), 1, 0) as loaders:
        state = run_leg("cost", Loop(), loaders, 6)
    for text in ("!", "00", state["ranks"]["0"].partition(TOTALS)[2] + "00000"):
        ranks = {**state["ranks"], "0": state["ranks"]["0"].partition(TOTALS)[0] + TOTALS + text}
        with (
            pytest.raises(wdspec.UsageError, match="counts of canonical rank 0 cannot be decoded"),
            loaders_of(spec_of(folder, "cost"), 1, 0, {**state, "ranks": ranks}),
        ):
            pass


@pytest.mark.parametrize(
    "amounts",
    [
        {"a": Amount(3, 5.5, None), "b": Amount(0, 0, None)},
        {"a": Amount(3, 3, 3), "b": Amount(2**60, 2**60, 1)},
        {"a": Amount(3, None, 7), "b": Amount(1, None, None)},
        {"a": Amount(1, 0.1, 0), "b": Amount(2, None, 4)},
    ],
)
def test_amounts_round_trip_through_text(amounts):
    names = list(amounts)
    text = encode(names, amounts)
    assert decode(text, names) == amounts
    assert not {TOTALS, ":"} & {*text}


@pytest.mark.parametrize("kind", ["even", "random", "round_robin"])
@pytest.mark.parametrize("unit", ["sample", "batch"])
def test_draws_are_counted_as_they_are_drawn(kind, unit):
    rng = np.random.default_rng(1)
    for _ in range(60):
        count = int(rng.integers(1, 7))
        weights = rng.integers(0, 9, count) + np.eye(count, dtype=int)[0]
        shares = [Fraction(int(weight), int(weights.sum())) for weight in weights]
        topology = Topology(int(rng.integers(1, 4)), int(rng.integers(1, 5)))
        size, offset = int(rng.integers(1, 9)), int(rng.integers(0, 2**40))
        parts = [
            Draws(shares, 7, topology, size, kind, unit, start, start and offset) for start in (0, 5, 17)
        ]
        for draws in (parts[0], parts[2], ScheduledDraws(parts)):
            rank, worker = int(rng.integers(topology.ranks)), int(rng.integers(topology.workers))
            first, steps = int(rng.integers(17, 50)), int(rng.integers(1, 40))
            drawn = draws.batches(rank, worker, first, steps)
            assert draws.counts(rank, worker, first, steps).tolist() == [
                int((drawn == source).sum()) for source in range(count)
            ]


def test_a_list_of_no_images_is_no_list_of_tokens():
    spec = wdspec.load(
        {
            "dataset": [{"shards": "a.tar"}],
            "batch": {"size": 2, "collate": {"pictures": "pad", "ids": {"pad": {"length": 3}}}},
        }
    )
    [fields] = token_fields(spec).values()
    samples = [{"pictures": [], "ids": [1, 2]}, {"pictures": [np.zeros((3, 4, 4))], "ids": np.arange(5)}]
    samples += [{"pictures": [], "ids": []}]
    assert [count_tokens(sample, fields) for sample in samples] == [2, 3, 0]
    assert count_tokens({"pictures": [np.zeros(3)]}, fields) is None
