"""`epoch: {pass: …, reshuffle: true}` with batches by cost, packed rows and groups: every sample once in each epoch."""

import collections
import itertools
import json

import pytest
from click.testing import CliRunner
from reading import corrupt
from shardmaking import write_shard, write_source
from torch.utils.data import DataLoader

import wdspec
from wdspec.cli.batch import trace_steps
from wdspec.cli.explain import explain
from wdspec.cli.preview import preview
from wdspec.cli.simulate import simulate
from wdspec.cli.state import state as state_command
from wdspec.planning import epochs
from wdspec.testing import assert_resumable

COST = {"cost": "txt.length", "max_cost": 40, "window": 9, "padded": False, "collate": {"txt": "list"}}
GROUPS = {"size": 4, "group_by": "cls", "group_wait": 12, "window": 6, "collate": {"txt": "list"}}


def write_texts(folder, name, shards, samples):
    """Shards of texts of 2 to 24 characters, whose lengths follow no order, and of three classes."""
    for shard in range(shards):
        numbers = range(shard * samples, (shard + 1) * samples)
        texts = {f"{name}{number:04d}": "x" * (2 + number * 7919 % 23) for number in numbers}
        write_shard(
            folder / f"{name}-{shard}.tar",
            [
                (key, {"txt": text.encode(), "cls": str(int(key[1:]) % 3).encode()})
                for key, text in texts.items()
            ],
        )
    return f"{folder}/{name}-{{0..{shards - 1}}}.tar"


def training(folder, batch, remainder="pad", **more):
    """Two sources, of which one is repeated, on 2 × 2 slots."""
    first = {"name": "a", "shards": write_texts(folder, "a", 6, 11)}
    second = {"name": "b", "shards": write_texts(folder, "b", 2, 7), "repeat": 2}
    spec = {"dataset": [first, second], "batch": batch, "defaults": {"extensions": "txt cls", "shuffle": 20}}
    spec |= {"epoch": {"pass": remainder, "reshuffle": True}, "elastic": {"ranks": 2, "workers": 2}}
    return spec | more


EVERY = {**{f"a{number:04d}": 1 for number in range(66)}, **{f"b{number:04d}": 2 for number in range(14)}}
"""How often each sample comes in an epoch."""


def keys_of(batches):
    """The keys that are no padding."""
    masked = ((batch["__key__"], batch["__mask__"]) for batch in batches)
    return [key for keys, mask in masked for key, is_real in zip(keys, mask, strict=True) if is_real]


def read_epochs(spec, count, **options):
    """The keys of the batches of some epochs, which one loader gives."""
    with wdspec.loader(spec, **{"num_workers": 0, **options}) as loader:
        return [[batch["__key__"] for batch in loader] for _ in range(count)]


def read_steps(loader, count):
    """The keys of some batches, over epochs."""
    found = []
    while len(found) < count:
        found += [batch["__key__"] for batch in loader]
    return found[:count]


@pytest.mark.parametrize("batch", [COST, GROUPS, {**GROUPS, "incomplete": "merge"}])
def test_each_epoch_has_each_copy_of_each_sample_once_in_other_batches(tmp_path, batch):
    with wdspec.loader(training(tmp_path, batch), num_workers=0) as loader:
        found = []
        for _ in range(4):
            length, batches = len(loader), list(loader)
            assert length == len(batches)
            assert collections.Counter(keys_of(batches)) == EVERY
            found.append([tuple(sorted(each["__key__"])) for each in batches])
    assert len({frozenset(each) for each in found}) == 4


def test_batches_are_within_their_cost_and_groups_have_one_class(tmp_path):
    with wdspec.loader(training(tmp_path, COST), num_workers=0) as loader:
        assert all(sum(map(len, batch["txt"])) <= 40 for _ in range(2) for batch in loader)
    with wdspec.loader(training(tmp_path, GROUPS), num_workers=0) as loader:
        assert all(len(set(batch["cls"].tolist())) == 1 for _ in range(2) for batch in loader)


def test_no_batch_has_a_sample_twice(tmp_path):
    for batches in read_epochs(training(tmp_path, {**COST, "window": 40}), 3):
        assert all(len(set(keys)) == len(keys) for keys in batches)


def test_the_number_of_steps_differs_between_epochs_and_len_is_that_of_each(tmp_path):
    spec = training(tmp_path, {**COST, "window": 30})
    with wdspec.loader(spec, num_workers=0, rank=1, world_size=2) as loader:
        lengths = []
        for number in range(6):
            assert loader.epoch == number
            loader.set_epoch(number)
            lengths.append(len(loader))
            assert len(list(loader)) == lengths[-1]
            assert loader.state_dict()["batch"] == sum(lengths)
    assert len(set(lengths)) > 1


def test_drop_ends_an_epoch_before_the_first_slot_without_a_batch(tmp_path):
    padded, whole = (training(tmp_path, COST, remainder) for remainder in ("pad", "drop"))
    left_out = set()
    with wdspec.loader(padded, num_workers=0) as loader, wdspec.loader(whole, num_workers=0) as dropping:
        for _ in range(3):
            expected, found = list(loader), list(dropping)
            steps = [expected[at : at + 2] for at in range(0, len(expected), 2)]
            full = itertools.takewhile(lambda step: all(all(each["__mask__"]) for each in step), steps)
            assert [each["__key__"] for each in found] == [each["__key__"] for step in full for each in step]
            left_out.add(
                frozenset((collections.Counter(EVERY) - collections.Counter(keys_of(found))).items())
            )
    assert len(left_out) == 3


def test_packed_rows_have_the_tokens_of_each_sample_once(tmp_path):
    spec = training(tmp_path, {"pack": {"fields": "txt", "length": 40}, "window": 40})
    for source in spec["dataset"]:
        source["map"] = {"txt": f"{__name__}:encode"}
    with wdspec.loader(spec, num_workers=0) as loader:
        for _ in range(2):
            tokens = collections.Counter()
            for batch in loader:
                assert batch["txt"].shape == (1, 40)
                assert batch["__tokens__"] == int((batch["txt"] != 0).sum())
                tokens.update(batch["txt"].ravel().tolist())
            expected = sum(times * (2 + int(key[1:]) * 7919 % 23) for key, times in EVERY.items())
            assert tokens[ord("x")] == expected


def encode(text):
    """The bytes of a text as numbers."""
    return list(text.encode())


@pytest.mark.parametrize("batch", [COST, GROUPS])
def test_any_number_of_ranks_and_workers_reads_the_same_batches(tmp_path, batch):
    spec = training(tmp_path, batch)
    with wdspec.loader(spec, num_workers=0) as whole:
        expected = read_steps(whole, 80)
    parts = [read_epochs(spec, 3, rank=rank, world_size=2) for rank in range(2)]
    steps = zip(*(itertools.chain(*part) for part in parts), strict=True)
    assert [*itertools.chain(*steps)][:80] == expected[: 2 * sum(map(len, parts[0]))]


def test_worker_processes_and_threads_read_the_same(tmp_path):
    spec = training(tmp_path, COST, "drop")
    with wdspec.loader(spec, num_workers=0) as loader:
        expected = [[batch["__key__"] for batch in loader] for _ in range(2)]
        passes = {name: source.passes for name, source in loader.stats().sources.items()}
    for more, options in (({}, {"num_workers": 2}), ({"loader": {"kind": "threads", "workers": 2}}, {})):
        with wdspec.loader(spec | more, **options) as loader:
            assert [[batch["__key__"] for batch in loader] for _ in range(2)] == expected
            assert {name: source.passes for name, source in loader.stats().sources.items()} == passes
    assert passes == {"a": 2, "b": 2}


def test_a_run_resumes_on_other_ranks_in_mid_epoch_and_at_its_ends(tmp_path):
    spec = training(tmp_path, COST)
    states, expected, ends = {}, [], [0]
    with wdspec.loader(spec, num_workers=0) as loader:
        for _ in range(4):
            for at, batch in enumerate(loader):
                expected.append(batch["__key__"])
                if at % 2:  # after a step of both ranks
                    states[len(expected) // 2] = json.loads(json.dumps(loader.state_dict()))
            ends.append(len(expected) // 2)
    for at in (1, ends[1] - 1, ends[1], ends[2] + 3, ends[3]):
        epoch = sum(end <= at for end in ends) - 1
        for rank in range(2):
            with wdspec.loader(spec, num_workers=0, rank=rank, world_size=2) as loader:
                loader.load_state_dict(states[at])
                assert loader.epoch == epoch
                rest = ends[epoch + 1] - at if epoch + 1 < len(ends) else None
                found = [batch["__key__"] for batch in loader]
                assert rest is None or len(found) == rest
                assert found[:10] == expected[2 * at + rank :: 2][: min(10, len(found))] or rest is None


def test_assert_resumable_finds_nothing(tmp_path):
    spec = training(tmp_path, COST)
    assert_resumable(lambda: wdspec.loader(spec, num_workers=0), stops=(0, 11, 47))


def test_a_state_says_where_its_epoch_starts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with wdspec.loader(training(tmp_path, COST), num_workers=0) as loader:
        first = len(list(loader)) // 2
        list(itertools.islice(loader, 4))
        state = loader.state_dict()
        length = len(loader) // 2
    assert state["epoch"] == [1, first]
    (tmp_path / "state.json").write_text(json.dumps(state))
    shown = CliRunner().invoke(state_command, ["state.json"]).output
    assert f"1, 2 of its {length} batches" in shown
    with (
        wdspec.loader(training(tmp_path, COST), num_workers=0) as loader,
        pytest.raises(wdspec.UsageError, match="is before its epoch, which starts at 999"),
    ):
        loader.load_state_dict(state | {"epoch": [1, 999]})


def test_a_state_after_an_epoch_does_not_plan_the_next_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with wdspec.loader(training(tmp_path, COST), num_workers=0) as loader:
        steps = len(list(loader)) // 2
        planned = set(loader.plan.finite._steps)
        state, epoch = loader.state_dict(), loader.epoch
        assert (state["epoch"], epoch) == ([1, steps], 1)
        assert set(loader.plan.finite._steps) == planned == {0}
    (tmp_path / "state.json").write_text(json.dumps(state))
    shown = CliRunner().invoke(state_command, ["state.json"]).output
    assert "1, at its start" in shown


def test_a_resumed_run_plans_no_epoch_before_that_of_its_state(tmp_path, monkeypatch):
    spec = training(tmp_path, COST)
    with wdspec.loader(spec, num_workers=0) as loader:
        for _ in range(5):
            list(loader)
        list(itertools.islice(loader, 4))
        state, expected = loader.state_dict(), [batch["__key__"] for batch in loader]
    epochs._epoch.cache_clear()  # which keeps the last plans for other loaders of this process
    with wdspec.loader(spec, num_workers=0) as loader:
        planned, plan_epoch = [], type(loader.plan.finite).plan_epoch
        monkeypatch.setattr(
            type(loader.plan.finite),
            "plan_epoch",
            lambda self, number: planned.append(number) or plan_epoch(self, number),
        )
        loader.load_state_dict(state)
        assert [batch["__key__"] for batch in loader] == expected
        assert planned == [5]


def test_a_change_within_an_epoch_begins_it_anew_and_counts_its_steps_from_there(tmp_path):
    spec = training(tmp_path, COST)
    with wdspec.loader(spec, num_workers=0) as loader:
        first = len(list(loader)) // 2
        list(itertools.islice(loader, 6))
        state = loader.state_dict()
    changed = training(tmp_path, {**COST, "window": 14})
    expected = read_epochs(changed, 3)
    assert len(expected[0]) // 2 != first
    with wdspec.loader(changed, num_workers=0) as loader:
        with pytest.warns(
            UserWarning, match="epoch 1 begins anew: the samples of its first 3 steps may be repeated"
        ):
            loader.load_state_dict(state, allow_changed=True)
        assert loader.epoch == 1
        assert loader.state_dict()["batch"] == first
        assert [batch["__key__"] for batch in loader] == expected[1]
        assert loader.state_dict()["batch"] == first + len(expected[1]) // 2
        list(itertools.islice(loader, 2))
        state = loader.state_dict()
    with wdspec.loader(changed, num_workers=0) as loader:
        loader.load_state_dict(state)
        assert [batch["__key__"] for batch in loader] == expected[2][2:]


@pytest.mark.parametrize("is_back", [False, True])
def test_a_change_between_batches_of_a_size_and_by_cost_begins_the_epoch_anew(tmp_path, is_back):
    specs = training(tmp_path, COST), training(tmp_path, {"size": 4, "collate": {"txt": "list"}})
    before, after = specs if is_back else specs[::-1]
    with wdspec.loader(before, num_workers=0) as loader:
        list(loader)
        list(itertools.islice(loader, 2))
        state = loader.state_dict()
    with wdspec.loader(after, num_workers=0) as loader:
        expected = [[batch["__key__"] for batch in loader] for _ in range(2)]
    with wdspec.loader(after, num_workers=0) as loader:
        with pytest.warns(UserWarning, match="epoch 1 begins anew"):
            loader.load_state_dict(state, allow_changed=True)
        assert [batch["__key__"] for batch in loader] == expected[1]


def test_other_costs_of_the_same_samples_are_another_order(tmp_path):
    spec = training(tmp_path, {**COST, "max_cost": 10_000, "window": 1000})
    with wdspec.loader(spec, num_workers=0) as loader:
        list(itertools.islice(loader, 2))
        state = loader.state_dict()
    write_shard(
        tmp_path / "a-0.tar",
        [(f"a{number:04d}", {"txt": b"other", "cls": b"0"}) for number in range(11)],
    )
    with (
        wdspec.loader(spec, num_workers=0) as loader,
        pytest.raises(wdspec.UsageError, match=r"pass\.counts"),
    ):
        loader.load_state_dict(state)


@pytest.mark.parametrize(
    "keys", [{"where": "txt.length > 9"}, {"select": f"{__name__}:is_long"}, {"subset": 0.5}]
)
def test_samples_that_are_dropped_leave_no_places(tmp_path, keys):
    spec = training(tmp_path, COST)
    spec["dataset"][0] |= keys
    assert not any(problem.code in ("E380", "W410") for problem in wdspec.validate(spec))
    evaluation = spec | {"epoch": "pass"}
    with wdspec.loader(evaluation, num_workers=0) as loader:
        expected = collections.Counter(keys_of(loader))
    assert 20 < sum(expected.values()) < 80
    with wdspec.loader(spec, num_workers=0) as loader:
        for _ in range(2):
            batches = list(loader)
            assert collections.Counter(keys_of(batches)) == expected
            assert all(len(set(batch["__mask__"].tolist())) == 1 for batch in batches)


def is_long(sample):
    """Whether the text is long."""
    return len(sample["txt"]) > 9


def test_damage_is_skipped_and_counted_once_in_each_epoch(tmp_path):
    spec = training(tmp_path, COST)
    corrupt(tmp_path / "a-1.tar", 4)
    for source in spec["dataset"]:
        source["errors"] = "skip"
    with wdspec.loader(spec | {"epoch": "pass"}, num_workers=0) as loader:
        expected, once = collections.Counter(keys_of(loader)), loader.stats().sources["a"].skipped
    assert sum(once.values()) == 1
    with wdspec.loader(spec, num_workers=0) as loader:
        for number in (1, 2):
            assert collections.Counter(keys_of(loader)) == expected
            skipped = loader.stats().sources["a"].skipped
            assert skipped == {code: number * count for code, count in once.items()}


def test_partners_are_those_of_their_samples(tmp_path):
    spec = training(tmp_path, {**COST, "collate": {"txt": "list", "json": "list"}})
    for shard in range(6):
        own = range(shard * 11, shard * 11 + 11)
        entries = [(f"a{number:04d}", {"json": str(number).encode()}) for number in own]
        write_shard(tmp_path / f"p-{shard}.tar", entries)
    [source, _] = spec["dataset"]
    source["join"] = {"shards": f"{tmp_path}/p-{{0..5}}.tar", "fields": "json"}
    spec |= {"dataset": [source], "defaults": {"extensions": "txt json"}}
    with wdspec.loader(spec, num_workers=0) as loader:
        for _ in range(2):
            pairs = []
            for batch in loader:
                pairs += zip(batch["__key__"], batch["json"], batch["__mask__"].tolist(), strict=True)
            real = [(key, partner) for key, partner, is_real in pairs if is_real]
            assert sorted(real) == [(f"a{number:04d}", number) for number in range(66)]


def draw(sample):
    """Add a random number to a sample."""
    return {**sample, "drawn": float(wdspec.sample_rng(sample).random())}


def test_random_numbers_depend_on_the_epoch_and_the_copy(tmp_path):
    spec = training(tmp_path, COST, map=f"{__name__}:draw")
    with wdspec.loader(spec, num_workers=0) as loader:
        drawn = []
        for batch in itertools.chain(*(loader for _ in range(2))):
            masked = zip(batch["drawn"].tolist(), batch["__mask__"].tolist(), strict=True)
            drawn += [number for number, is_real in masked if is_real]
    assert len(drawn) == len(set(drawn)) == 2 * sum(EVERY.values())


def test_limit_caps_an_epoch_and_each_epoch_has_other_samples(tmp_path):
    found = []
    with wdspec.loader(training(tmp_path, COST, limit=20), num_workers=0) as loader:
        for _ in range(4):
            found.append(keys_of(loader))
    assert all(len(keys) == 20 for keys in found)
    assert len(set().union(*found)) > 40


def test_data_loaders_of_torch_read_one_epoch_after_the_other(tmp_path):
    spec = training(tmp_path, COST)
    expected = read_epochs(spec, 3)
    loader = DataLoader(wdspec.compile(spec), batch_size=None, num_workers=0)
    assert [[batch["__key__"] for batch in loader] for _ in range(3)] == expected


def test_stats_count_what_was_received_over_epochs_and_resumes(tmp_path):
    spec = training(tmp_path, COST)
    with wdspec.loader(spec, num_workers=0) as loader:
        list(loader)
        list(itertools.islice(loader, 4))
        state = loader.state_dict()
    with wdspec.loader(spec, num_workers=0) as loader:
        loader.load_state_dict(state)
        list(loader)
        received = {name: source.received for name, source in loader.stats().sources.items()}
    assert received == {"a": 2 * 66, "b": 2 * 28}


def test_the_samples_of_a_step_are_shown_by_its_number_in_the_run_or_in_an_epoch(tmp_path):
    spec = training(tmp_path, COST)
    lengths = [len(batches) // 2 for batches in read_epochs(spec, 2)]
    with wdspec.loader(spec, num_workers=0) as loader:
        expected = read_steps(loader, 2 * sum(lengths) + 10)
    loaded = wdspec.load(spec)
    [of_run] = trace_steps(loaded, range(lengths[0] + 3, lengths[0] + 4))
    [of_epoch] = trace_steps(loaded, range(3, 4), epoch=1)
    at = 2 * (lengths[0] + 3)
    for trace in (of_run, of_epoch):
        assert trace.epoch == 1
        assert [sample.key for sample in trace.samples] == [*expected[at], *expected[at + 1]]
    with pytest.raises(wdspec.UsageError, match=f"an epoch has {lengths[1]} steps"):
        list(trace_steps(loaded, range(lengths[1], lengths[1] + 1), epoch=1))


def test_explain_simulate_and_preview_show_the_epochs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = training(tmp_path, COST)
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    with wdspec.loader(spec, num_workers=0) as loader:
        length = len(loader) // 2
        epoch = list(itertools.islice(loader, 2 * length))
    empty = sum(not any(batch["__mask__"]) for batch in epoch)
    assert empty > 0
    shown = CliRunner().invoke(explain, ["spec.yaml"]).output
    steps = f"{length} batches per canonical rank = 94 samples, across all ranks, and {empty} empty batches"
    assert f"{steps} (`__mask__`) in the first epoch, other numbers in later ones" in shown
    result = CliRunner().invoke(simulate, ["spec.yaml", "--epochs", "2", "--format", "json"])
    drawn = {each["name"]: each["by_epoch"] for each in json.loads(result.output)["sources"]}
    assert drawn == {"a": [66, 66], "b": [28, 28]}
    assert CliRunner().invoke(preview, ["spec.yaml", "-o", "page.html"]).exit_code == 0


def test_an_epoch_without_batches_is_an_error(tmp_path):
    spec = training(tmp_path, {**COST, "max_cost": 1, "overlong": "drop"})
    with pytest.raises(wdspec.UsageError, match="all samples of the pass were dropped"):
        wdspec.loader(spec, num_workers=0)
    source = {"name": "s", "shards": write_source(tmp_path, "s", 1, 3), "extensions": "txt"}
    spec = {"dataset": [source], "batch": COST, "epoch": {"pass": "drop", "reshuffle": True}}
    with pytest.raises(wdspec.UsageError, match="`drop` drops all samples of the pass"):
        wdspec.loader(spec | {"elastic": {"ranks": 4, "workers": 2}}, num_workers=0)
