"""Companions: who gets which, that they do not depend on how a run is read, and that their errors are theirs."""

import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from commandline import within
from shardmaking import write_shard

import wdspec
from wdspec.cli.main import main as run_command
from wdspec.jobs.job import check_each_sample
from wdspec.shards.shards import list_shards


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Shards of 60 samples (a) and of 12 companions (n), which have their number as text."""
    monkeypatch.chdir(tmp_path)
    for name, shards, each in (("a", 4, 15), ("n", 3, 4)):
        for shard in range(shards):
            numbers = range(shard * each, (shard + 1) * each)
            write_shard(
                tmp_path / f"{name}-{shard}.tar",
                [(f"{name}{n:03}", {"txt": str(n).encode()}) for n in numbers],
            )
    return tmp_path


def make_spec(companion, **keys):
    source = {"name": "a", "shards": "a-{0..3}.tar", "companions": {"beside": companion}}
    source["make"] = {"other": {"take": "beside.txt", "default": "-"}}
    return {
        "companions": {"pool": {"shards": "n-{0..2}.tar"}},
        "dataset": [source],
        "fields": ["txt", "other"],
        "batch": 4,
        **keys,
    }


def pairs_of(spec, steps, state=None, allow_changed=False, workers=0):
    """The (sample, companion) pairs of some steps, and the state after them."""
    found = []
    with wdspec.loader(spec, num_workers=workers) as loader:
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)), allow_changed=allow_changed)
        while len(found) < steps:
            batches = islice(loader, steps - len(found))
            found += [list(zip(batch["txt"], batch["other"], strict=True)) for batch in batches]
        return found, loader.state_dict()


def test_each_companion_is_used_once_in_a_pass_over_their_source(folder):
    pairs, _ = pairs_of(make_spec("pool"), 30)
    others = [other for batch in pairs for _, other in batch]
    for start in range(0, 120, 12):
        assert sorted(others[start : start + 12], key=int) == [str(n) for n in range(12)]


def test_companions_of_a_batch_are_distinct_while_a_pass_has_enough(folder):
    pairs, _ = pairs_of(make_spec("pool", batch=6), 40)
    assert all(len({other for _, other in batch}) == 6 for batch in pairs)


@pytest.mark.parametrize(("count", "is_repetitive"), [(11, True), (5, False), (1, False)])
def test_samples_that_mostly_get_a_companion_twice_are_reported_once(count, is_repetitive, folder, recwarn):
    """Of 12 companions, each pass has one whole sample of 11 and a part of another; of 5, it has two."""
    spec = make_spec({"source": "pool", "count": count}, elastic={"ranks": 1, "workers": 1})
    pairs = pairs_of(spec, 20)[0]
    twice = [len({*other}) < count for batch in pairs for _, other in batch if count > 1]
    assert is_repetitive == (2 * sum(twice) > len(twice) > 0)
    said = [str(each.message) for each in recwarn if "one companion twice" in str(each.message)]
    assert len(said) == is_repetitive
    assert all(f"`count: {count}`" in each for each in said)


def test_pairs_are_random_over_five_passes_and_so_are_those_of_neighbours(folder):
    pairs, _ = pairs_of(make_spec("pool"), 75)
    counts = Counter(pair for batch in pairs for pair in batch)
    expected = 5 / 12
    square = sum((counts[str(a), str(n)] - expected) ** 2 / expected for a in range(60) for n in range(12))
    assert abs(square - 60 * 11) < 5 * (2 * 60 * 11) ** 0.5
    of_each = {
        str(a): [other for batch in pairs for sample, other in batch if sample == str(a)] for a in range(60)
    }
    steps = Counter(
        (int(second) - int(first)) % 12
        for a in range(59)
        for first, second in zip(of_each[str(a)], of_each[str(a + 1)], strict=False)
    )
    total = sum(steps.values())
    square = sum((steps[n] - total / 12) ** 2 / (total / 12) for n in range(12))
    assert square < 11 + 5 * 22**0.5


def test_who_gets_one_is_independent_between_passes(folder):
    pairs, _ = pairs_of(make_spec({"source": "pool", "chance": 0.4}), 600)
    got = {str(a): [] for a in range(60)}
    for batch in pairs:
        for sample, other in batch:
            got[sample].append(other != "-")
    passes = np.array([each[:40] for each in got.values()], float)
    assert abs(passes.mean() - 0.4) < 5 * (0.24 / passes.size) ** 0.5
    first, second = passes[:, :-1].ravel(), passes[:, 1:].ravel()
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / len(first) ** 0.5


def test_chance_0_gives_none_and_chance_1_gives_all(folder):
    assert {
        other for batch in pairs_of(make_spec({"source": "pool", "chance": 0}), 10)[0] for _, other in batch
    } == {"-"}
    assert "-" not in {other for batch in pairs_of(make_spec("pool"), 30)[0] for _, other in batch}


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"batch": {"cost": "txt.length", "max_cost": 9, "window": 8}},
        {"batch": {"group_by": "txt.length", "size": 2, "group_wait": 8, "window": 4}},
        {"epoch": {"pass": "drop", "reshuffle": True}},
    ],
    ids=["batches", "costs", "groups", "passes"],
)
def test_a_run_resumes_with_the_same_companions_after_every_step(folder, keys):
    spec = make_spec({"source": "pool", "chance": 0.7}, elastic={"ranks": 1, "workers": 2}, **keys)
    whole, _ = pairs_of(spec, 22)
    for cut in range(1, 22, 3):
        head, state = pairs_of(spec, cut)
        assert head + pairs_of(spec, 22 - cut, state)[0] == whole


def test_companions_do_not_depend_on_the_number_of_ranks(folder):
    spec = make_spec({"source": "pool", "count": 2}, elastic={"ranks": 2, "workers": 1})
    whole, _ = pairs_of(spec, 12)
    ranks = []
    for rank in range(2):
        with wdspec.loader(spec, num_workers=0, rank=rank, world_size=2) as loader:
            ranks.append(
                [list(zip(b["txt"], map(tuple, b["other"]), strict=True)) for b in islice(loader, 12)]
            )
    for both, one, two in zip(whole, *ranks, strict=True):
        assert {(txt, tuple(other)) for txt, other in both} == {*one, *two}


@pytest.mark.parametrize("stop", [15, 17])
def test_companions_do_not_depend_on_workers_that_do_not_divide_the_steps_of_an_epoch(folder, stop):
    keys = {"elastic": {"ranks": 1, "workers": 2}, "loader": {"kind": "threads"}}
    spec = make_spec("pool", epoch={"pass": "drop", "reshuffle": True}, **keys)
    expected, _ = pairs_of(spec, 40)
    begun, state = pairs_of(spec, stop, workers=2)
    resumed = [pairs_of(spec, 40 - stop, state, workers=workers)[0] for workers in (0, 2)]
    assert [begun + rest for rest in resumed] == [expected, expected]


def test_all_epochs_of_a_pass_that_is_not_reshuffled_are_equal(folder):
    spec = make_spec({"source": "pool", "chance": 0.5}, epoch="pass")
    pairs, _ = pairs_of(spec, 45)
    assert pairs[:15] == pairs[15:30] == pairs[30:45]
    head, state = pairs_of(spec, 20)
    assert head + pairs_of(spec, 25, state)[0] == pairs


WAYS = {
    "endless": {},
    "a pass": {"epoch": {"pass": "pad"}},
    "passes that reshuffle": {"epoch": {"pass": "drop", "reshuffle": True}},
    "windows by cost": {"batch": {"cost": "txt.length", "max_cost": 9, "window": 8}},
    "windows of a pass": {
        "batch": {"cost": "txt.length", "max_cost": 9, "window": 8},
        "epoch": {"pass": "drop", "reshuffle": True},
    },
    "groups": {"batch": {"group_by": "txt.length", "size": 2, "group_wait": 8, "window": 4}},
    "a stage": {"stage": {"call": "turning:turn", "every": 4}},
}


@pytest.mark.parametrize("companion", ["pool", {"source": "pool", "chance": 0.3, "count": 3}], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_companions_change_neither_the_order_of_samples_nor_their_random_numbers(folder, way, companion):
    (folder / "turning.py").write_text(
        "def turn(samples):\n"
        "    for one in samples:\n"
        "        two = next(samples, None)\n"
        "        yield from [one] if two is None else [two, one]\n"
    )
    plain = make_spec("pool", **WAYS[way], elastic={"ranks": 1, "workers": 2})
    source, more = plain["dataset"][0], make_spec(companion)["dataset"][0]
    del source["companions"]
    source["make"] = {"drawn": {"choose": ["txt", "__key__"]}}
    plain["fields"] = ["txt", "drawn"]
    with_them = {**plain, "dataset": [{**source, "companions": more["companions"]}]}
    with_them["dataset"][0]["make"] = {**source["make"], **more["make"]}
    with_them["fields"] = ["txt", "drawn", "other"]

    def read(spec):
        with wdspec.loader(spec, num_workers=0) as loader:
            found = []
            while len(found) < 40:
                found += [(batch["txt"], batch["drawn"]) for batch in islice(loader, 40 - len(found))]
            return found

    found = read(plain)
    assert found == read(with_them)
    assert len({txt for batch, _ in found for txt in batch}) > 40
    assert {drawn == txt for batch in found for txt, drawn in zip(*batch, strict=True)} == {True, False}


def test_a_run_resumes_with_companions_that_were_added_and_samples_go_on_exactly(folder):
    spec, more = make_spec("pool"), make_spec("pool")
    more["dataset"][0]["companions"]["new"] = {"source": "pool"}
    more["dataset"][0]["make"]["newer"] = {"take": "new.txt"}
    whole, _ = pairs_of(spec, 20)
    head, state = pairs_of(spec, 9)
    with pytest.raises(wdspec.UsageError, match="companions"):
        pairs_of(more, 11, state)
    with pytest.warns(UserWarning, match="changed"):
        assert head + pairs_of(more, 11, state, allow_changed=True)[0] == whole


def test_a_companion_costs_nothing_unless_the_cost_names_it(folder):
    batch = {"cost": "txt.length", "max_cost": 12, "window": 12}
    plain = make_spec("pool", batch=batch)
    without = make_spec("pool", batch=batch)
    without["dataset"][0] |= {"companions": {}, "make": {"other": {"take": "txt"}}}
    samples = [[txt for txt, _ in step] for step in pairs_of(plain, 30)[0]]
    assert samples == [[txt for txt, _ in step] for step in pairs_of(without, 30)[0]]
    named = make_spec("pool", batch=batch | {"cost": "txt.length + default(beside.txt.length, 0)"})
    pairs, _ = pairs_of(named, 30)
    assert all(sum(len(txt) + len(other) for txt, other in step) <= 12 for step in pairs)
    assert [[txt for txt, _ in step] for step in pairs] != samples


def test_an_undecodable_companion_is_an_error_of_its_source(folder):
    write_shard(folder / "bad.tar", [("good", {"json": b'{"v": "1"}'}), ("broken", {"json": b"{"})])
    spec = make_spec({"shards": "bad.tar", "shuffle": 0})
    spec["dataset"][0]["make"] = {"other": {"take": "beside.json.v"}}
    with pytest.raises(wdspec.WdspecError) as raised:
        pairs_of(spec, 3)
    assert raised.value.place["source"] == "a/beside"
    assert raised.value.place["key"] == "broken"


def test_a_companion_that_is_skipped_is_replaced_by_the_next_and_its_sample_stays(folder):
    write_shard(folder / "bad.tar", [("good", {"json": b'{"v": "1"}'}), ("broken", {"json": b"{"})])
    spec = make_spec({"shards": "bad.tar", "errors": {"skip": ["decode"]}})
    spec["dataset"][0]["make"] = {"other": {"take": "beside.json.v"}}
    pairs, _ = pairs_of(spec, 15)
    assert sorted(int(txt) for step in pairs for txt, _ in step) == list(range(60))
    assert {other for step in pairs for _, other in step} == {"1"}


def test_companions_without_a_sample_are_an_error_with_their_source(folder):
    spec = make_spec({"shards": "n-{0..2}.tar", "where": "txt == 'none'"})
    with pytest.raises(wdspec.ShardError, match="yielded nothing in a whole pass") as raised:
        pairs_of(spec, 1)
    assert raised.value.place["source"] == "a/beside"


def test_a_field_that_companions_do_not_have_is_an_error_with_those_that_they_have(folder):
    spec = make_spec("pool")
    spec["dataset"][0]["make"] = {"other": {"take": "beside.tx"}}
    with pytest.raises(
        wdspec.FieldError, match=r"no `tx` in it, which has the keys .*txt; write `beside.txt`"
    ):
        pairs_of(spec, 1)


def test_companions_under_the_name_of_a_file_are_an_error(folder):
    spec = make_spec("pool")
    spec["dataset"][0] |= {"companions": {"txt": "pool"}, "make": {}}
    del spec["fields"]
    with pytest.raises(wdspec.FieldError, match="already has a field of this name"):
        pairs_of(spec, 1)


def test_functions_read_companions_which_are_gone_after_map(folder):
    (folder / "withcompanions.py").write_text(
        "def join(sample):\n"
        "    return {**sample, 'other': '+'.join(each['txt'] for each in sample['beside'])}\n"
    )
    spec = make_spec({"source": "pool", "count": 2})
    spec["dataset"][0] |= {"make": {}, "map": "withcompanions:join"}
    del spec["fields"]
    with wdspec.loader(spec, num_workers=0) as loader:
        batch = next(iter(loader))
    assert "beside" not in batch
    assert all(other.count("+") == 1 for other in batch["other"])


def test_skipped_steps_take_their_companions_along(folder):
    spec = make_spec("pool")
    whole, _ = pairs_of(spec, 12)
    assert pairs_of({**spec, "skip": "3..6"}, 8)[0] == whole[:3] + whole[7:12]


def test_a_lock_has_the_shards_of_companions(folder):
    spec = make_spec("pool")
    spec["companions"]["pool"]["shards"] = "n-*.tar"
    (folder / "spec.yaml").write_text(json.dumps(spec))
    with pytest.raises(SystemExit, match="0"):
        run_command(["lock", "spec.yaml"])
    write_shard(folder / "n-9.tar", [("late", {"txt": b"99"})])
    loaded = wdspec.load("spec.yaml")
    assert len(list_shards(loaded).lists["pool"]) == 4
    assert len(list_shards(loaded, lock="spec.lock.json").lists["pool"]) == 3


def test_explain_lists_the_streams_and_batch_the_keys(folder, capsys):
    spec = make_spec({"source": "pool", "chance": 0.5})
    (folder / "spec.yaml").write_text(json.dumps(spec))
    shown = {}
    for command in (["explain"], ["batch", "--step", "2"]):
        with pytest.raises(SystemExit, match="0"):
            run_command([*command, "spec.yaml", "--format", "json"])
        shown[command[0]] = json.loads(capsys.readouterr().out)
    [stream] = shown["explain"]["companions"]
    assert (stream["source"], stream["companions"], stream["chance"], stream["shards"]) == (
        "a",
        "pool",
        0.5,
        3,
    )
    pairs, _ = pairs_of(spec, 3)
    keys = [each["companions"]["beside"] for each in shown["batch"]["samples"]]
    assert keys == [[] if other == "-" else [f"n{int(other):03}"] for _, other in pairs[2]]


def test_explain_names_the_missing_shards_and_directories_of_companions(folder):
    source = {"name": "a", "shards": "a-{0..3}.tar", "companions": {"x": "noise", "y": "same"}}
    companions = {"noise": {"shards": "gone-{000..002}.tar"}, "same": {"shards": "a-0.tar"}}
    (folder / "gone-001.tar").mkdir()
    (folder / "s.yaml").write_text(json.dumps({"dataset": [source], "companions": companions, "batch": 2}))
    found = json.loads(within("explain", "s.yaml", "--format", "json", folder=folder, code=1)[0])["warnings"]
    assert any(
        "W501 2 of 3 shards of `noise` do not exist, the first is `gone-000.tar`" in each for each in found
    )
    assert any("W502 `gone-001.tar` is a directory" in each for each in found)
    assert not any("W508" in each for each in found)  # companions may be samples of the mix


def test_jobs_that_read_shards_refuse_companions(folder):
    spec = wdspec.load({**make_spec("pool"), "output": "out/"})
    with pytest.raises(wdspec.UsageError, match=r"companions.* are drawn in the order of a run"):
        check_each_sample(spec, "`process`")


def test_a_state_is_refused_if_companions_come_from_a_source_of_another_name(folder):
    """The order of shards depends on the name of their source."""
    first = make_spec("pool")
    _, state = pairs_of(first, 3)
    renamed = make_spec("other", companions={"other": first["companions"]["pool"]})
    assert pairs_of(renamed, 6)[0] != pairs_of(first, 6)[0]
    with pytest.raises(wdspec.UsageError, match=r'companions\.a/beside\.source: was "pool", now "other"'):
        pairs_of(renamed, 3, state)
