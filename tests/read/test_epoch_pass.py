"""`epoch: pass`: every sample exactly once, whatever reads it, whatever is damaged or dropped."""

import bz2
import collections
import io
import itertools
import json
import random
import sys

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from picks import most
from reading import read_pass
from runs import Listed
from shardmaking import write_shard, write_source
from torch.utils.data import DataLoader

import wdspec
from wdspec.cli.stats import stats
from wdspec.planning.topology import Seat
from wdspec.read import pass_count as counting
from wdspec.spec.load import load
from wdspec.testing import assert_resumable

FINITE = {"batch": 4, "epoch": "pass"}


def real(batches):
    """The keys that are no padding."""
    return [
        key
        for batch in batches
        for key, is_real in zip(batch["__key__"], batch["__mask__"].tolist(), strict=True)
        if is_real
    ]


def rows(batches):
    return [(batch["__key__"], batch["__mask__"].tolist()) for batch in batches]


def all_ranks(spec, ranks, workers=0):
    """The batches of each rank."""
    parts = []
    for rank in range(ranks):
        with wdspec.loader(spec, num_workers=workers, rank=rank, world_size=ranks) as loader:
            parts.append(list(loader))
            assert len(parts[-1]) == len(loader)
    return parts


def unmasked(ranks):
    return sorted(s["__key__"] for steps in ranks for step in steps for s in step if s["__mask__"])


def write_sizes(folder, name, sizes):
    """A shard for every size; returns their names and the keys in them."""
    names, keys = [], []
    for number, size in enumerate(sizes):
        own = [f"{name}{number}x{i}" for i in range(size)]
        write_shard(folder / f"{name}{number}.tar", [(key, {"txt": key.encode()}) for key in own])
        names.append(f"{folder}/{name}{number}.tar")
        keys += own
    return names, keys


@given(
    sizes=st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4).filter(any), min_size=1, max_size=3),
    ranks=st.integers(1, 3),
    workers=st.integers(1, 4),
    batch=st.none() | st.integers(1, 5),
    filtered=st.booleans(),
    order=st.sampled_from(("sequential", "shuffled")),
    shuffle=st.sampled_from((0, 3, 50)),
)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_sample_appears_once_over_all_ranks(
    tmp_path_factory, sizes, ranks, workers, batch, filtered, order, shuffle
):
    folder = tmp_path_factory.mktemp("pass")
    dataset, expected = [], []
    for name, shards in zip("abc", sizes, strict=False):
        names, keys = write_sizes(folder, name, shards)
        dataset.append({"name": name, "shards": names, "order": order, "shuffle": shuffle, "empty": "allow"})
        expected += keys
    spec = {"dataset": dataset, "batch": batch, "epoch": "pass"}
    if filtered:
        spec["defaults"] = {"select": "picks:most"}
        expected = [key for key in expected if most({"__key__": key})]
        if not expected:
            return
    whole = read_pass(spec, ranks, workers)
    assert unmasked(whole) == sorted(expected)
    assert len({len(steps) for steps in whole}) == 1
    assert all(len(step) == (batch or 1) for steps in whole for step in steps)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    ranks=st.integers(1, 2),
    workers=st.integers(1, 3),
    batch=st.integers(1, 4),
    damage=st.sampled_from(("header", "end", "torn", "gone", "again")),
    where=st.integers(0, 100),
)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_samples_leave_empty_positions(tmp_path_factory, sizes, ranks, workers, batch, damage, where):
    folder = tmp_path_factory.mktemp("damage")
    names, keys = write_sizes(folder, "a", sizes)
    number = where % len(sizes)
    path = folder / f"a{number}.tar"
    own = [key for key in keys if key.startswith(f"a{number}x")]
    index = where % len(own)
    data = bytearray(path.read_bytes())
    if damage == "header":
        data[index * 1024 + 3] ^= 0xFF
        # The sample before is only known to be whole once the next header is read.
        lost = own[max(0, index - 1) :]
    elif damage == "end":
        data[len(own) * 1024 :] = b""
        lost = own[-1:]
    elif damage == "gone":
        lost = own
    else:
        samples = [(key, {"txt": key.encode()}) for key in own]
        again = (own[index], {"txt": b"again", "cls": b"1"} if damage == "torn" else {"txt": b"x"})
        samples.insert(len(own) if damage == "torn" else index + 1, again)
        write_shard(path, samples)
        data = path.read_bytes()
        lost = [] if damage == "torn" and index + 1 < len(own) else [own[index]]
    path.write_bytes(data)
    if damage == "gone":
        path.unlink()
    spec = {
        "dataset": [{"name": "a", "shards": names, "errors": "skip"}],
        "batch": batch,
        "epoch": "pass",
    }
    expected = sorted(set(keys) - set(lost))
    if not expected:
        with pytest.raises(wdspec.WdspecError, match="no samples"):
            read_pass(spec, ranks, workers)
        return
    assert unmasked(read_pass(spec, ranks, workers)) == expected
    spec["dataset"][0]["errors"] = "raise"
    with pytest.raises(wdspec.ShardError, match=r"source a"):
        read_pass(spec, ranks, workers)


@pytest.mark.parametrize(
    "workers", [0, 1, pytest.param(2, marks=pytest.mark.long), 3, pytest.param(4, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("batch", [4, None])
def test_worker_processes_read_what_one_process_reads(tmp_path, workers, batch):
    spec = {
        "dataset": [
            {"name": "a", "shards": write_source(tmp_path, "a", 3, 7)},
            {"name": "b", "shards": write_source(tmp_path, "b", 1, 6), "select": "picks:most"},
        ],
        "batch": batch,
        "epoch": "pass",
    }
    (expected,) = read_pass(spec, 1, max(1, workers))
    with wdspec.loader(spec, num_workers=workers, rank=0, world_size=1) as loader:
        for _ in range(2):
            if batch is None:
                assert [(s["__key__"], s["__mask__"]) for s in loader] == [
                    (s["__key__"], s["__mask__"]) for (s,) in expected
                ]
            else:
                assert rows(loader) == [
                    ([s["__key__"] for s in step], [s["__mask__"] for s in step]) for step in expected
                ]


def test_more_workers_than_samples(tmp_path):
    spec = {
        "dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 1, 2)}],
        "batch": 1,
        "epoch": "pass",
    }
    with wdspec.loader(spec, num_workers=4, rank=0, world_size=1) as loader:
        assert real(loader) == ["a0000000", "a0000001"]
    parts = all_ranks({**spec, "batch": 2}, 3)
    assert [len(part) for part in parts] == [1, 1, 1]
    assert [row for part in parts for row in rows(part)] == [
        (["a0000000", "a0000001"], [True, True]),
        (["a0000000", "a0000000"], [False, False]),
        (["a0000000", "a0000000"], [False, False]),
    ]


def test_one_process_reads_sources_by_name_and_shards_as_listed(tmp_path):
    spec = {
        "dataset": [
            {"name": "b", "shards": write_source(tmp_path, "b", 2, 3)},
            {"name": "a", "shards": write_source(tmp_path, "a", 1, 2)},
        ],
        "epoch": "pass",
    }
    with wdspec.loader(spec) as loader:
        assert len(loader) == 8
        keys = [sample["__key__"] for sample in loader]
    assert keys == ["a0000000", "a0000001"] + [f"b{s:03d}{i:04d}" for s in range(2) for i in range(3)]


def test_shuffled_passes_are_permutations_that_change_with_the_seed_only(tmp_path):
    shards = write_source(tmp_path, "a", 6, 10)
    spec = {"dataset": [{"name": "a", "shards": shards, "order": "shuffled", "shuffle": 20}], **FINITE}
    with wdspec.loader(spec) as loader:
        first, second = real(loader), real(loader)
    with wdspec.loader({**spec, "seed": 1}) as loader:
        other = real(loader)
    assert first == second != other
    assert sorted(first) == sorted(other) == sorted(f"a{s:03d}{i:04d}" for s in range(6) for i in range(10))
    assert first != sorted(first)


def test_drop_omits_the_remainder(tmp_path):
    spec = {
        "dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 2, 7)}],
        "batch": 4,
        "epoch": {"pass": "drop"},
    }
    with wdspec.loader(spec) as loader:
        assert len(loader) == 3
        batches = list(loader)
    assert all(all(mask) for _, mask in rows(batches))
    assert len(real(batches)) == 12
    with pytest.raises(wdspec.UsageError, match="14 samples is shorter than one global batch of 20"):
        wdspec.loader({**spec, "batch": 20})


def test_limit_ends_the_pass_and_counting(tmp_path):
    shards = write_source(tmp_path, "a", 4, 5)
    (tmp_path / "a-002.tar").write_bytes(b"never opened")
    spec = {
        "dataset": [{"name": "a", "shards": shards}, {"name": "b", "shards": shards}],
        "limit": 7,
        **FINITE,
    }
    with wdspec.loader(spec) as loader:
        assert len(loader) == 2
        assert real(loader) == [f"a{s:03d}{i:04d}" for s in range(2) for i in range(5)][:7]


def test_padding_repeats_a_sample_so_that_fields_stack(tmp_path):
    spec = {"dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 1, 5)}], **FINITE}
    with wdspec.loader(spec) as loader:
        last = list(loader)[-1]
    assert last["cls"].tolist() == [4, 4, 4, 4]
    assert last["__mask__"].tolist() == [True, False, False, False]


def test_tuples_include_the_mask_if_named(tmp_path):
    spec = {
        "dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 1, 3)}],
        "to_tuple": "cls __mask__",
        "batch": 2,
        "epoch": "pass",
    }
    with wdspec.loader(spec) as loader:
        assert [(c.tolist(), m.tolist()) for c, m in loader] == [
            ([0, 1], [True, True]),
            ([2, 2], [True, False]),
        ]


def test_an_abandoned_pass_restarts(tmp_path):
    spec = {"dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 3, 7)}], **FINITE}
    for workers in (0, 2):
        with wdspec.loader(spec, num_workers=workers, rank=0, world_size=1) as loader:
            whole = rows(loader)
            assert rows(itertools.islice(loader, 2)) == whole[:2]
            assert rows(loader) == whole
            loader.set_epoch(7)
            assert rows(loader) == whole
    pipeline = wdspec.compile(spec)
    expected = rows(pipeline)
    assert rows(itertools.islice(pipeline, 2)) == expected[:2]
    assert rows(pipeline) == expected


@pytest.mark.parametrize("persistent", [True, False])
def test_a_bare_dataloader_repeats_the_pass(tmp_path, persistent):
    spec = {"dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 3, 7)}], **FINITE, "batch": 3}
    loader = DataLoader(wdspec.compile(spec), batch_size=None, num_workers=2, persistent_workers=persistent)
    (steps,) = read_pass(spec, 1, 2)
    expected = [[sample["__key__"] for sample in step] for step in steps]
    assert len(expected) % 2 == 1
    for _ in range(3):
        assert [batch["__key__"] for batch in loader] == expected


@pytest.mark.parametrize("workers", [1, 3])
def test_a_pass_resumes_from_any_batch_on_any_topology(tmp_path, workers):
    spec = {
        "dataset": [
            {"name": "a", "shards": write_source(tmp_path, "a", 3, 7), "shuffle": 5},
            {"name": "b", "shards": write_source(tmp_path, "b", 1, 9), "select": "picks:most"},
        ],
        "elastic": {"ranks": 2, "workers": 3},
        "batch": 2,
        "epoch": "pass",
    }
    with wdspec.loader(spec, rank=0, world_size=1) as loader:
        whole = rows(loader)
        assert len(whole) == len(loader) == 8
    assert unmasked(read_pass(spec, 2, 3)) == unmasked(read_pass(spec, 1, 1))
    for stop in range(1, 8):
        states = []
        for rank in range(2):
            with wdspec.loader(spec, rank=rank, world_size=2) as loader:
                list(itertools.islice(loader, stop))
                states.append(loader.state_dict())
        state = json.loads(json.dumps(wdspec.merge_states(states)))
        with wdspec.loader(spec, num_workers=workers if stop == 3 else 0, rank=0, world_size=1) as loader:
            for _ in range(2):
                loader.load_state_dict(state)
                assert rows(loader) == whole[stop:]
            assert rows(loader) == whole


def test_a_state_reports_a_change_of_the_samples(tmp_path):
    shards = write_source(tmp_path, "a", 3, 7)
    spec = {"dataset": [{"name": "a", "shards": shards}], **FINITE}
    with wdspec.loader(spec) as loader:
        next(iter(loader))
        state = loader.state_dict()
    write_source(tmp_path, "a", 3, 8)
    with (
        wdspec.loader(spec) as loader,
        pytest.raises(wdspec.UsageError, match=r"pass\.samples: was 21, now 24"),
    ):
        loader.load_state_dict(state)


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        (5, "more than the 5"),
        (4, "more than the 4"),
        (8, "7 samples, but 8 were"),
        (9, "7 samples, but 9"),
    ],
)
def test_a_wrong_declared_number_of_samples_is_detected(tmp_path, declared, says):
    source = {"name": "a", "shards": write_source(tmp_path, "a", 1, 7), "samples": declared}
    with (
        wdspec.loader({"dataset": [source], **FINITE}) as loader,
        pytest.raises(wdspec.ShardError, match=rf"{says}.*source a"),
    ):
        list(loader)


@pytest.mark.parametrize("declared", [None, 8])
def test_a_missing_end_marker_is_detected_without_padding(tmp_path, declared):
    source = {"name": "a", "shards": write_source(tmp_path, "a", 1, 8), "samples": declared}
    path = tmp_path / "a-000.tar"
    path.write_bytes(path.read_bytes()[: 8 * 4 * 512])
    with (
        pytest.raises(wdspec.ShardError, match="no end marker"),
        wdspec.loader({"dataset": [source], **FINITE}) as loader,
    ):
        list(loader)


def test_one_declared_shard_is_not_opened_before_it_is_read(tmp_path):
    source = {"name": "a", "shards": f"{tmp_path}/later.tar", "samples": 3}
    with wdspec.loader({"dataset": [source], **FINITE}) as loader:
        write_shard(tmp_path / "later.tar", [(f"k{i}", {"txt": b"x"}) for i in range(3)])
        assert real(loader) == ["k0", "k1", "k2"]


def test_compressed_shards_are_counted_and_read(tmp_path):
    shards = write_source(tmp_path, "a", 2, 9)
    for path in tmp_path.glob("a-*.tar"):
        path.write_bytes(bz2.compress(path.read_bytes()))
    spec = {"dataset": [{"name": "a", "shards": shards}], "batch": 2, "epoch": "pass"}
    assert unmasked(read_pass(spec, 2, 3)) == sorted(f"a{s:03d}{i:04d}" for s in range(2) for i in range(9))


def test_reading_within_a_shard_starts_at_a_restart_point(tmp_path, monkeypatch):
    monkeypatch.setattr(counting, "MARK_EVERY", 8 * 1024)
    spec = {
        "dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 1, 100)}],
        "batch": 5,
        "epoch": "pass",
    }
    parts = Listed.of(load(spec))
    (marks,) = (shard.marks for shard in parts.counts["a"].shards.values())
    assert len(marks) > 10
    offsets = []
    opener = type(parts.parts["a"].open)
    monkeypatch.setattr(
        opener,
        "samples",
        lambda self, *args, _real=opener.samples: offsets.append(args[0].offset) or _real(self, *args),
    )
    reader = parts.run(Seat(0, 1), 4).reader()
    steps = [reader.batch(number) for number in range(20)]
    assert unmasked([steps]) == [f"a000{i:04d}" for i in range(100)]
    assert len(offsets) == 4
    begins = [4 * 512 * 25 * k for k in range(4)]
    assert all(0 <= begin - offset < 12 * 1024 for begin, offset in zip(begins, offsets, strict=True))


def test_an_interrupted_sample_is_skipped_by_all_readers(tmp_path, monkeypatch):
    monkeypatch.setattr(counting, "MARK_EVERY", 1)
    samples = [(f"k{i:02d}", {"txt": b"x"}) for i in range(20)]
    write_shard(tmp_path / "a.tar", [*samples, ("k00", {"txt": b"again"}), ("k99", {"txt": b"x"})])
    spec = {
        "dataset": [{"name": "a", "shards": f"{tmp_path}/a.tar", "errors": "skip"}],
        "batch": 2,
        "epoch": "pass",
    }
    expected = [f"k{i:02d}" for i in range(20)] + ["k99"]
    for workers in (1, 2, 5):
        assert unmasked(read_pass(spec, 1, workers)) == expected


def test_random_numbers_depend_only_on_the_sample(tmp_path):
    spec = {
        "dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 3, 7), "map": "picks:jitter"}],
        "batch": 2,
        "epoch": "pass",
    }
    drawn = [
        {
            s["__key__"]: s["noise"]
            for steps in read_pass(spec, ranks, workers)
            for step in steps
            for s in step
        }
        for ranks, workers in ((1, 1), (2, 2), (3, 1))
    ]
    assert drawn[0] == drawn[1] == drawn[2]
    assert len(set(drawn[0].values())) == 21


def test_a_filter_that_drops_everything_is_an_error(tmp_path):
    spec = {
        "dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 2, 5), "select": "picks:none"}],
        **FINITE,
    }
    with (
        wdspec.loader(spec) as loader,
        pytest.raises(wdspec.ShardError, match=r"all 10 samples.*dropped or skipped \(select 10\)"),
    ):
        next(iter(loader))


def test_a_source_without_samples_is_an_error(tmp_path):
    write_shard(tmp_path / "e.tar", [])
    with pytest.raises(wdspec.UsageError, match=r"hold no samples.*source e"):
        wdspec.loader({"dataset": [{"name": "e", "shards": f"{tmp_path}/e.tar", "empty": "allow"}], **FINITE})


def test_a_budget_counts_each_damaged_sample_once(tmp_path):
    rng = random.Random(4)
    samples = [(f"k{i:02d}", {"txt": b"x"}) for i in range(40)]
    bad = sorted(rng.sample(range(40), 6))
    write_shard(
        tmp_path / "a.tar",
        [s for i, sample in enumerate(samples) for s in ([sample, sample] if i in bad else [sample])],
    )
    spec = {
        "dataset": [{"name": "a", "shards": f"{tmp_path}/a.tar", "errors": {"max_count": 6}}],
        "batch": 2,
        "epoch": "pass",
    }
    parts = Listed.of(load(spec))
    run = parts.run(Seat(0, 1), 5)
    reader = run.reader()
    steps = [reader.batch(number) for number in range(run.plan.timeline.epoch_steps)]
    assert unmasked([steps]) == [key for i, (key, _) in enumerate(samples) if i not in bad]
    assert sum(reader.budgets["a"].skipped.values()) == 6


def write_lost_shards(folder, sizes, kind="header"):
    """Shards of these sizes; those of size 0 are lost, in one of two ways."""
    for number, size in enumerate(sizes):
        path = folder / f"s{number}.tar"
        write_shard(path, [(f"s{number}x{i}", {"txt": b"x"}) for i in range(size or 3)])
        if not size:
            path.write_bytes(b"X" + path.read_bytes()[1:] if kind == "header" else b"")
    return f"{folder}/s{{0..{len(sizes) - 1}}}.tar"


@pytest.mark.parametrize("sizes", [(3, 0), (0, 3), (0, 0, 5, 0, 1, 0, 0, 4, 0), (1, 0, 1, 0, 1)], ids=str)
@pytest.mark.parametrize("kind", ["header", "cut"])
@pytest.mark.parametrize("more", [{}, {"shuffle": 3}, {"order": "shuffled"}], ids=str)
def test_a_shard_lost_during_counting_is_reported_by_one_slot(tmp_path, sizes, kind, more):
    source = {"name": "a", "shards": write_lost_shards(tmp_path, sizes, kind), **more}
    log = tmp_path / "skips.jsonl"
    spec = {"dataset": [source], "errors": {"skip": True, "log": str(log)}, "batch": 2, "epoch": "pass"}
    lost = sizes.count(0)
    for ranks, workers in ((1, 1), (2, 1), (1, 3), (3, 2)):
        log.unlink(missing_ok=True)
        parts, skipped = Listed.of(load(spec)), 0
        for rank in range(ranks):
            run = parts.run(Seat(rank, ranks), workers)
            reader = run.reader()
            for number in range(run.plan.timeline.epoch_steps):
                reader.batch(number)
            skipped += sum(reader.budgets["a"].skipped.values())
        assert skipped == len(log.read_text().splitlines()) == lost


@pytest.mark.parametrize("workers", [0, 2])
def test_lost_shards_and_damaged_samples_count_against_one_budget(tmp_path, workers):
    spec = {
        "dataset": [{"name": "a", "shards": write_lost_shards(tmp_path, (4, 0, 4))}],
        "batch": 2,
        "epoch": "pass",
        "elastic": {"ranks": 1, "workers": 1 if workers else 2},
    }
    content = bytearray((tmp_path / "s2.tar").read_bytes())
    content[2 * 1024] ^= 1  # the header of its third sample
    (tmp_path / "s2.tar").write_bytes(content)

    def read(count):
        with wdspec.loader(
            {**spec, "errors": {"skip": True, "max_count": count}}, num_workers=min(workers, 1)
        ) as run:
            keys = real(run)
            return keys, run.stats().sources["a"].skipped

    assert read(2)[1] == {"D108": 2}
    with pytest.raises(wdspec.ShardError, match=r"2 errors exceed the budget of 1 .max_count."):
        read(1)


def test_lost_shards_with_measured_stats_are_reported(tmp_path):
    (tmp_path / "s.yaml").write_text(
        f"dataset: [{{name: a, shards: '{write_lost_shards(tmp_path, (4, 0, 4))}'}}]\n"
        f"stats: {tmp_path}/stats.yaml\nerrors: {{skip: true}}\nbatch: 2\nepoch: pass\n"
    )
    assert CliRunner().invoke(stats, [str(tmp_path / "s.yaml"), "--jobs", "0"]).exit_code == 0
    with wdspec.loader(tmp_path / "s.yaml", num_workers=0) as loader:
        assert len(real(loader)) == 8
        assert loader.stats().sources["a"].skipped == {"D108": 1}


def test_plans_show_the_number_of_samples_of_a_pass(tmp_path):
    spec = {
        "dataset": [
            {"name": "a", "shards": write_source(tmp_path, "a", 3, 7)},
            {"name": "b", "shards": write_source(tmp_path, "b", 1, 9)},
        ],
        **FINITE,
    }
    plan = wdspec.plan(spec, ranks=2)
    assert plan.timeline.epoch_steps == 4
    assert {source.name: source.samples for source in plan.sources} == {"a": 21, "b": 9}
    assert plan.finite.samples == plan.epoch_samples == 30
    places = [
        [[piece.place for piece in pieces] for pieces in plan.finite.first_pieces(rank, 0, 9)]
        for rank in (0, 1)
    ]
    assert places == [[[0, 1, 2], []], [[2], [0]]]


@pytest.mark.parametrize(
    ("workers", "stops"), [(0, None), (2, [0, 2, 7]), pytest.param(2, None, marks=pytest.mark.long)]
)
def test_passes_are_resumable(tmp_path, workers, stops):
    spec = {"dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 3, 5)}], **FINITE}
    assert_resumable(lambda: wdspec.loader(spec, num_workers=workers, rank=0, world_size=1), stops=stops)


def test_counting_shows_a_progress_bar_only_on_a_terminal(tmp_path, monkeypatch):
    spec = {"dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 3, 5)}], **FINITE}
    shown = {}
    for is_terminal, rank in ((True, "0"), (True, "1"), (False, "0")):
        screen = io.StringIO()
        screen.isatty = lambda is_terminal=is_terminal: is_terminal
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
        wdspec.plan(spec)
        shown[is_terminal, rank] = "counting samples" in screen.getvalue()
    assert shown == {(True, "0"): True, (True, "1"): False, (False, "0"): False}


class TestAccumulate:
    SPEC = {"elastic": {"ranks": 4, "workers": 2}, "batch": {"size": 3, "accumulate": True}}  # noqa: RUF012

    def test_fewer_ranks_get_the_same_batches_in_turn(self, tmp_path):
        shards = write_source(tmp_path, "a", 5, 8)
        spec = {"dataset": [{"name": "a", "shards": shards, "shuffle": 20}], "epoch": 100, **self.SPEC}
        four = [[batch["__key__"] for batch in part] for part in all_ranks(spec, 4)]
        assert [len(part) for part in four] == [8] * 4
        in_turn = [batch for step in zip(*four, strict=True) for batch in step]
        for workers in (0, 2):
            with wdspec.loader(spec, num_workers=workers, rank=0, world_size=1) as loader:
                assert len(loader) == 32
                assert [batch["__key__"] for batch in loader] == in_turn
        assert [batch["__key__"] for batch in wdspec.compile(spec, rank=0, world_size=1)] == in_turn

    def test_without_elastic_a_rank_has_one_batch_per_step(self, tmp_path):
        shards = write_source(tmp_path, "a", 2, 8)
        batch = {"size": 3, "accumulate": True}
        spec = {"dataset": [{"name": "a", "shards": shards}], "epoch": 12, "batch": batch}
        with wdspec.loader(spec, rank=0, world_size=2) as loader:
            assert [len(batch["__key__"]) for batch in loader] == [3, 3]

    def test_a_pass_in_pieces(self, tmp_path):
        spec = {
            "dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 2, 13)}],
            "epoch": "pass",
            **self.SPEC,
        }
        (batches,) = all_ranks(spec, 1)
        assert [len(batch["__key__"]) for batch in batches] == [3] * 12
        assert collections.Counter(real(batches)) == {
            f"a{s:03d}{i:04d}": 1 for s in range(2) for i in range(13)
        }

    def test_accumulation_resumes_at_every_step(self, tmp_path):
        shards = write_source(tmp_path, "a", 3, 8)
        spec = {"dataset": [{"name": "a", "shards": shards}], "epoch": 36, **self.SPEC}
        with wdspec.loader(spec, rank=0, world_size=2) as loader:
            expected = [batch["__key__"] for batch in loader]
        for stop in range(0, len(expected), 2):
            with wdspec.loader(spec, rank=0, world_size=2) as loader:
                list(itertools.islice(loader, stop))
                state = json.loads(json.dumps(loader.state_dict()))
            with wdspec.loader(spec, rank=0, world_size=2) as loader:
                loader.load_state_dict(state)
                assert [batch["__key__"] for batch in loader] == expected[stop:]
