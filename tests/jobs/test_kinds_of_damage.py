"""`wdspec check` names every kind of damage with shard, member and offset, and finds nothing in good shards."""

import json
from collections import defaultdict

import pytest
from commandline import within
from damage import SPEC, damaged, packed, samples
from shardmaking import write_shard

GOOD = 200


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """(kind of damage -> (shard, faults), shard -> problems) of one run over good and damaged shards."""
    folder = tmp_path_factory.mktemp("damage")
    names, faults = [], {}
    for number in range(GOOD):
        name = f"good-{number:04d}.tar"
        (folder / name).write_bytes(packed(samples(number)))
        names.append(name)
    for number, (kind, (data, expected, suffix)) in enumerate(damaged(GOOD).items(), GOOD):
        name = f"bad-{number:04d}{suffix}"
        if data is not None:
            (folder / name).write_bytes(data)
        names.insert(number * 7 % len(names), name)
        faults[kind] = name, expected
    (folder / "list.txt").write_text("\n".join(names))
    (folder / "s.yaml").write_text(SPEC.format(pattern="@list.txt"))
    out, _ = within("check", "s.yaml", "--all", "--jobs", "0", "--format", "json", folder=folder, code=1)
    found = defaultdict(list)
    for problem in json.loads(out)["problems"]:
        found[problem["shard"]].append(problem)
    return faults, found


KINDS = list(damaged(0))


def test_there_are_thirty_kinds():
    assert len(KINDS) >= 30


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_damage_is_reported_with_its_place(checked, kind):
    faults, found = checked
    name, expected = faults[kind]
    places = {(each["code"], each["member"], each["offset"]) for each in found[name]}
    for code, member, offset in expected:
        near = [place for place in places if place[0] == code]
        assert near, (code, found[name])
        if member is not None:
            assert member in [place[1] for place in near]
        if offset is not None:
            assert offset in [place[2] for place in near]
    assert {place[0] for place in places} == {fault.code for fault in expected}, found[name]


def test_nothing_is_reported_for_good_shards(checked):
    _, found = checked
    assert {
        shard: problems for shard, problems in found.items() if shard is None or shard.startswith("good")
    } == {}


@pytest.mark.parametrize("field", ["json", "cbor", "mp", "a.msgpack"])
def test_check_finds_a_name_that_occurs_twice_in_a_field(tmp_path, field):
    twice, once = {
        "json": (b'[{"x": 1, "x": 2}]', b'[{"x": 1, "y": {"x": 2}}]'),
        "cbor": (b"\x81\xa2\x61x\x01\x61x\x02", b"\x81\xa2\x61x\x01\x61y\xa1\x61x\x02"),
        "mp": (b"\x91\x82\xa1x\x01\xa1x\x02", b"\x91\x82\xa1x\x01\xa1y\x81\xa1x\x02"),
    }[field.replace("a.msgpack", "mp")]
    write_shard(tmp_path / "a.tar", [("k0", {field: once}), ("k1", {field: twice})])
    (tmp_path / "a.yaml").write_text("dataset: [{name: a, shards: a.tar}]\n")
    out, _ = within("check", "a.yaml", "--all", "--jobs", "0", "--format", "json", folder=tmp_path)
    found = [each for each in json.loads(out)["problems"] if each["code"] == "D320"]
    assert [(each["key"], each["field"], "'x'" in each["message"]) for each in found] == [("k1", field, True)]
