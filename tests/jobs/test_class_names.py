"""`check` lists the names that `label` has no class for, and the aliases and classes that no sample has."""

import json
from pathlib import Path
from typing import Any

import pytest
from commandline import wdspec, within

from wdspec import load


def problems_of(
    folder: Path, label: dict[str, Any], names: list[str | None], shards: int = 1, *options: object
) -> list[str]:
    """What `check` says of samples with these names, by D341 and W531, in shards with all of them each."""
    for shard in range(shards):
        rows = [{"kind": name, "n": number} for number, name in enumerate(names)]
        (folder / f"a-{shard}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    make = {"class_id": {"label": "kind", "unknown": -100, **label}}
    spec = {"dataset": [{"name": "a", "shards": "a-*.jsonl", "make": make}], "fields": ["n", "class_id"]}
    (folder / "s.yaml").write_text(json.dumps(spec))
    report = json.loads(within("check", "s.yaml", "--format", "json", *options, folder=folder)[0])
    assert {each["code"] for each in report["problems"]} <= {"D301", "D304", "D341", "W512", "W531"}
    return [each["message"] for each in report["problems"] if each["code"] in ("D341", "W531")]


def test_a_misspelled_alias_is_named_with_the_name_that_it_misses(tmp_path: Path) -> None:
    label = {"names": ["cat", "dog"], "aliases": {"pupppy": "dog"}}
    [said] = problems_of(tmp_path, label, ["cat", "dog", "puppy", "puppy", "owl"], 2)
    assert said == (
        "`make: class_id`: 6 of 10 names are no class, and get -100: 'puppy' (4), 'owl' (2); "
        "no sample has 'pupppy'; if 'owl' is no class on purpose, say so by "
        "`names: {\"cat\": 0, …, \"owl\": -100}`; did you write 'pupppy' for 'puppy'?"
    )


def test_a_warning_of_a_process_has_no_path_of_our_code(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"kind": "cat"}\n{"kind": "kitty"}\n' * 40)
    make = {"class_id": {"label": "kind", "unknown": -100, "names": ["cat", "KITTY"]}}
    source = {"name": "a", "shards": "a.jsonl", "make": make, "where": "class_id >= 0"}
    (tmp_path / "s.yaml").write_text(json.dumps({"dataset": [source], "stats": "stats.json"}))
    shown, said = wdspec("stats", "s.yaml", "--jobs", 1, folder=tmp_path)
    [line] = said.splitlines()
    assert line.startswith("warning: `a`: `label` has no class for 'kitty', but 'KITTY'")
    assert "W459 `make: class_id` of `a`: 40 names are no class, and get -100: 'kitty' (40); add" in shown


def advice_on_names(folder: Path, command: str, **keys: object) -> list[str]:
    """What a command says of the names that `where` leaves out, in two shards of 30 samples."""
    for shard in range(2):
        (folder / f"a-{shard}.jsonl").write_text('{"kind": "dog"}\n{"kind": "Dog"}\n{"kind": "owl"}\n' * 10)
    label = {"label": "kind", "unknown": -1, "names": {"dog": 0, "bat": -1}, **keys}
    source = {"name": "a", "shards": "a-*.jsonl", "make": {"class_id": label}}
    spec = {"dataset": [{**source, "where": "class_id >= 0"}], "fields": "class_id", "stats": "s.stats.json"}
    (folder / "s.yaml").write_text(json.dumps(spec))
    said = "".join(within(command, "s.yaml", folder=folder))
    return [line for line in said.splitlines() if "W459" in line or "W531" in line]


@pytest.mark.parametrize("name", ["file", "names"])
def test_stats_and_explain_name_the_names_without_class_that_where_leaves_out(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "c.csv").write_text("dog,0\nbat,-1\n")
    keys = {"file": "c.csv", "names": None} if name == "file" else {}
    of_explain, *others = advice_on_names(tmp_path, "explain", **keys)
    counted = "W459 `make: class_id` of `a`: 40 names are no class, and get -1: 'Dog' (20), 'owl' (20)"
    assert not others
    assert f"{counted}, in 60 samples; add those that are classes to `aliases`; if 'owl' is no" in of_explain
    assert ("with the line `owl,-1`" if name == "file" else '`names: {"dog": 0, …, "owl": -1}`') in of_explain
    for command in ("stats", "stats", "explain"):  # the file keeps what was counted
        [said] = advice_on_names(tmp_path, command, **keys)
        assert f"{counted}; add " in said


def test_names_that_the_remedy_of_stats_names_are_no_longer_reported(tmp_path: Path) -> None:
    assert advice_on_names(tmp_path, "stats")
    remedy = {"names": {"dog": 0, "bat": -1, "owl": -1}, "aliases": {"Dog": "dog"}}
    for command in ("explain", "stats", "explain"):
        assert advice_on_names(tmp_path, command, **remedy) == []
    names = json.loads((tmp_path / "s.stats.json").read_text())["sources"]["a"]
    assert names["kept"] == 40
    assert "names" not in names


def test_classes_that_no_sample_has_are_listed_if_all_shards_were_read(tmp_path: Path) -> None:
    label, names = {"names": ["cat", "dog", "zebra"]}, ["cat", "dog", "owl"]
    [said] = problems_of(tmp_path, label, names, 2)
    assert said.endswith(
        ": 'owl' (2); no sample has 'zebra'; add the names that are classes to `aliases`; "
        'if \'owl\' is no class on purpose, say so by `names: {"cat": 0, …, "owl": -100}`'
    )
    [said] = problems_of(tmp_path, label, names, 2, "--sample", 1)
    assert "zebra" not in said


@pytest.mark.parametrize(
    "label", [{"names": ["cat", "dog", "owl"]}, {"names": ["cat", "dog"], "unknown": "error"}]
)
def test_names_that_are_all_classes_are_no_problem_and_neither_are_classes_without_samples(
    tmp_path: Path, label: dict[str, Any]
) -> None:
    assert problems_of(tmp_path, label, ["cat", "dog", " cat\n", "dog"]) == []


def test_names_that_have_the_number_of_unknown_ones_are_left_out_on_purpose(tmp_path: Path) -> None:
    label = {"names": {"cat": 0, "dog": 1, "owl": -100}}
    assert problems_of(tmp_path, label, ["cat", "dog", "owl"]) == []
    assert load(tmp_path / "s.yaml").class_names("class_id") == ["cat", "dog"]
    [said] = problems_of(tmp_path, label, ["cat", "dog", "owl", "bat"])
    assert "1 of 4 names are no class, and get -100: 'bat' (1)" in said


def test_a_file_of_classes_says_by_a_line_what_is_no_class(tmp_path: Path) -> None:
    (tmp_path / "classes.csv").write_text("cat,0\n")
    label = {"file": "classes.csv"}
    [said] = problems_of(tmp_path, label, ["cat", "owl"])
    assert said.endswith("say so by a `.csv` file of classes with the line `owl,-100`")
    (tmp_path / "classes.csv").write_text("cat,0\nowl,-100\n")
    assert problems_of(tmp_path, label, ["cat", "owl"]) == []


def test_aliases_of_other_splits_are_no_problem_where_all_names_are_classes(tmp_path: Path) -> None:
    assert problems_of(tmp_path, {"names": ["cat"], "aliases": {"kitty": "cat"}}, ["cat", "cat"]) == []


def test_each_name_of_a_list_counts(tmp_path: Path) -> None:
    lists: Any = [["cat", "owl"], [], ["dog", "owl", "cat"]]
    [said] = problems_of(tmp_path, {"names": ["cat", "dog"]}, lists)
    assert "2 of 5 names are no class, and get -100: 'owl' (2)" in said


def test_an_alias_is_seen_after_a_thousand_other_names(tmp_path: Path) -> None:
    """As many names as ImageNet has classes, and more names than are counted."""
    names = [f"n{number:05d}" for number in range(1_200)]
    label = {"names": ["cat", *names[:1_000]], "aliases": {"kitty": "cat"}}
    [said] = problems_of(tmp_path, label, [*names, "kitty"])
    assert "200 of 1,201 names are no class" in said
    assert "kitty" not in said


@pytest.mark.parametrize(("most", "is_said"), [(3, False), (4, True)])
def test_nothing_is_said_of_names_that_were_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, is_said: bool
) -> None:
    monkeypatch.setattr("wdspec.advice.class_names.MOST_NAMES", most)
    label = {"names": ["cat", "dog"], "aliases": {"kitty": "cat"}}
    [said] = [
        each
        for each in problems_of(tmp_path, label, ["cat", "owl", "bat"], 1, "--jobs", 0)
        if "no class" in each
    ]
    assert ("no sample has" in said) == is_said


def check_pets_and_web(folder: Path, **keys: Any) -> list[dict[str, Any]]:
    """The problems D341 of two sources with the same step: only `web` has names that are no class."""
    for name, kinds in {"pets": ["cat", "dog", "cat"], "web": ["cat", "bird", "Dog", "bird"]}.items():
        (folder / f"{name}.jsonl").write_text(
            "".join(json.dumps({"kind": kind, "n": 1}) + "\n" for kind in kinds)
        )
    make = {"class_id": {"label": "kind", "names": ["cat", "dog"], "unknown": -100}}
    dataset = [{"name": name, "shards": f"{name}.jsonl"} for name in ("pets", "web")]
    spec = {"defaults": {"make": make, **keys}, "dataset": dataset, "fields": ["n", "class_id"]}
    (folder / "s.yaml").write_text(json.dumps(spec))
    report = json.loads(within("check", "s.yaml", "--format", "json", folder=folder)[0])
    return [each for each in report["problems"] if each["code"] == "D341"]


def test_the_source_that_has_the_names_is_named_and_not_the_first_with_the_step(tmp_path: Path) -> None:
    [problem] = check_pets_and_web(tmp_path)
    assert problem["source"] == "web"
    assert (
        "3 of 7 names of `pets`, `web` are no class, and get -100: 'bird' (2), 'Dog' (1)"
        in problem["message"]
    )


def test_names_of_samples_that_where_drops_for_them_are_counted_too(tmp_path: Path) -> None:
    [problem] = check_pets_and_web(tmp_path, where="class_id >= 0")
    assert "3 of 7 names" in problem["message"]


def test_names_of_samples_that_where_drops_for_another_value_are_not_counted(tmp_path: Path) -> None:
    [problem] = check_pets_and_web(tmp_path, where="kind != 'bird'")
    assert "1 of 5 names" in problem["message"]


def test_minus_100_is_no_negative_class_as_losses_leave_it_out(tmp_path: Path) -> None:
    """`label` itself proposes it for names that are no class."""
    rows = [{"cls": number} for number in (0, -100, 1, -1)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "s.yaml").write_text(json.dumps({"dataset": [{"shards": "a.jsonl"}]}))
    report = json.loads(within("check", "s.yaml", "--format", "json", folder=tmp_path, code=1)[0])
    assert [each["key"] for each in report["problems"] if each["code"] == "D209"] == ["a/3"]
