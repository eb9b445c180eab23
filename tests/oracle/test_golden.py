"""What specs of every feature, and of every pair of them, give is what was recorded; so are runs after each change."""

from __future__ import annotations

import collections
import functools
import itertools
import json

import pytest
from oracle import cases, record
from oracle.cases import CASES, CHANGES, EXACT, WINDOWED, Leg
from oracle.data import write_data
from oracle.features import FEATURES, PAIRED, keys_of_order, keys_used
from oracle.samples import RunError

import wdspec
from wdspec.planning.digest import with_unsaid

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
RECORDS = record.load_records()
BY_NAME = {case.name: case for case in CASES}
FAST = ("plain", *FEATURES)
OBSERVED = ("steps", "len", "ends", "states", "returned", "error", "refused")
NEVER_STATED = frozenset(
    f"dataset.mix.{key}" for key in ("draw", "unit", "schedule.at", "schedule.shares", "schedule.ramp")
)
"""Keys that affect the order by the model, but that the rules allow at the top level only."""


def cases_and_speed(names):
    """Parameters: the names of cases, of which all but those of single features are long."""
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.long) for name in names]


def legs_and_speed():
    """Parameters: cases and legs; fast is every change of the plain case, and one of each feature with windows."""
    fast = {("plain", change) for change in CHANGES}
    fast |= {(name, change) for name in (*sorted(WINDOWED), "stage") for change in EXACT[::3]}
    return [
        pytest.param(case.name, leg.name, marks=() if (case.name, leg.change) in fast else pytest.mark.long)
        for case in CASES
        for leg in case.legs
        if leg.name in RECORDS[case.name].get("legs", {})
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oracle")
    write_data(folder)
    return folder


@pytest.fixture
def folder(data, monkeypatch):
    monkeypatch.chdir(data)
    return data


def versions_of(found):
    """The versions of the states in a record."""
    return {state["version"] for state in found.get("states", {}).values()}


def says_more(found, written):
    """Whether the states say more of the order than the recorded ones of an earlier version, and else the same."""
    orders = [
        [json.loads(state["order"]) for _, state in sorted(each.get("states", {}).items())]
        for each in (written, found)
    ]
    return orders[0] != orders[1] and orders[1] == [with_unsaid(*pair) for pair in zip(*orders, strict=True)]


def compare(found, written):
    """Compare with a record. A result that is known to be wrong may become the one that the model gives."""
    expected = {name: value for name, value in written.items() if name in OBSERVED}
    # states with windows or a stage have a newer format
    if versions_of(found) != versions_of(expected) or says_more(found, expected):
        found, expected = ({**each, "states": None} for each in (found, expected))
    if "wrong" not in written:
        assert found == expected
    elif found == expected:
        pytest.xfail(f"fault {written['wrong']}")
    else:
        assert found.get("steps") == written.get("right", written.get("steps"))
        assert "right_len" not in written or found["len"][: len(written["right_len"])] == written["right_len"]


@functools.cache
def observe(name):
    """What the spec of a case gives."""
    case = BY_NAME[name]
    return record.plain_json(record.observe(case.spec, calls=case.calls, cuts=record.CUTS))


@pytest.mark.parametrize("name", cases_and_speed(BY_NAME))
def test_a_spec_gives_what_was_recorded(name, folder):
    case, written = BY_NAME[name], RECORDS[name]
    assert case.spec == written["spec"]
    found = observe(name)
    if "refused" in written and "wrong" not in written:
        assert found == {"refused": written["refused"]}, "the rule has fallen: record what the spec gives now"
        return
    compare(found, written)


@pytest.mark.parametrize(("name", "leg_name"), legs_and_speed())
def test_a_run_resumes_with_a_changed_spec_as_recorded(name, leg_name, folder):
    leg = next(leg for leg in BY_NAME[name].legs if leg.name == leg_name)
    written = RECORDS[name]["legs"][leg_name]
    assert leg.spec == written["spec"]
    found = record.record_leg(leg, RECORDS[name]["states"][str(leg.cut)])
    compare(
        record.plain_json(
            {key: value for key, value in found.items() if key not in ("cut", "spec", "wrong")}
        ),
        written,
    )


@pytest.mark.parametrize(
    "name", cases_and_speed(name for name, written in RECORDS.items() if "states" in written)
)
def test_a_run_resumes_exactly_on_every_topology(name, folder):
    written = RECORDS[name]
    if "error" in written:
        pytest.skip(f"the run ends with {written['error']}")
    if "right" in written and "resumes_wrong" not in written:  # its states were saved in a wrong run
        written = {**written, "steps": written["right"], "states": {}}
    difference = record.compare_resumed(written, is_whole=name not in FAST)
    if difference and "resumes_wrong" in written:
        pytest.xfail(f"fault {written['resumes_wrong']}")
    assert not difference


@pytest.mark.parametrize(
    "name", cases_and_speed(name for name, written in RECORDS.items() if "states" in written)
)
def test_a_run_resumes_exactly_from_states_of_the_newest_format(name, folder):
    written = RECORDS[name]
    if "error" in written or "wrong" in written:
        pytest.skip("the run ends with an error, or its record is wrong")
    found = observe(name)
    if versions_of(found) == versions_of(written) and not says_more(found, written):
        return
    written = {**written, "states": found["states"], "resumed": {}}
    assert not record.compare_resumed(written, is_whole=name not in FAST)


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        pytest.param(name, cut, marks=() if name in FAST else pytest.mark.long)
        for name, written in RECORDS.items()
        for cut in written.get("resumed", ())
    ],
)
def test_a_run_resumes_from_a_state_of_an_older_order(name, cut, folder):
    case, written = BY_NAME[name], RECORDS[name]
    expected = written["resumed"][cut]
    assert record.plain_json(record.record_resumed(case, written, cut)) == expected
    if "error" in expected:  # a pass cannot end as it was planned, as its windows are planned before it
        assert "pass" in case.features
        return
    if case.wrong:  # the older release was at another position than by the rules
        return
    step = written["states"][cut]["batch"]
    model = record.model_of(case, Leg("none", int(cut), case.spec), step)
    assert record.model_steps(model, len(expected["steps"]), step) == expected["steps"]


@pytest.mark.parametrize("name", cases_and_speed(BY_NAME))
def test_the_model_gives_what_was_recorded(name, folder):
    case, written = BY_NAME[name], RECORDS[name]
    if "refused" in written:
        pytest.skip("refused")
    try:
        found = record.model_steps(record.model_of(case), record.STEPS)
    except RunError:
        assert "error" in written
        return
    assert found == written.get("right", written["steps"])


@pytest.mark.long
@pytest.mark.parametrize("name", [case.name for case in CASES if case.legs])
def test_the_model_gives_what_was_recorded_after_each_change(name, folder):
    case, written = BY_NAME[name], RECORDS[name]
    for leg in case.legs:
        after = written.get("legs", {}).get(leg.name)
        if after is None or "refused" in after or "error" in after:
            continue
        if leg.change == "tags" and "stage" in case.features and case.features & WINDOWED:
            continue  # the model keeps the samples of such an open window, the program makes them again
        step = written["states"][str(leg.cut)]["batch"]
        model = record.model_of(case, leg, step, written["made_at"])
        starts = [step] if model.begun is None else [step, model.begun]  # anew, if the order is another one
        found = [record.model_steps(model, record.MORE, start) for start in starts]
        assert after.get("right", after["steps"]) in found, leg.name


@pytest.mark.long
@pytest.mark.parametrize("name", ["plain", "window", "group", "pack", "stage", "pass", "selection"])
def test_worker_processes_resume_exactly(name, folder):
    written = RECORDS[name]
    with wdspec.loader(written["spec"], num_workers=2, rank=0, world_size=1) as loader:
        loader.load_state_dict(written["states"]["3"])
        found = [record.item_record(item) for item in itertools.islice(loader, 3)]
    later = written["resumed"]["3"]["steps"] if "resumed" in written else written["steps"][3:]
    items = [item for step in later for item in step]
    assert found == items[:3]


def test_every_key_that_affects_the_order_belongs_to_a_feature():
    owned = {key for feature in FEATURES.values() for key in feature.keys}
    assert keys_of_order() <= owned


def test_every_feature_and_every_pair_has_a_case():
    assert RECORDS.keys() == BY_NAME.keys()
    together = [case.features for case in CASES]
    for name in FEATURES:
        assert any(name in features for features in together), name
    for pair in itertools.combinations(PAIRED, 2):
        assert any(features >= set(pair) for features in together), pair


def test_every_key_that_affects_the_order_is_in_three_specs(folder):
    counts = collections.Counter(
        key for case in CASES if "refused" not in RECORDS[case.name] for key in keys_used(case.spec)
    )
    few = {key for key in keys_of_order() if counts[key] < 3}
    assert few == NEVER_STATED


@pytest.mark.parametrize("key", sorted(NEVER_STATED))
def test_a_nested_mix_cannot_have_keys_of_the_top_level(key, folder):
    mix = {"draw": "random"} if "draw" in key else {"unit": "batch"} if "unit" in key else None
    schedule = {"schedule": [{"at": 0, "shares": {"b": 1}, "ramp": "none"}]}
    spec = {
        "dataset": [
            {"name": "x", "mix": mix or schedule, "dataset": [{"name": "b", "shards": "b-{000..011}.tar"}]}
        ]
    }
    assert "E216" in {problem.code for problem in wdspec.validate(spec)}


def test_states_inside_windows_groups_and_stages_were_made_by_the_first_version(folder):
    for name in (*sorted(WINDOWED), "stage"):
        assert RECORDS[name]["made_at"] == record.MADE_AT
        assert set(RECORDS[name]["states"]) == {str(cut) for cut in record.CUTS}


def test_every_change_has_a_leg():
    legs = {
        leg.change for case in CASES for leg in case.legs if leg.name in RECORDS[case.name].get("legs", {})
    }
    assert legs == set(CHANGES)
    assert cases.FREE
