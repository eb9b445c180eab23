"""`epoch: {pass: …, reshuffle: true}`: each epoch has every sample once, in another order, whatever reads it."""

import collections
import itertools
import json
import random
import warnings

import pytest
from click.testing import CliRunner
from reading import corrupt
from shardmaking import write_shard, write_source
from torch.utils.data import DataLoader

import wdspec
from wdspec.cli.explain import explain
from wdspec.cli.simulate import simulate
from wdspec.cli.stats import stats
from wdspec.testing import assert_resumable

TRAINING = {"batch": 4, "epoch": {"pass": "drop", "reshuffle": True}}


def training(folder, **more):
    """Two sources, of which one is repeated, on 4 × 2 slots."""
    first = {"name": "a", "shards": write_source(folder, "a", 9, 11), "repeat": 2}
    second = {"name": "b", "shards": write_source(folder, "b", 3, 7)}
    return {"dataset": [first, second], **TRAINING, "elastic": {"ranks": 4, "workers": 2}} | more


def keys_of(batches):
    """The keys that are no padding."""
    return [
        key
        for batch in batches
        for key, is_real in zip(batch["__key__"], batch["__mask__"].tolist(), strict=True)
        if is_real
    ]


def epochs(spec, count, **options):
    """The keys of the samples of some epochs, which one loader gives."""
    with wdspec.loader(spec, num_workers=0, **options) as loader:
        return [keys_of(loader) for _ in range(count)]


def steps_of(loader, count):
    """Some batches, over epochs."""
    found = []
    while len(found) < count:
        found += [batch["__key__"] for batch in loader]
    return found[:count]


def test_each_epoch_has_each_copy_of_each_sample_once_in_another_order(tmp_path):
    spec = training(tmp_path, epoch={"pass": "pad", "reshuffle": True})
    found = epochs(spec, 4)
    for keys in found:
        counts = collections.Counter(keys)
        assert len(counts) == 9 * 11 + 3 * 7
        assert all(count == (2 if key.startswith("a") else 1) for key, count in counts.items())
    assert len(set(map(tuple, found))) == 4


def test_drop_leaves_out_less_than_a_batch_and_other_samples_in_each_epoch(tmp_path):
    spec = {"dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 5, 9)}], **TRAINING}
    found = epochs(spec, 6)
    assert all(len(set(keys)) == len(keys) == 44 for keys in found)
    everything = set().union(*found)
    assert len(everything) == 45
    assert len({frozenset(everything.difference(keys)) for keys in found}) > 2


def test_any_number_of_ranks_and_workers_reads_the_same_global_batches(tmp_path):
    spec = training(tmp_path)
    with wdspec.loader(spec, num_workers=0) as whole:
        expected = steps_of(whole, 20)
    for ranks, workers in ((2, 0), (4, 0), (16, 0)):
        parts = []
        for rank in range(ranks):
            with wdspec.loader(spec, num_workers=workers, rank=rank, world_size=ranks) as loader:
                parts.append(steps_of(loader, 20))
        assert [[*itertools.chain(*step)] for step in zip(*parts, strict=True)] == expected


def test_worker_processes_and_threads_read_the_same(tmp_path):
    spec = training(tmp_path)
    expected = epochs(spec, 2)
    with wdspec.loader(spec, num_workers=2) as loader:
        assert [keys_of(loader) for _ in range(2)] == expected
    assert epochs(spec | {"loader": {"kind": "threads", "workers": 2}}, 2) == expected


def test_a_run_resumes_on_other_ranks_in_mid_epoch_and_at_its_ends(tmp_path):
    spec = training(tmp_path)
    with wdspec.loader(spec, num_workers=0) as whole:
        expected, length = steps_of(whole, 50), len(whole)
    states, seen = {}, 0
    with wdspec.loader(spec, num_workers=0) as loader:
        while seen < 33:
            for _ in loader:
                seen += 1
                states[seen] = json.loads(json.dumps(loader.state_dict()))
    for at in (1, 5, length - 1, length, length + 1, 2 * length, 2 * length + 3):
        parts = []
        for rank in range(2):
            with wdspec.loader(spec, num_workers=0, rank=rank, world_size=2) as loader:
                loader.load_state_dict(states[at])
                assert loader.epoch == at // length
                assert len(loader) == length
                loader.set_epoch(at // length)
                parts.append(steps_of(loader, 12))
        assert [[*itertools.chain(*step)] for step in zip(*parts, strict=True)] == expected[at : at + 12]


def test_assert_resumable_finds_nothing(tmp_path):
    spec = training(
        tmp_path, map="picks:jitter", batch={"size": 4, "collate": {"txt": "list", "cls": "list"}}
    )
    assert_resumable(lambda: wdspec.loader(spec, num_workers=0), stops=(0, 3, 6, 7, 11))


def test_an_iteration_that_is_left_early_is_continued(tmp_path):
    with wdspec.loader(training(tmp_path), num_workers=0) as loader:
        expected = steps_of(loader, len(loader))
    with wdspec.loader(training(tmp_path), num_workers=0) as loader:
        first = next(iter(loader))["__key__"]
        assert [first, *(batch["__key__"] for batch in loader)] == expected
        assert loader.epoch == 1


def test_set_epoch_refuses_another_epoch(tmp_path):
    with wdspec.loader(training(tmp_path), num_workers=0) as loader:
        with pytest.raises(wdspec.UsageError, match="the next iteration is epoch 0"):
            loader.set_epoch(1)
        list(loader)
        loader.set_epoch(1)


def draw(sample):
    """Add a random number to a sample."""
    return {**sample, "drawn": float(wdspec.sample_rng(sample).random())}


def test_random_numbers_depend_on_the_epoch_and_the_copy(tmp_path):
    source = {"name": "a", "shards": write_source(tmp_path, "a", 4, 10), "repeat": 2, "extensions": "txt"}
    spec = {
        "dataset": [source | {"map": f"{__name__}:draw"}],
        "batch": {"size": 5, "collate": {"txt": "list"}},
        "epoch": {"pass": "drop", "reshuffle": True},
    }
    with wdspec.loader(spec, num_workers=0) as loader:
        drawn = [number for _ in range(3) for batch in loader for number in batch["drawn"].tolist()]
    assert len(drawn) == len(set(drawn)) == 240


def test_random_numbers_do_not_depend_on_the_topology(tmp_path):
    shards = write_source(tmp_path, "a", 4, 10)
    source = {"name": "a", "shards": shards, "extensions": "txt", "map": f"{__name__}:draw"}
    found = []
    for workers in (1, 3):
        spec = {
            "dataset": [source],
            "batch": {"size": 5, "collate": {"txt": "list"}},
            "epoch": TRAINING["epoch"],
        }
        spec["elastic"] = {"ranks": 1, "workers": workers}
        with wdspec.loader(spec, num_workers=0) as loader:
            found.append(
                {
                    pair
                    for batch in loader
                    for pair in zip(batch["__key__"], batch["drawn"].tolist(), strict=True)
                }
            )
    assert found[0] == found[1]


def test_where_that_stats_has_counted_leaves_no_padding(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = {
        "name": "a",
        "shards": write_source(tmp_path, "a", 6, 10),
        "where": "cls >= 20",
        "repeat": 1.5,
    }
    spec = {"dataset": [source], "batch": 2, "epoch": {"pass": "pad", "reshuffle": True}, "stats": "s.json"}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    with pytest.raises(
        wdspec.UsageError, match=r"must be known before an epoch .*`wdspec stats SPEC`, which says why if"
    ):
        wdspec.loader("spec.yaml", num_workers=0)
    assert not CliRunner().invoke(stats, ["spec.yaml", "--jobs", "0"]).exit_code
    for keys in epochs("spec.yaml", 3):
        assert {int(key[1:4]) * 10 + int(key[4:]) for key in keys} == set(range(20, 60))
        assert max(collections.Counter(keys).values()) == 2


def test_where_that_nothing_has_counted_is_refused(tmp_path):
    source = {"name": "a", "shards": "a.tar", "where": "cls > 3"}
    [problem] = wdspec.validate({"dataset": [source], **TRAINING})
    assert problem.code == "E380"
    assert "`wdspec stats SPEC`" in problem.hint


@pytest.mark.parametrize("keys", [{"subset": 0.5}, {"exclude": ["a0000003", "a0010001"]}])
def test_samples_that_are_left_out_by_their_keys_have_no_place(tmp_path, keys):
    source = {"name": "a", "shards": write_source(tmp_path, "a", 2, 15), **keys}
    spec = {"dataset": [source], "batch": 1, "epoch": {"pass": "drop", "reshuffle": True}}
    plain = epochs(spec | {"epoch": "pass"}, 1)[0]
    spec["elastic"] = {"ranks": 1, "workers": 5}  # more slots than shards
    found = epochs(spec, 2)
    assert [sorted(keys) for keys in found] == [sorted(plain)] * 2
    assert found[0] != found[1]


def test_partners_are_those_of_their_samples(tmp_path):
    names = [f"k{i:02d}" for i in range(24)]
    for shard in range(2):
        own = names[shard * 12 : shard * 12 + 12]
        write_shard(tmp_path / f"a-{shard}.tar", [(key, {"txt": key.encode()}) for key in own])
        write_shard(tmp_path / f"p-{shard}.tar", [(key, {"cls": key[1:].encode()}) for key in own])
    source = {
        "name": "a",
        "shards": f"{tmp_path}/a-{{0..1}}.tar",
        "join": {"shards": f"{tmp_path}/p-{{0..1}}.tar", "fields": "cls"},
    }
    spec = {"dataset": [source], **TRAINING, "elastic": {"ranks": 1, "workers": 3}}
    with wdspec.loader(spec, num_workers=0) as loader:
        for _ in range(2):
            pairs = [
                (key, cls)
                for batch in loader
                for key, cls in zip(batch["__key__"], batch["cls"].tolist(), strict=True)
            ]
            assert sorted(pairs) == [(key, int(key[1:])) for key in names]


@pytest.mark.parametrize("workers", [1, 3, 7])
def test_damage_is_skipped_and_counted_once_in_each_epoch(tmp_path, workers):
    shards = write_source(tmp_path, "a", 3, 10)
    corrupt(tmp_path / "a-001.tar", 4)
    write_shard(tmp_path / "a-002.tar", [])
    (tmp_path / "a-002.tar").write_bytes(b"no tar " * 200)
    source = {"name": "a", "shards": shards, "errors": "skip"}
    spec = {"dataset": [source], "batch": 1, "epoch": {"pass": "pad", "reshuffle": True}}
    with wdspec.loader(spec | {"epoch": "pass"}, num_workers=0) as loader:
        expected, once = sorted(keys_of(loader)), loader.stats().sources["a"].skipped
    assert sum(once.values()) == 2
    spec["elastic"] = {"ranks": 1, "workers": workers}
    with wdspec.loader(spec, num_workers=0) as loader:
        for number in (1, 2):
            assert sorted(keys_of(loader)) == expected
            skipped = loader.stats().sources["a"].skipped
            assert skipped == {code: number * count for code, count in once.items()}


def test_a_shard_that_is_shared_by_slots_is_not_read_whole_by_each(tmp_path):
    write_shard(tmp_path / "a.tar", [(f"k{i:02d}", {"bin": bytes(1_000_000)}) for i in range(24)])
    source = {"name": "a", "shards": f"{tmp_path}/a.tar"}
    spec = {
        "dataset": [source],
        "batch": 1,
        "epoch": TRAINING["epoch"],
        "elastic": {"ranks": 1, "workers": 8},
    }
    with wdspec.loader(spec, num_workers=0) as loader:
        assert len(set(keys_of(loader))) == 24
        assert loader.stats().sources["a"].bytes < 4 * 24 * 1_000_000


def test_resuming_reads_at_most_a_mebibyte_before_the_place_of_each_lane(tmp_path):
    for shard in range(4):
        write_shard(
            tmp_path / f"a-{shard}.tar", [(f"{shard}x{i:02d}", {"bin": bytes(100_000)}) for i in range(80)]
        )
    source = {"name": "a", "shards": f"{tmp_path}/a-{{0..3}}.tar", "shuffle": 0, "interleave": 4}
    spec = {"dataset": [source], "batch": 4, "epoch": {"pass": "drop", "reshuffle": True}}
    with wdspec.loader(spec, num_workers=0) as loader:
        for _ in itertools.islice(loader, 70):
            pass
        state, expected = loader.state_dict(), next(iter(loader))["__key__"]
    with wdspec.loader(spec, num_workers=0) as loader:
        loader.load_state_dict(state)
        batch = next(iter(loader))
        assert batch["__key__"] == expected
        ahead = 2 * 256 * 1024  # what is read at once, and up to the next sample
        assert loader.stats().sources["a"].bytes < 4 * (1024 * 1024 + ahead + 256 * 100_000 // 4)


def test_limit_caps_an_epoch_and_each_epoch_has_other_samples(tmp_path):
    source = {"name": "a", "shards": write_source(tmp_path, "a", 10, 10)}
    spec = {"dataset": [source], **TRAINING, "limit": 20}
    found = epochs(spec, 5)
    assert all(len(set(keys)) == 20 for keys in found)
    assert len(set().union(*found)) > 50


def test_false_is_the_same_as_none(tmp_path):
    spec = {"dataset": [{"name": "a", "shards": write_source(tmp_path, "a", 3, 5)}], "batch": 2}
    with (
        wdspec.loader(spec | {"epoch": {"pass": "pad", "reshuffle": False}}, num_workers=0) as stated,
        wdspec.loader(spec | {"epoch": "pass"}, num_workers=0) as plain,
    ):
        assert stated.state_dict() == plain.state_dict()
        assert keys_of(stated) == keys_of(stated) == keys_of(plain)


def test_a_state_of_a_pass_without_reshuffle_is_refused(tmp_path):
    spec = training(tmp_path)
    with wdspec.loader(spec | {"epoch": {"pass": "drop"}}, num_workers=0) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with (
        wdspec.loader(spec, num_workers=0) as loader,
        pytest.raises(wdspec.UsageError, match=r"pass\.reshuffle"),
    ):
        loader.load_state_dict(state)


def test_a_change_within_an_epoch_begins_it_anew_and_says_so(tmp_path):
    spec = training(tmp_path)
    with wdspec.loader(spec, num_workers=0) as loader:
        length = len(loader)
        steps_of(loader, length)
        for _ in itertools.islice(loader, 3):
            pass
        state = loader.state_dict()
    changed = training(tmp_path, batch=2)
    with wdspec.loader(changed, num_workers=0) as loader:
        assert len(loader) != length
        list(loader)
        expected = [batch["__key__"] for batch in loader]
    with wdspec.loader(changed, num_workers=0) as loader:
        with pytest.warns(
            UserWarning, match="epoch 1 begins anew: the samples of its first 3 steps may be repeated"
        ):
            loader.load_state_dict(state, allow_changed=True)
        assert loader.epoch == 1
        assert [batch["__key__"] for batch in loader] == expected


def test_a_change_between_epochs_repeats_nothing(tmp_path):
    spec = training(tmp_path)
    with wdspec.loader(spec, num_workers=0) as loader:
        steps_of(loader, len(loader))
        state = loader.state_dict()
    with wdspec.loader(training(tmp_path, seed=5), num_workers=0) as loader:
        with pytest.warns(UserWarning, match="it continues with epoch 1$"):
            loader.load_state_dict(state, allow_changed=True)
        assert loader.epoch == 1


def test_a_data_loader_of_torch_reads_one_epoch_after_the_other(tmp_path):
    spec = training(tmp_path)
    expected = epochs(spec, 2)
    loader = DataLoader(wdspec.compile(spec), batch_size=None, num_workers=0)
    assert [keys_of(loader) for _ in range(2)] == expected


def test_a_data_loader_of_torch_with_new_workers_does_not_repeat_an_epoch(tmp_path):
    loader = DataLoader(wdspec.compile(training(tmp_path)), batch_size=None, num_workers=1)
    assert len(list(loader)) > 2
    with pytest.raises(wdspec.UsageError, match="would read the previous epoch again"):
        list(loader)


def test_stats_count_what_was_received_over_epochs_and_resumes(tmp_path):
    spec = training(tmp_path, epoch={"pass": "pad", "reshuffle": True})
    with wdspec.loader(spec, num_workers=0) as loader:
        list(loader)
        next(iter(loader))
        state = loader.state_dict()
    with wdspec.loader(spec, num_workers=0) as loader:
        loader.load_state_dict(state)
        keys_of(loader)
        received = {name: source.received for name, source in loader.stats().sources.items()}
    assert received == {"a": 2 * 2 * 99, "b": 2 * 21}


def test_shares_hold_after_every_step(tmp_path):
    spec = training(tmp_path, batch={"size": 3})
    with wdspec.loader(spec, num_workers=0) as loader:
        seen = of_b = 0
        for batch in loader:
            own = batch["__source__"].count("b")
            seen, of_b = seen + 12, of_b + own
            assert abs(own - 12 * 21 / 219) < 4
            assert abs(of_b - seen * 21 / 219) < 8


def test_explain_and_simulate_show_what_is_read_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = training(tmp_path, batch=1, elastic={"ranks": 1, "workers": 2})
    for source in spec["dataset"]:
        source.update(shuffle=0, interleave=1)
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    first = {}
    with wdspec.loader("spec.yaml", num_workers=0) as loader:
        length = len(loader)
        for step, batch in enumerate(loader):
            urls = first.setdefault((step % 2, batch["__source__"][0]), [])
            urls += [url for url in batch["__url__"] if url not in urls]
    slots = json.loads(CliRunner().invoke(explain, ["spec.yaml", "--format", "json"]).output)["slots"]
    shown = {(slot["worker"], slot["source"]): [turn["url"] for turn in slot["first"]] for slot in slots}
    assert shown == {slot: urls[: len(shown[slot])] for slot, urls in first.items()}
    result = CliRunner().invoke(simulate, ["spec.yaml", "--epochs", "2", "--format", "json"])
    simulated = json.loads(result.output)
    assert sum(source["total"]["drawn"] for source in simulated["sources"]) == 2 * length
    assert all(len(source["by_epoch"]) == 2 for source in simulated["sources"])


@pytest.mark.parametrize("keys", [{"select": "lib:is_good"}, {"missing": "skip", "extensions": "txt"}])
def test_samples_that_are_dropped_late_are_warned_about(keys):
    spec = {"dataset": [{"name": "a", "shards": "a.tar", **keys}], **TRAINING}
    assert [problem.code for problem in wdspec.validate(spec) if problem.code.startswith("W41")] == ["W410"]


def test_samples_whose_objects_are_lost_are_left_out_by_their_keys():
    fetch = {"image": {"url": "txt", "root": "images/", "missing": "skip"}}
    spec = {"dataset": [{"name": "a", "shards": "a.tar", "fetch": fetch}], **TRAINING}
    [problem] = [problem for problem in wdspec.validate(spec) if problem.code == "W410"]
    assert problem.hint.startswith(
        "write `missing: none`; or leave out samples that name no object by `where: default(txt, none) != none` with "
        "`stats`, and the keys of lost objects, which `check` lists, by `exclude`, or leave out `__mask__`"
    )


def test_samples_without_a_reference_and_those_of_lost_objects_leave_no_place_after_the_remedies_of_w410(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    images = [["a"], None, ["b"], ["a"], ["lost"], [], ["b", "a"], None]
    rows = ({"__key__": str(at), "images": each} for at, each in enumerate(images))
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for name in "ab":
        (tmp_path / name).write_text(name)
    fetch = {"pictures": {"url": "images", "root": str(tmp_path), "missing": "skip"}}
    source = {"name": "a", "shards": str(tmp_path / "a.jsonl"), "fetch": fetch}
    batch = {"size": 1, "collate": {"pictures": "list", "images": "list"}}
    spec = {"dataset": [source], "batch": batch, "epoch": {"pass": "drop", "reshuffle": True}}
    [problem] = [problem for problem in wdspec.validate(spec) if problem.code == "W410"]
    source["where"] = problem.hint.partition("where: ")[2].partition("`")[0]
    source["exclude"] = ["4"]
    (tmp_path / "spec.yaml").write_text(json.dumps({**spec, "stats": "s.json"}))
    assert not CliRunner().invoke(stats, ["spec.yaml", "--jobs", "0"]).exit_code
    with wdspec.loader("spec.yaml", num_workers=0) as loader:
        found = [(batch["__key__"][0], bool(batch["__mask__"][0])) for batch in loader]
    assert sorted(found) == [("0", True), ("2", True), ("3", True), ("5", True), ("6", True)]


def test_a_source_that_cannot_be_shuffled_is_warned_about():
    spec = {"dataset": [{"name": "a", "shards": "a.tar", "order": "sequential", "shuffle": 0}], **TRAINING}
    assert [problem.code for problem in wdspec.validate(spec)] == ["W411"]


def test_reshuffle_needs_a_pass():
    problems = wdspec.validate({"dataset": [{"shards": "a.tar"}], "epoch": {"samples": 9, "reshuffle": True}})
    assert [(problem.code, problem.hint) for problem in problems] == [("E206", "add `pass: drop`")]


def test_the_mixture_of_batches_is_as_diverse_as_that_of_an_endless_mix(tmp_path):
    """Sorted shards: the classes of a batch are those of an endless mix."""
    rng = random.Random(0)
    for shard in range(12):
        write_shard(
            tmp_path / f"a-{shard:02d}.tar",
            [(f"{shard}x{i}", {"cls": str(shard // 2).encode()}) for i in range(rng.randrange(60, 90))],
        )
    source = {"name": "a", "shards": f"{tmp_path}/a-{{00..11}}.tar", "shuffle": 100}
    spec, classes = {"dataset": [source], "batch": 32}, []
    for epoch in ({"batches": 24}, {"pass": "drop", "reshuffle": True}):
        with wdspec.loader(spec | {"epoch": epoch}, num_workers=0) as loader:
            found = [len(set(batch["cls"].tolist())) for _ in range(3) for batch in loader]
            classes.append(sum(found) / len(found))
    assert classes[1] > 0.9 * classes[0]


def test_nothing_is_logged_or_warned_about_in_a_plain_run(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(epochs(training(tmp_path), 2)) == 2
