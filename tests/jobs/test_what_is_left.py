"""A source of which nothing is left is an error of `check` and a warning elsewhere, with the causes by count."""

import json

import pytest
from commandline import within
from shardmaking import write_shard

SHARD = [(f"{n:02d}", {"jpg": b"j", "cls": str(n % 3).encode()}) for n in range(6)]


@pytest.fixture
def folder(tmp_path):
    write_shard(tmp_path / "a.tar", SHARD)
    write_shard(tmp_path / "b.tar", [("b" + key, fields) for key, fields in SHARD])
    (tmp_path / "own.py").write_text("def never(sample):\n    return False\n")
    return tmp_path


def write(folder, source, *others, **top):
    sources = [{"name": "a", "shards": "a.tar", **source}, *others]
    (folder / "s.yaml").write_text(json.dumps({"dataset": sources, **top}))


def check(folder, *arguments, code):
    out, _ = within(
        "check", "s.yaml", "--jobs", "0", "--format", "json", *arguments, folder=folder, code=code
    )
    return [(each["code"], each["message"]) for each in json.loads(out)["problems"]]


def advice(folder, *command):
    report = json.loads(within(*command, "s.yaml", "--format", "json", folder=folder)[0])
    return report["files"][0]["warnings"] if "files" in report else report["warnings"]


CAUSES = [
    ({"rename": {"image": "jpg;png", "text": "txt"}, "missing": "skip"}, "6 of 6 lack `text` (`txt`)"),
    ({"extensions": "jpg txt", "missing": "skip"}, "6 of 6 lack `txt`"),
    ({"where": "cls > 7"}, "6 of 6 left out by `where`"),
    ({"keys": ["x"]}, "6 of 6 left out by `keys`"),
    ({"exclude": [key for key, _ in SHARD]}, "6 of 6 left out by `exclude`"),
    ({"subset": "0.1%"}, "6 of 6 left out by `subset`"),
    ({"select": "own:never"}, "6 of 6 left out by `select`"),
    (
        {"extensions": "jpg txt", "missing": "skip", "where": "cls == 1"},
        "6 of 6 lack `txt`",
    ),
    (
        {"extensions": "jpg txt", "missing": "skip", "exclude": ["01"]},
        "5 of 6 lack `txt`, 1 left out by `exclude`",
    ),
]


def test_the_text_of_check_counts_what_a_part_of_the_samples_lacks(folder):
    write_shard(folder / "a.tar", [*SHARD, ("06", {"jpg": b"j"})])
    write(folder, {"extensions": "jpg cls", "missing": "skip", "where": "default(cls, 0) < 2"})
    out, _ = within("check", "s.yaml", "--jobs", "0", folder=folder)
    assert "left out of `a`: 2 of 7 left out by `where`, 1 lack `cls`" in out


@pytest.mark.parametrize(("source", "why"), CAUSES)
def test_check_fails_if_nothing_is_left_and_says_why(folder, source, why):
    write(folder, source)
    [message] = [message for code, message in check(folder, code=1) if code == "D215"]
    assert message.startswith(f"no sample of `a` is left: {why}; ")


@pytest.mark.parametrize(
    "source", [each for each, _ in CAUSES if "select" not in each and "missing" not in each]
)
def test_explain_stats_and_simulate_warn_of_it(folder, source):
    write(folder, source)
    (said,) = [each for each in advice(folder, "explain") if "W393" in each]
    assert "no sample of `a`" in said
    assert advice(folder, "simulate", "--probe").count(said) == 1
    assert sum("W393" in each for each in advice(folder, "stats", "-o", "a.json")) == 1
    write(folder, source, stats="a.json")
    assert sum("W393" in each for each in advice(folder, "simulate")) == 1


@pytest.mark.parametrize("command", [("explain",), ("simulate", "--probe"), ("stats", "-o", "a.json")])
def test_the_remedy_of_a_missing_field_does_not_silence_its_warning(folder, command):
    write(folder, {"extensions": "jpg txt"})
    assert any("W503" in each and "missing: none" in each for each in advice(folder, *command))
    write(folder, {"extensions": "jpg txt", "missing": "skip"})
    assert any("so `missing: skip` drops all of them" in each for each in advice(folder, *command))
    write(folder, {"extensions": "jpg txt", "missing": "none"})
    assert not any("W503" in each for each in advice(folder, *command))


def test_one_dead_source_of_a_mix_is_found_and_a_source_that_is_off_is_not_judged(folder):
    write(folder, {"where": "cls > 7"}, {"name": "b", "shards": "b.tar"})
    [(code, message)] = check(folder, code=1)
    assert code == "D215"
    assert "`a`" in message
    write(folder, {"where": "cls > 7", "weight": 0}, {"name": "b", "shards": "b.tar", "weight": 1})
    assert check(folder, code=0) == []


def test_a_partial_check_does_not_claim_it_for_all_shards(folder):
    write(folder, {"shards": ["a.tar", "b.tar"], "keys": ["b01"]})
    assert check(folder, "--sample", "1", code=0) == [
        (
            "D330",
            "no sample of `a` is left: 6 of 6 left out by `keys` (1 of 2 shards read); compare `keys` with the keys "
            "of the samples (`wdspec ls`)",
        )
    ]
    assert check(folder, "--all", code=0) == []


def test_a_source_without_samples_fails_as_the_loader_does(folder):
    write_shard(folder / "a.tar", [])
    write(folder, {"empty": "allow"})
    assert check(folder, code=1) == [("D215", "no sample of `a` is left: its shards have no samples")]


def test_damaged_samples_are_not_reported_twice(folder):
    write_shard(folder / "a.tar", [(key, {"cls": b"x"}) for key, _ in SHARD])
    write(folder, {"errors": "skip"})
    assert {code for code, _ in check(folder, code=1)} == {"D202"}


def test_samples_with_errors_are_not_reported_as_left_out(folder):
    write_shard(folder / "a.tar", [(key, {"cls": b"x" if key > "01" else b"1"}) for key, _ in SHARD])
    write(folder, {"where": "cls > 7", "errors": "skip"})
    assert {code for code, _ in check(folder, code=1)} == {"D202"}


def test_a_source_whose_names_are_no_class_does_not_blame_where(folder):
    step = {"label": "cls", "names": {"cat": 0, "dog": 1}, "unknown": -100}
    write(folder, {"decode": {"cls": "txt"}, "make": {"class_id": step}, "where": "class_id >= 0"})
    [(code, message), *_] = check(folder, code=1)
    assert code == "D215"
    assert message.endswith(
        "6 of 6 left out by `where`; correct `make: class_id`, for which most names are no class"
    )


def test_little_that_is_left_is_a_warning_unless_it_is_meant(folder):
    write_shard(folder / "a.tar", [(f"{n:03d}", {"cls": str(n % 20).encode()}) for n in range(200)])
    write(folder, {"where": "cls == 3"})
    [(code, message)] = check(folder, code=0)
    assert code == "D330"
    assert "95.00% of 200 samples of `a` are dropped: 190 of 200 left out by `where`" in message
    assert "`expect: {dropped: 0.95}`" in message
    assert any("W393" in each for each in advice(folder, "explain"))
    for meant in ({"where": "cls == 3", "expect": {"dropped": 0.95}}, {"subset": "2%"}, {"keys": ["001"]}):
        write(folder, meant)
        assert check(folder, code=0) == []
        assert not any("W393" in each for each in advice(folder, "explain"))


def test_a_report_keeps_the_causes(folder):
    write(folder, {"where": "cls > 7"})
    first = check(folder, "--all", "--report", "r.db", code=1)
    assert check(folder, "--all", "--report", "r.db", code=1) == first
