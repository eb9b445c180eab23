"""What `wdspec diff` says about open windows, groups and inputs of a stage is what happens to them."""

import collections
import itertools
import json
import warnings

import pytest
from commandline import within
from shardmaking import write_source

import wdspec

COST = {"cost": "txt.length", "max_cost": 60, "window": 30}
KINDS = {
    "a window": {"batch": COST},
    "a section of groups": {"batch": {"size": 4, "group_by": "cls > 50", "group_wait": 40, "window": 20}},
    "the input of a stage": {"stage": {"call": "oracle_functions:by_length", "every": 20}, "batch": 4},
    "a window of what a stage yields": {
        "stage": {"call": "oracle_functions:by_length", "every": 20},
        "batch": COST,
    },
}
CHANGES = {
    "weight": lambda new: new["dataset"][0].update(weight=5),
    "shuffle": lambda new: new["dataset"][0].update(shuffle=9),
    "interleave": lambda new: new["dataset"][0].update(interleave=3),
    "an added source": lambda new: new["dataset"].append(
        {**new["dataset"][0], "name": "c", "shards": new["dataset"][0]["shards"].replace("a-", "c-")}
    ),
    "a removed source": lambda new: new["dataset"].pop(),
    "where": lambda new: new["dataset"][1].update(where="cls > 7"),
    "missing": lambda new: new["dataset"][1].update(missing="skip"),
    "seed": lambda new: new.update(seed=9),
    "other batches": lambda new: new.update(batch={**COST, "max_cost": 90}),
}
WHY = {
    "a removed source": "the source `b` is gone",
    "where": "the source `b` has other shards, or is read in another order",
    "missing": "the source `b` leaves out other samples",
    "seed": "`seed` has changed",
}


def keys_of(loader, count):
    endless = itertools.chain.from_iterable(itertools.repeat(loader))
    return [key for batch in itertools.islice(endless, count) for key in batch["__key__"]]


@pytest.fixture
def spec(tmp_path):
    write_source(tmp_path, "c", 20, 10)
    return {
        "seed": 7,
        "dataset": [
            {"name": name, "shards": write_source(tmp_path, name, 20, 10), "weight": 1, "shuffle": 5}
            for name in "ab"
        ],
        "epoch": {"batches": 50},
        "elastic": {"ranks": 1, "workers": 2},
    }


@pytest.mark.parametrize("kind", KINDS)
def test_diff_says_whether_what_is_open_is_finished_or_starts_again(spec, kind, tmp_path):
    old = {**spec, **KINDS[kind]}
    (tmp_path / "old.json").write_text(json.dumps(old))
    with wdspec.loader(old, num_workers=0, rank=0, world_size=1) as loader:
        before = keys_of(loader, 4)
        state = json.loads(json.dumps(loader.state_dict()))
    (tmp_path / "state.json").write_text(json.dumps(state))
    for name, change in CHANGES.items():
        new = json.loads(json.dumps(old))
        change(new)
        (tmp_path / "new.json").write_text(json.dumps(new))
        of_any, of_state = (
            json.loads(within("diff", "old.json", "new.json", "--format", "json", *more, folder=tmp_path)[0])
            for more in ((), ("--state", "state.json"))
        )
        (any_section,), (section,) = of_any["state"]["sections"], of_state["state"]["sections"]
        assert any_section == {**section, "slots": None}
        assert section["inside"] == kind
        assert section["slots"] == 2
        assert section["why"] == WHY.get(name, "") or name == "other batches"
        with (
            wdspec.loader(new, num_workers=0, rank=0, world_size=1) as loader,
            warnings.catch_warnings(record=True) as said,
        ):
            warnings.simplefilter("always")
            loader.load_state_dict(state, allow_changed=True)
            seen = collections.Counter(before + keys_of(loader, 10))
        texts = " ".join(str(each.message) for each in said)
        assert (
            section["is_finished"] == (max(seen.values()) == 1) == ("2 of 2 slots were inside" not in texts)
        )
        assert section["why"] in texts
        shown, _ = within("diff", "old.json", "new.json", "--state", "state.json", folder=tmp_path)
        lines = [" ".join(line.split()) for line in shown.splitlines()]
        fate = (
            "is finished as it began" if section["is_finished"] else "starts again: some samples are repeated"
        )
        assert any(line.startswith(f"2 {kind} {fate}") for line in lines)


def test_a_state_between_two_windows_has_nothing_to_finish(spec, tmp_path):
    old = {**spec, "batch": {**COST, "max_cost": 10_000}}
    (tmp_path / "old.json").write_text(json.dumps(old))
    (tmp_path / "new.json").write_text(json.dumps({**old, "seed": 8}))
    with wdspec.loader(old, num_workers=0, rank=0, world_size=1) as loader:
        keys_of(loader, 4)
        (tmp_path / "state.json").write_text(json.dumps(loader.state_dict()))
    shown, _ = within("diff", "old.json", "new.json", "--state", "state.json", folder=tmp_path)
    assert "inside" not in shown
    assert "a window" in within("diff", "old.json", "new.json", folder=tmp_path)[0]


def test_diff_says_that_a_changed_pass_goes_on_at_its_batch(spec, tmp_path):
    old = {**spec, "batch": 4, "epoch": "pass"}
    for source in old["dataset"]:
        del source["weight"]
    new = json.loads(json.dumps(old))
    new["dataset"].pop(0)
    for name, each in (("old", old), ("new", new)):
        (tmp_path / f"{name}.json").write_text(json.dumps(each))
    with wdspec.loader(old, num_workers=0, rank=0, world_size=1) as loader:
        keys_of(loader, 4)
        state = loader.state_dict()
    shown, _ = within("diff", "old.json", "new.json", folder=tmp_path)
    assert "continues at the same global batch of the pass: samples may be left out or repeated" in shown
    with (
        wdspec.loader(new, num_workers=0, rank=0, world_size=1) as loader,
        pytest.warns(
            UserWarning, match=r"the pass has changed.*continues with global batch 4, and samples may be"
        ),
    ):
        loader.load_state_dict(state, allow_changed=True)


def test_an_added_source_leaves_open_windows_as_they_are_if_their_costs_read_renamed_fields(spec, tmp_path):
    for source in spec["dataset"]:
        source["rename"] = {"text": "txt"}
    old = {**spec, "batch": {**COST, "cost": "text.length"}}
    new = json.loads(json.dumps(old))
    new["dataset"].append({**new["dataset"][0], "name": "c", "shards": f"{tmp_path}/c-{{000..019}}.tar"})
    with wdspec.loader(old, num_workers=0, rank=0, world_size=1) as loader:
        seen = keys_of(loader, 4)
        state = loader.state_dict()
    with wdspec.loader(new, num_workers=0, rank=0, world_size=1) as loader:
        with pytest.warns(UserWarning, match="the sources, `decode`"):
            loader.load_state_dict(state, allow_changed=True)
        seen += keys_of(loader, 12)
    assert len({*seen}) == len(seen)
