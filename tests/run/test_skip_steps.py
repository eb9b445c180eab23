"""`skip`: steps that are left out, and nothing else changes.

Random specs, topologies, ranges and moments are in `test_any_topology`.
"""

import itertools
import json

import pytest
from rotating import rotating_loader
from runs import Listed
from shardmaking import keys, spec_of_two, write_shard
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import wdspec
from wdspec.planning.topology import Seat
from wdspec.read.source import SourceStream
from wdspec.run.state import stamp
from wdspec.spec.load import load
from wdspec.testing import assert_resumable

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:torch.distributed is"),
]


@pytest.fixture
def spec(tmp_path):
    return spec_of_two(tmp_path)


def batches(spec, epochs=3, **options):
    """The keys of each batch of some epochs, in lists of them; one process reads for all ranks."""
    with wdspec.loader(spec, num_workers=0, **options) as loader:
        return [[batch["__key__"] for batch in loader] for _ in range(epochs)]


@pytest.fixture
def whole(spec):
    """The keys of all batches of three epochs without `skip`."""
    return list(itertools.chain(*batches(spec)))


def test_steps_that_are_not_skipped_are_unchanged(spec, whole):
    first, second, third = batches({**spec, "skip": ["3..5", 11, "13..14"]})
    assert first == [*whole[:3], *whole[6:11]]
    assert second == [whole[12], *whole[15:24]]
    assert third == whole[24:]


@pytest.mark.parametrize("persistent", [True, False])
def test_workers_read_ahead_across_skipped_steps(spec, whole, persistent):
    spec = {**spec, "skip": ["4..7", "9..13"]}
    with wdspec.loader(spec, num_workers=2, prefetch_factor=3, persistent_workers=persistent) as loader:
        assert [batch["__key__"] for batch in loader] == [*whole[:4], whole[8]]
        assert loader.stats().batches == 5
        assert [batch["__key__"] for batch in loader] == whole[14:24]
        assert sum(source.dropped["skip"] for source in loader.stats().sources.values()) == 9 * 8


def test_states_equal_those_of_a_run_that_skips_nothing(spec):
    def after(spec, steps):
        with wdspec.loader(spec, num_workers=0) as loader:
            list(itertools.islice(loader, steps))
            return loader.state_dict()

    plain, skipping = after(spec, 9), after({**spec, "skip": "3..5"}, 6)
    assert (plain.pop("skip"), skipping.pop("skip")) == ("[]", "[[3, 6]]")
    cut = [state.pop("ranks") for state in (plain, skipping)]
    assert plain == skipping
    entries = [{rank: entry.partition(":")[2] for rank, entry in ranks.items()} for ranks in cut]
    assert entries[0] == entries[1]


def test_len_is_the_length_of_the_epoch_of_the_next_batch(spec):
    with wdspec.loader({**spec, "skip": ["2..3", "10..14"]}, num_workers=0) as loader:
        lengths = [(loader.epoch, len(loader), sum(1 for _ in loader)) for _ in range(3)]
    assert lengths == [(0, 8, 8), (1, 9, 9), (2, 12, 12)]


def test_after_a_stop_before_a_skipped_end_the_next_epoch_follows(spec, whole):
    with wdspec.loader({**spec, "skip": "10..11"}, num_workers=0) as loader:
        list(itertools.islice(loader, 10))
        assert loader.epoch == 1
        loader.set_epoch(1)
        state = loader.state_dict()
        assert [batch["__key__"] for batch in loader] == whole[12:24]
        loader.load_state_dict(state)
        assert next(iter(loader))["__key__"] == whole[12]


def test_skipped_samples_are_not_decoded(tmp_path):
    write_shard(tmp_path / "a.tar", [(f"{n:02}", {"json": b"{" if n in (5, 6) else b"1"}) for n in range(12)])
    spec = {
        "dataset": [{"name": "a", "shards": str(tmp_path / "a.tar"), "order": "sequential", "shuffle": 0}],
        "batch": 2,
        "epoch": {"batches": 6},
    }
    with pytest.raises(wdspec.WdspecError, match=r"05"):
        batches(spec, 1)
    assert batches({**spec, "skip": "2..3"}, 1) == [[["00", "01"], ["02", "03"], ["08", "09"], ["10", "11"]]]
    # Which samples a policy leaves out is only known of those that are decoded.
    skipping = {**spec, "errors": {"max_count": 9}, "epoch": {"batches": 5}}
    assert batches({**skipping, "skip": "2..2"}, 1) == [
        [row for n, row in enumerate(batches(skipping, 1)[0]) if n != 2]
    ]


def test_a_skipped_step_costs_as_many_sources_as_it_draws(tmp_path, monkeypatch):
    write_shard(tmp_path / "a.tar", [(f"{n:02}", {"cls": b"1"}) for n in range(4)])
    sources = [{"name": f"s{n}", "shards": str(tmp_path / "a.tar")} for n in range(40)]
    switched = []
    whole = SourceStream.set_skipping
    monkeypatch.setattr(SourceStream, "set_skipping", lambda self, on: switched.append(on) or whole(self, on))
    read = batches({"dataset": sources, "batch": 2, "epoch": {"batches": 6}, "skip": "1..3"}, 1)
    assert len(read[0]) == 3
    assert len(switched) <= 3 * 2 * 2


def test_a_state_without_skips_resumes_and_skips(spec, whole):
    with wdspec.loader(spec, num_workers=0) as loader:
        list(itertools.islice(loader, 3))
        old = loader.state_dict()
    del old["skip"]
    with wdspec.loader({**spec, "skip": ["1..2", "4..5"]}, num_workers=0) as loader:
        loader.load_state_dict(old)
        assert [batch["__key__"] for batch in loader] == [whole[3], *whole[6:12]]
        assert json.loads(loader.state_dict()["skip"]) == [[4, 6]]  # the past is as the state had it


def test_skipped_steps_stay_skipped_after_spec_changes(spec, whole):
    with wdspec.loader({**spec, "skip": "2..6"}, num_workers=0) as loader:
        list(itertools.islice(loader, 3))
        state = loader.state_dict()
    assert (state["batch"], state["skip"]) == (8, "[[2, 7]]")
    with wdspec.loader(spec, num_workers=0) as loader:
        loader.load_state_dict(json.loads(json.dumps(state)))
        assert [batch["__key__"] for batch in loader] == whole[8:12]
        assert json.loads(loader.state_dict()["skip"]) == [[2, 7]]


def test_a_loop_can_go_back_and_skip_and_states_record_the_skips(spec, whole):
    with wdspec.loader(spec, num_workers=2, prefetch_factor=4) as loader:
        items = iter(loader)
        list(itertools.islice(items, 3))
        state = loader.state_dict()
        list(itertools.islice(items, 4))
        loader.load_state_dict(state)
        loader.skip_steps(5, 6)
        loader.skip_steps(8)
        with pytest.raises(wdspec.UsageError, match="a newer iteration has started, a state was loaded"):
            next(items)
        seen = [batch["__key__"] for batch in itertools.islice(loader, 3)]
        later = json.loads(json.dumps(loader.state_dict()))
        assert json.loads(later["skip"]) == [[5, 7], [8, 9]]
        seen += [batch["__key__"] for batch in loader]
    assert seen == [*whole[3:5], whole[7], *whole[9:12]]
    with wdspec.loader({**spec, "skip": 10}, num_workers=0) as loader:
        loader.load_state_dict(later)
        assert [batch["__key__"] for batch in loader] == [whole[9], whole[11]]


def test_delivered_steps_cannot_be_skipped(spec):
    with wdspec.loader(spec, num_workers=0) as loader:
        list(itertools.islice(loader, 3))
        with pytest.raises(
            wdspec.UsageError, match=r"step 2 was read already, the next one is 3; load a state"
        ):
            loader.skip_steps(2, 4)
        for first, last in ((-1, 3), (5, 4), (True, 9), (4, 4.0), ("4..5", None)):
            with pytest.raises(wdspec.UsageError, match=r"a range of numbers, from 0 on"):
                loader.skip_steps(first, last)


def test_an_entirely_skipped_epoch_is_an_iteration_without_batches(spec, whole):
    with wdspec.loader({**spec, "skip": "7..29"}, num_workers=0) as loader:
        lengths = [(loader.epoch, len(loader), [each["__key__"] for each in loader]) for _ in range(3)]
    assert lengths == [(0, 7, whole[:7]), (1, 0, []), (2, 6, whole[30:])]


def test_a_pass_skips_nothing(spec):
    spec = {"dataset": [{"shards": spec["dataset"][0]["shards"]}], "batch": 4, "epoch": "pass"}
    with pytest.raises(wdspec.SpecError, match="`skip` cannot go with `epoch: pass`"):
        wdspec.load({**spec, "skip": 3})
    with (
        wdspec.loader(spec, num_workers=0) as loader,
        pytest.raises(wdspec.UsageError, match="gives every sample"),
    ):
        loader.skip_steps(3)


def test_single_samples_and_several_items_per_step(spec):
    single = {**spec, "batch": None, "epoch": 40}
    whole = keys(itertools.chain(*[wdspec.compile(single, rank=0, world_size=1)] * 2))
    pipeline = wdspec.compile({**single, "skip": ["2..3", "18..19"]}, rank=0, world_size=1)
    assert len(pipeline) == 32
    assert keys(pipeline) == [*whole[:4], *whole[8:36]]
    assert keys(pipeline) == whole[40:]
    own = wdspec.compile(single, rank=1, world_size=2)
    assert keys(itertools.islice(own, 3)) == whole[1:6:2]
    own.skip_steps(3, 4)
    assert keys(own) == whole[11:40:2]


def test_the_rest_of_a_skipped_started_step_is_dropped(spec, whole):
    spec = {**spec, "batch": {"size": 4, "accumulate": True}}
    with wdspec.loader(spec, num_workers=0, rank=0, world_size=1) as loader:
        list(itertools.islice(loader, 7))
        state = loader.state_dict()
        with pytest.raises(wdspec.UsageError, match="step 3 was read already"):
            loader.skip_steps(3)
    with wdspec.loader({**spec, "skip": "3..4"}, num_workers=0, rank=0, world_size=1) as loader:
        loader.load_state_dict(state)
        assert next(iter(loader))["__key__"] == whole[5][:4]


def test_set_shares_apply_from_their_step_even_if_skipped(spec):
    def seen(**more):
        loader = rotating_loader(Listed.of(load({**spec, **more})).run(Seat(), 2), 2)
        loader.set_shares({"a": 1}, after=4)
        loader.set_shares({"a": 1, "b": 3}, after=7)
        return [batch["__key__"] for batch in loader]

    assert seen(skip="3..5") == [row for number, row in enumerate(seen()) if number not in (3, 4, 5)]


def test_a_stage_processes_the_skipped_samples(spec):
    spec = {**spec, "stage": {"call": "picks:backwards", "every": 8}}
    assert batches({**spec, "skip": "3..5"}, 1)[0] == [
        row for number, row in enumerate(batches(spec, 1)[0]) if number not in (3, 4, 5)
    ]


def test_stopping_anywhere_resumes_across_skipped_steps(spec):
    skipping = {**spec, "skip": ["2..3", "10..13"]}
    assert_resumable(lambda: wdspec.loader(skipping, num_workers=0), batches=14, stops=range(1, 14, 2))


@pytest.mark.usefixtures("impatient_torch")
def test_a_stateful_dataloader_resumes_across_skipped_steps(spec, whole):
    spec = {**spec, "elastic": {"ranks": 1, "workers": 2}, "skip": ["3..4", "10..11"]}

    def made(workers):
        pipeline = wdspec.compile(spec, rank=0, world_size=1)
        return StatefulDataLoader(
            pipeline, batch_size=None, num_workers=workers, persistent_workers=bool(workers)
        )

    assert_resumable(lambda: made(0), batches=12)
    assert_resumable(lambda: made(2), batches=12, stops=[3, 8])


@pytest.mark.usefixtures("impatient_torch")
def test_dataloader_workers_skip_only_ranges_that_keep_their_turns(spec):
    spec = {**spec, "elastic": {"ranks": 1, "workers": 4}}

    def read(workers, **more):
        pipeline = wdspec.compile({**spec, **more}, rank=0, world_size=1)
        return keys(DataLoader(pipeline, batch_size=None, num_workers=workers))

    whole = read(2)
    assert read(2, skip=["3..4", "9..11"]) == [*whole[:3], *whole[5:9]]
    with pytest.raises(
        wdspec.UsageError, match=r"3 steps are to be skipped \(3 to 5\).* not a multiple of 2 workers"
    ):
        read(2, skip="3..5")
    pipeline = wdspec.compile(spec, rank=0, world_size=1)
    keys(DataLoader(pipeline, batch_size=None, num_workers=1))
    with pytest.raises(wdspec.UsageError, match=r"workers of a DataLoader .* `skip_steps` cannot reach them"):
        pipeline.skip_steps(14)


def test_a_distributed_checkpoint_records_skipped_steps(spec, whole, tmp_path):
    import torch.distributed.checkpoint as dcp

    with wdspec.loader({**spec, "skip": "1..2"}, num_workers=0) as loader:
        loader.skip_steps(5, 6)
        seen = [batch["__key__"] for batch in itertools.islice(loader, 2)]
        dcp.save({"data": loader}, checkpoint_id=tmp_path / "checkpoint")
    with wdspec.loader(spec, num_workers=0) as loader:
        dcp.load({"data": loader}, checkpoint_id=tmp_path / "checkpoint")
        seen += [batch["__key__"] for batch in loader]
    assert seen == [whole[0], *whole[3:5], *whole[7:12]]


def test_ranks_that_skip_different_steps_are_detected_on_merge(spec):
    states = []
    for rank in range(2):
        loader = rotating_loader(Listed.of(load(spec)).run(Seat(rank, 2), 1), 1)
        if rank:
            loader.skip_steps(4, 5)
        list(itertools.islice(loader, 2))
        states.append(loader.state_dict())
    with pytest.raises(
        wdspec.UsageError,
        match=r"the ranks skip different steps: none \(ranks \[0\]\) and 4 to 5 \(ranks \[1\]\)",
    ):
        wdspec.merge_states(states)
    assert stamp(states[0]) != stamp(states[1])


@pytest.mark.parametrize(
    "text", ["", "{}", "[[1]]", "[[3, 3]]", "[[5, 6], [1, 2]]", "[[1,2]]", "[[-1, 2]]", 7, None]
)
def test_a_state_with_tampered_steps_is_rejected(spec, text):
    with wdspec.loader(spec, num_workers=0) as loader:
        state = loader.state_dict()
        with pytest.raises(wdspec.UsageError, match="the state is damaged: `skip`"):
            loader.load_state_dict({**state, "skip": text})
