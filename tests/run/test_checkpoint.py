"""State: JSON, exact on any legal topology, checked against the spec."""

import itertools
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shardmaking import keys, write_source

import wdspec
from wdspec.run.state import decode, encode, merge_states
from wdspec.spec.load import load


def through_json(state):
    return json.loads(json.dumps(state))


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    return {
        name: write_source(folder, name, n, m) for name, n, m in [("a", 5, 17), ("b", 1, 9), ("c", 3, 40)]
    }


def make_spec(shards, ranks=4, workers=6, **changes):
    spec = {
        "seed": 3,
        "elastic": {"ranks": ranks, "workers": workers},
        "dataset": [
            {"name": "a", "shards": shards["a"], "weight": 3, "shuffle": 50},
            {"name": "b", "shards": shards["b"], "weight": 1, "shuffle": 0, "select": "picks:most"},
            {"name": "c", "shards": shards["c"], "weight": 2, "shuffle": 20},
        ],
        "batch": 3,
        "epoch": {"batches": 7},
        **changes,
    }
    return load(spec)


def run(spec, ranks, workers, batches, state=None):
    """Global batches (sets of keys) from a state on, read by `ranks` loaders, and the merged state after them."""
    rows, states = [], []
    for rank in range(ranks):
        with wdspec.loader(spec, num_workers=workers, rank=rank, world_size=ranks) as loader:
            if state is not None:
                loader.load_state_dict(state)
            seen = []
            while len(seen) < batches:
                seen += keys(itertools.islice(loader, batches - len(seen)))
            rows.append(seen)
            states.append(through_json(loader.state_dict()))
    return [sorted(itertools.chain.from_iterable(row)) for row in zip(*rows, strict=True)], merge_states(
        states
    )


def test_a_run_resumes_exactly_through_changes_of_topology(shards):
    spec = make_spec(shards)
    expected, _ = run(spec, 1, 0, 40)
    seen, state = [], None
    for ranks, workers, batches in [
        (4, 2, 5),
        (2, 3, 9),
        (3, 1, 1),
        (4, 0, 8),
        (6, 0, 2),
        (1, 1, 2),
        (2, 2, 13),
    ]:
        part, state = run(spec, ranks, workers, batches, state)
        seen += part
    assert seen == expected


@pytest.mark.parametrize(
    "changes", [{"batch": None, "epoch": 40}, {"batch": {"size": 3, "accumulate": True}}]
)
def test_rank_counts_that_do_not_divide_the_canonical_ranks_need_a_divisible_batch(shards, changes):
    with pytest.raises(wdspec.UsageError, match=r"3 ranks cannot share 4 canonical ranks evenly.* of 2 or 4"):
        wdspec.loader(make_spec(shards, **changes), rank=0, world_size=3)


@given(
    st.lists(
        st.tuples(st.sampled_from((1, 2, 3, 6, 9, 18)), st.sampled_from((0,)), st.integers(1, 9)),
        min_size=1,
        max_size=4,
    )
)
@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_changes_of_ranks_keep_the_order(shards, legs):
    spec = make_spec(shards, ranks=6, workers=4)
    seen, state = [], None
    for ranks, workers, batches in legs:
        part, state = run(spec, ranks, workers, batches, state)
        seen += part
    assert seen == run(spec, 1, 0, sum(leg[2] for leg in legs))[0]


def test_state_can_be_loaded_into_a_live_loader_again_and_again(shards):
    spec = make_spec(shards, 1, 2)
    with wdspec.loader(spec, num_workers=2, rank=0, world_size=1) as loader:
        first = keys(itertools.islice(loader, 4))
        state = through_json(loader.state_dict())
        rest = keys(loader) + keys(loader)
        for _ in range(2):
            loader.load_state_dict(state)
            assert loader.epoch == 0
            assert keys(loader) + keys(loader) == rest
        assert len(first) + len(rest) == 14


def test_undelivered_prefetched_batches_are_delivered_after_resume(shards):
    spec = make_spec(shards, 1, 2)
    with wdspec.loader(spec, num_workers=2, prefetch_factor=4, rank=0, world_size=1) as loader:
        seen = keys(itertools.islice(loader, 2))
        state = through_json(loader.state_dict())
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        loader.load_state_dict(state)
        seen += keys(loader)
    with wdspec.loader(spec, num_workers=1, rank=0, world_size=1) as loader:
        assert keys(loader) == seen


def test_state_is_small_and_does_not_grow(shards):
    spec = make_spec(shards, 1, 2)
    with wdspec.loader(spec, rank=0, world_size=1) as loader:
        sizes = []
        for _ in range(6):
            list(loader)
            sizes.append(len(json.dumps(loader.state_dict())))
    assert max(sizes) - sizes[0] < 100
    assert sizes[-1] < 1024 * 2 * 3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seed": 4}, "seed: was 3, now 4"),
        ({"batch": 4}, "batch: was 3, now 4"),
        ({"mix": {"draw": "random"}}, 'mix: was "even", now "random"'),
        ({"defaults": {"order": "sequential"}}, 'sources.a.order: was "shuffled", now "sequential"'),
        ({"defaults": {"missing": "skip"}}, 'sources.a.missing: was "error", now "skip"'),
        ({"defaults": {"extensions": "txt cls"}}, "sources.a.extensions: was null"),
    ],
)
def test_an_order_change_is_detected_and_named(shards, changes, says):
    with wdspec.loader(make_spec(shards), rank=0, world_size=1) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with wdspec.loader(make_spec(shards, **changes), rank=0, world_size=1) as loader:
        with pytest.raises(wdspec.UsageError, match=says):
            loader.load_state_dict(state)
        loader.load_state_dict(state, allow_changed=True)
        assert len(keys(loader)) == 6


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"fields": ["cls"]}, r'sources.a.fields: was \["txt"\], now \["cls"\]'),
        ({"to_tuple": ["txt"]}, r'sources.a.to_tuple: was null, now \["txt"\]'),
        (
            {"defaults": {"missing": "skip", "rename": {"x": "txt"}}, "fields": ["x"]},
            "sources.a.rename.x: added",
        ),
    ],
)
def test_required_fields_are_part_of_the_order_if_samples_without_them_are_skipped(shards, changes, says):
    before = {"defaults": {"missing": "skip"}, "fields": ["txt"]}
    with wdspec.loader(make_spec(shards, **before), rank=0, world_size=1) as loader:
        state = loader.state_dict()
    with (
        wdspec.loader(make_spec(shards, **{**before, **changes}), rank=0, world_size=1) as loader,
        pytest.raises(wdspec.UsageError, match=says),
    ):
        loader.load_state_dict(state)


def changed_sources(shards, change):
    spec = {
        "dataset": [{"name": n, "shards": shards[n], "weight": 1, "shuffle": 20} for n in "ab"],
        "batch": 2,
        "epoch": {"batches": 5},
    }
    change(spec["dataset"])
    return spec


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.pop(1), "sources.b: removed"),
        (lambda d: d.append({**d[0], "name": "x"}), "sources.x: added"),
        (lambda d: d[0].update(weight=3), "sources.a.share: was 1/2, now 3/4"),
        (
            lambda d: d[0].update(shards=d[0]["shards"].replace("004", "003")),
            "sources.a.shards: was 5 shards, now 4",
        ),
        (
            lambda d: d[0].update(shards=d[0]["shards"].replace("a-", "./a-")),
            "still 5 shards, but different ones",
        ),
        (lambda d: d[0].update(shuffle=0), "sources.a.shuffle: was 16, now 1"),
    ],
)
def test_a_change_of_sources_is_detected_and_can_be_allowed(shards, change, says):
    with wdspec.loader(changed_sources(shards, lambda d: None), rank=0, world_size=1) as loader:
        list(loader)
        state = through_json(loader.state_dict())
    with wdspec.loader(changed_sources(shards, change), rank=0, world_size=1) as loader:
        with pytest.raises(wdspec.UsageError, match=says):
            loader.load_state_dict(state)
        loader.load_state_dict(state, allow_changed=True)
        assert loader.epoch == 1
        assert len(keys(loader)) == 5


@pytest.mark.parametrize("given", [3, 16, 31])
@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.append({**d[1], "name": "x", "weight": 0.02}),
        lambda d: d[0].update(weight=3),
        lambda d: d.pop(1),
        lambda d: d[0].update(shuffle=60),
        lambda d: d[0].update(interleave=2),
    ],
    ids=["a source", "a share", "a source less", "shuffle", "interleave"],
)
def test_an_allowed_change_repeats_and_loses_no_other_samples(shards, change, given):
    """Whole passes over a source of 85 samples, of which a part was read before the change."""

    def of_a(batches):
        return [
            (url, key)
            for batch in batches
            for url, key, source in zip(batch["__url__"], batch["__key__"], batch["__source__"], strict=True)
            if source == "a"
        ]

    with wdspec.loader({**changed_sources(shards, lambda d: None), "epoch": {"batches": 200}}) as loader:
        found = of_a(itertools.islice(loader, given))
        state = through_json(loader.state_dict())
    with wdspec.loader({**changed_sources(shards, change), "epoch": {"batches": 200}}) as loader:
        loader.load_state_dict(state, allow_changed=True)
        found += of_a(loader)
    assert len(found) >= 2 * 85
    assert len(set(found[:85])) == 85
    assert len(set(found[85:170])) == 85


def test_a_change_of_samples_only_warns(shards):
    with wdspec.loader(make_spec(shards), rank=0, world_size=1) as loader:
        state = loader.state_dict()
    with (
        wdspec.loader(make_spec(shards, map="picks:shout"), rank=0, world_size=1) as loader,
        pytest.warns(UserWarning, match="the order is the same"),
    ):
        loader.load_state_dict(state)


def test_an_error_about_the_canonical_topology_names_the_remedy(shards):
    with wdspec.loader(make_spec(shards, 4, 6), rank=0, world_size=1) as loader:
        state = loader.state_dict()
    with (
        wdspec.loader(make_spec(shards, 2, 6), rank=0, world_size=1) as loader,
        pytest.raises(wdspec.UsageError, match=r"4 ranks × 6 workers.*`elastic: \{ranks: 4, workers: 6\}`"),
    ):
        loader.load_state_dict(state)


def test_a_state_of_fewer_ranks_than_there_are_names_the_ranks_that_can_resume_it(shards):
    with wdspec.loader(make_spec(shards, elastic=None), rank=0, world_size=1, num_workers=0) as loader:
        state = loader.state_dict()
    with (
        wdspec.loader(make_spec(shards, elastic=None), rank=0, world_size=5, num_workers=0) as loader,
        pytest.raises(
            wdspec.UsageError, match=r"5 ranks cannot share .* world size of .*before a run starts"
        ),
    ):
        loader.load_state_dict(state)


@pytest.mark.parametrize(
    ("workers", "ranks", "said"),
    [
        (4, 1, r"; 4 workers cannot share 2 canonical workers evenly; use 1, 2 \(or 0\), with `elastic"),
        (3, 5, r"; 5 ranks cannot share .*; 3 workers cannot share 2 canonical workers evenly"),
        (1, 1, r"; write `elastic: \{ranks: 1, workers: 2\}` in the spec, which keeps the order"),
    ],
)
def test_a_state_of_fewer_workers_names_the_numbers_that_can_resume_it(shards, workers, ranks, said):
    spec = make_spec(shards, elastic=None)
    with wdspec.loader(spec, rank=0, world_size=1, num_workers=2) as loader:
        state = loader.state_dict()
    with (
        wdspec.loader(spec, rank=0, world_size=ranks, num_workers=workers) as loader,
        pytest.raises(wdspec.UsageError, match=said),
    ):
        loader.load_state_dict(state)
    if "write" in said:  # the remedy, followed literally
        elastic = {"ranks": 1, "workers": 2}
        with wdspec.loader(make_spec(shards, elastic=elastic), rank=0, world_size=1, num_workers=1) as loader:
            loader.load_state_dict(state)


def test_the_state_of_one_rank_cannot_restore_others(shards):
    spec = make_spec(shards)
    states = []
    for rank in range(2):
        with wdspec.loader(spec, rank=rank, world_size=2) as loader:
            list(loader)
            states.append(loader.state_dict())
    with wdspec.loader(spec, rank=0, world_size=1) as loader:
        with pytest.raises(wdspec.UsageError, match=r"holds the canonical ranks \[0, 1\].*merge_states"):
            loader.load_state_dict(states[0])
        loader.load_state_dict(merge_states(states))
        assert list(loader.state_dict()["ranks"]) == ["0", "1", "2", "3"]


def test_states_that_do_not_fit_together_are_rejected(shards):
    spec = make_spec(shards)

    def state(rank, batches, spec=spec):
        with wdspec.loader(spec, rank=rank, world_size=2) as loader:
            list(itertools.islice(loader, batches))
            return loader.state_dict()

    with pytest.raises(wdspec.UsageError, match="no states"):
        merge_states([])
    with pytest.raises(wdspec.UsageError, match=r"different batches: 2 \(ranks \[0, 1\]\) and 3"):
        merge_states([state(0, 2), state(1, 3)])
    with pytest.raises(wdspec.UsageError, match=r"ranks \[2, 3\] are missing"):
        merge_states([state(0, 2), state(0, 2)])  # what peers in a model's parallelism save
    other = {**(own := state(0, 2)), "ranks": {**own["ranks"], "1": own["ranks"]["0"]}}
    with pytest.raises(wdspec.UsageError, match="canonical rank 1 is in two states"):
        merge_states([own, other, state(1, 2)])
    with pytest.raises(wdspec.UsageError, match=r"ranks \[2, 3\] are missing"):
        merge_states([state(0, 2)])
    with pytest.raises(wdspec.UsageError, match="different specs:\n  seed: was 3, now 9"):
        merge_states([state(0, 2), state(1, 2, make_spec(shards, seed=9))])


@pytest.mark.parametrize("state", [{}, [], None, {"format": "other"}])
def test_values_that_are_not_states_are_rejected(shards, state):
    with (
        wdspec.loader(make_spec(shards), rank=0, world_size=1) as loader,
        pytest.raises(wdspec.UsageError, match="not a state of a wdspec"),
    ):
        loader.load_state_dict(state)


def without(name):
    def damage(state):
        del state[name]

    return damage


def entry_damaged(change):
    def damage(state):
        stamped, text = state["ranks"]["0"].split(":")
        state["ranks"]["0"] = f"{stamped}:{change(text)}"

    return damage


def of_slots(change):
    """Damage by a writer that understands the text of a rank."""

    def damage(text):
        slots = decode(text, 2, 3)
        change(slots)
        return encode(slots)

    return entry_damaged(damage)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (without("ranks"), "`ranks` is missing"),
        (without("order"), "`order` is missing"),
        (
            lambda state: state.update(order=state["order"].replace('"seed": 3', '"seed": 4')),
            "not match its `digest`",
        ),
        (lambda state: state.update(order="{"), "does not match its `digest`"),
        (
            lambda state: state.update(order="[" * 100_000),
            "does not match its `digest`",
        ),
        (lambda state: state.update(skip="[" * 100_000), "`skip` is '[[["),
        (lambda state: state.update(shares="[" * 100_000), "`shares` is '[[["),
        (lambda state: state["sources"].pop(), "`order` has others"),
        (lambda state: state.update(batch="3"), "`batch` is '3'"),
        (lambda state: state.update(given=1), "1 of 1 items"),
        (lambda state: state.update(ranks={}), "`ranks` is '{}'"),
        (lambda state: state["ranks"].update({"0": [1]}), "canonical rank '0' is '[1]'"),
        (lambda state: state["ranks"].update({"x": "1"}), "canonical rank 'x' is '1'"),
    ],
)
def test_a_damaged_state_is_rejected_and_its_damage_named(shards, damage, says):
    spec = make_spec(shards, 1, 2)
    with wdspec.loader(spec) as loader:
        next(iter(itertools.islice(loader, 4, None)))
        good, bad = through_json(loader.state_dict()), through_json(loader.state_dict())
        damage(bad)
        with pytest.raises(wdspec.WdspecError, match=f"the state is damaged: .*{re.escape(says)}"):
            loader.load_state_dict(bad, allow_changed=True)
        with pytest.raises(wdspec.WdspecError, match="the state is damaged"):
            merge_states([bad])
        loader.load_state_dict(good)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (of_slots(lambda slots: slots.__setitem__(1, None)), "slot 1 is missing"),
        (
            of_slots(lambda slots: [slot.pop() for slot in slots]),
            "the entry of canonical rank 0 cannot be decoded",
        ),
        (
            of_slots(lambda slots: slots.pop()),
            "the entry of canonical rank 0 cannot be decoded (a column has 1 values of 2)",
        ),
        (entry_damaged(lambda text: text[:-8]), "the entry of canonical rank 0 cannot be decoded"),
        (entry_damaged(lambda text: text + text), "the entry of canonical rank 0 cannot be decoded"),
        (entry_damaged(lambda text: ""), "the entry of canonical rank 0 cannot be decoded"),
        (entry_damaged(lambda text: "ä" + text[1:]), "the entry of canonical rank 0 cannot be decoded"),
        (
            entry_damaged(lambda text: text[:20] + text[20].swapcase() + text[21:]),
            "canonical rank 0 cannot be decoded",
        ),
    ],
)
def test_a_damaged_entry_is_detected_when_its_rank_resumes(shards, damage, says):
    spec = make_spec(shards, 1, 2)
    with wdspec.loader(spec) as loader:
        next(iter(itertools.islice(loader, 4, None)))
        good, bad = through_json(loader.state_dict()), through_json(loader.state_dict())
        damage(bad)
        for state in (bad, merge_states([bad])):
            with pytest.raises(wdspec.WdspecError, match=f"the state is damaged: .*{re.escape(says)}"):
                loader.load_state_dict(state, allow_changed=True)
        loader.load_state_dict(good)


def test_entries_of_different_batches_are_detected_without_merging(shards):
    """As files do that were put together by their names."""
    states = []
    for rank in range(2):
        with wdspec.loader(make_spec(shards), rank=rank, world_size=2) as loader:
            list(itertools.islice(loader, 2 + rank))
            states.append(loader.state_dict())
    mixed = {**states[0], "ranks": {**states[0]["ranks"], **states[1]["ranks"]}}
    with (
        wdspec.loader(make_spec(shards), rank=0, world_size=1) as loader,
        pytest.raises(wdspec.UsageError, match=r"canonical rank 2 was saved at another position.*same batch"),
    ):
        loader.load_state_dict(mixed)


def test_a_rank_reads_only_its_own_part(shards):
    """However many other ranks there are, and whatever became of theirs."""
    spec = make_spec(shards)
    with wdspec.loader(spec, rank=0, world_size=1) as loader:
        list(itertools.islice(loader, 3))
        state = loader.state_dict()
        expected = keys(loader)
    for rank in range(4):
        own = {**state, "ranks": {str(rank): state["ranks"][str(rank)], "99": state["ranks"]["0"][:30] + "?"}}
        with wdspec.loader(spec, rank=rank, world_size=4) as loader:
            loader.load_state_dict(through_json(own))
            assert keys(loader) == [batch[rank * 3 : rank * 3 + 3] for batch in expected]


def test_a_state_of_a_pass_can_start_an_endless_run(shards):
    dataset = [{"name": name, "shards": shards[name], "shuffle": 0} for name in "ac"]
    finite, endless = (make_spec(shards, 1, 2, dataset=dataset, epoch=e) for e in ("pass", {"batches": 7}))
    with wdspec.loader(finite) as loader:
        next(iter(itertools.islice(loader, 4, None)))
        state = through_json(loader.state_dict())
    with wdspec.loader(endless) as loader:
        loader.load_state_dict(state, allow_changed=True)
        again = through_json(loader.state_dict())
        loader.load_state_dict(again)
        assert len(keys(itertools.islice(loader, 2))) == 2


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_state_of_another_version_is_rejected(shards, version):
    with wdspec.loader(make_spec(shards), rank=0, world_size=1) as loader:
        state = {**loader.state_dict(), "version": version}
        with pytest.raises(
            wdspec.UsageError,
            match=rf"format version {version}, this wdspec reads versions 4 to 6; finish the run",
        ):
            loader.load_state_dict(state)


@pytest.mark.parametrize(
    ("ranks", "workers", "says"),
    [
        (5, 0, r"global batch of 12 samples evenly.* world size of 4 or 6 \(of 1, 2, 3, 4, 6, 12\)"),
        (1, 4, r"4 workers cannot share 6.*use 1, 2, 3, 6 \(or 0\)"),
    ],
)
def test_illegal_topologies_list_the_legal_ones(shards, ranks, workers, says):
    with pytest.raises(wdspec.UsageError, match=says):
        wdspec.loader(make_spec(shards), num_workers=workers, rank=0, world_size=ranks)


class TestInsideAStep:
    """Without `batch`, a step gives a rank one sample for each of its canonical ranks."""

    def spec(self, shards):
        return make_spec(shards, 4, 2, batch=None, epoch=40)

    def test_leaving_an_iteration_loses_and_repeats_nothing(self, shards):
        spec = self.spec(shards)
        expected = [sample["__key__"] for sample in wdspec.compile(spec, rank=0, world_size=2)]
        for make in (wdspec.compile, wdspec.loader):
            source = make(spec, rank=0, world_size=2)
            seen = [sample["__key__"] for stop in (1, 2, 4) for sample in itertools.islice(source, stop)]
            assert seen + [sample["__key__"] for sample in source] == expected

    def test_a_state_inside_a_step_needs_the_rank_count_that_saved_it(self, shards):
        states = []
        for rank in range(2):
            with wdspec.loader(self.spec(shards), rank=rank, world_size=2) as loader:
                list(itertools.islice(loader, 3 - rank))
                states.append(loader.state_dict())
        with pytest.raises(wdspec.UsageError, match="different positions in a step: 1 of 2 items"):
            merge_states(states)
        with wdspec.loader(self.spec(shards), rank=0, world_size=1) as loader:
            entries = states[0]["ranks"]
            state = {**states[0], "ranks": {**entries, "2": entries["0"], "3": entries["1"]}}
            with pytest.raises(
                wdspec.UsageError, match=r"inside a step: 1 of the 2 items .* gets 4 per step"
            ):
                loader.load_state_dict(state)

    def test_the_start_of_an_epoch_is_not_inside_its_first_step(self, shards):
        with wdspec.loader(self.spec(shards), rank=0, world_size=2) as loader:
            loader.set_epoch(0)
            next(iter(loader))
            loader.set_epoch(0)
            with pytest.raises(wdspec.UsageError, match="read that epoch to its end first"):
                loader.set_epoch(1)


def test_out_of_order_batches_are_rejected(shards):
    with pytest.raises(wdspec.UsageError, match="in_order=False"):
        wdspec.loader(make_spec(shards), num_workers=2, in_order=False)


class TestInOneProcess:
    def test_a_pipeline_resumes_exactly_from_any_batch(self, shards):
        spec = make_spec(shards, 1, 3)
        expected = keys(wdspec.compile(spec))
        for stop in range(8):
            pipeline = wdspec.compile(spec)
            seen = keys(itertools.islice(pipeline, stop))
            state = through_json(pipeline.state_dict())
            for again in (pipeline, wdspec.compile(spec), wdspec.compile(spec)):
                again.load_state_dict(state)
                assert through_json(again.state_dict()) == state
                if stop < 7:
                    assert seen + keys(again) == expected

    def test_a_loader_resumes_from_the_state_of_a_pipeline(self, shards):
        spec = make_spec(shards, 1, 2)
        pipeline = wdspec.compile(spec)
        seen = keys(itertools.islice(pipeline, 3))
        with wdspec.loader(spec, num_workers=2) as loader:
            loader.load_state_dict(pipeline.state_dict())
            assert seen + keys(loader) == keys(wdspec.compile(spec))

    def test_samples_without_batch(self, shards):
        spec = make_spec(shards, 1, 2, batch=None, epoch=30)
        expected = [sample["__key__"] for sample in wdspec.compile(spec)]
        pipeline = wdspec.compile(spec)
        seen = [sample["__key__"] for sample in itertools.islice(pipeline, 11)]
        again = wdspec.compile(spec)
        again.load_state_dict(through_json(pipeline.state_dict()))
        assert seen + [sample["__key__"] for sample in again] == expected

    def test_after_an_error_it_fails_again_and_loses_no_samples(self, tmp_path):
        spec = {"dataset": [{"name": "a", "shards": f"{tmp_path}/gone.tar"}], "batch": 2, "epoch": 8}
        pipeline = wdspec.compile(spec)
        for _ in range(2):
            with pytest.raises(wdspec.MissingShardError):
                next(iter(pipeline))
