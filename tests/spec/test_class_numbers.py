"""W457: classes that two sources or two splits number in different ways, compared with what `class_names` says.

W481: numbers of classes with a gap.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import wdspec
from wdspec import UsageError
from wdspec.spec.load import check


def find_renumbered(spec: dict[str, Any]) -> list[str]:
    return [each.message for each in check(spec)[1] if each.code == "W457"]


def mix(*classes: Any, **defaults: Any) -> dict[str, Any]:
    """A mix of one source for each value of `names`, or for each map of options."""
    steps = [each if isinstance(each, dict) and "names" in each else {"names": each} for each in classes]
    dataset = [
        {"name": name, "shards": f"{name}.tar", "make": {"labels": {"label": "cls", **defaults, **step}}}
        for name, step in zip("abc", steps, strict=False)
    ]
    return {"dataset": dataset}


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ([["cat", "dog"], ["dog", "cat"]], "'dog' is class 0 of `b`, but 1 of `a` in `labels`"),
        ([["cat", "dog"], ["cat", "bird"]], "class 1 is 'bird' of `b`, but 'dog' of `a` in `labels`"),
        ([["cat", "dog"], ["news", "sports"]], "class 0 is 'news' of `b`, but 'cat' of `a` in `labels`"),
        ([["cat"], ["cat"], {"cat": 1}], "'cat' is class 1 of `c`, but 0 of `a` in `labels`"),
        ([["cat"], {"cat": 1}, {"cat": 1}], "'cat' is class 1 of `b`, but 0 of `a` in `labels`"),
        ([["cat", "dog"], {"dog": 1, "cat": 0}], ""),
        ([["cat", "dog"], {"cat": 0, "kitty": 0, "dog": 1}], ""),
        ([["cat", "dog"], {"names": ["cat", "dog"], "aliases": {"kitty": "cat"}}], ""),
    ],
)
def test_sources_that_number_a_class_differently_are_one_warning(classes: list[Any], said: str) -> None:
    spec = mix(*classes)
    assert find_renumbered(spec) == [said] * bool(said)
    if said:
        with pytest.raises(UsageError, match="in two ways"):
            wdspec.load(spec).class_names("labels")
    else:
        wdspec.load(spec).class_names("labels")


def test_more_classes_in_one_source_do_not_contradict_the_other() -> None:
    assert find_renumbered(mix(["cat", "dog"], ["cat", "dog", "bird"])) == []


def test_files_are_compared_if_they_are_here(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("cat\ndog\n")
    (tmp_path / "b.json").write_text(json.dumps(["dog", "cat"]))
    spec = mix(["cat", "dog"])
    options = spec["dataset"][0]["make"]["labels"]
    for file, count in (("a.txt", 0), ("b.json", 1), ("absent.txt", 0)):
        other = {"label": "cls", "file": str(tmp_path / file)}
        two = [*spec["dataset"], {"name": "b", "shards": "b.tar", "make": {"labels": other}}]
        assert len(find_renumbered({"dataset": two})) == count, (file, options)


@pytest.mark.parametrize(
    ("train", "val", "said"),
    [
        (
            ["cat", "dog"],
            ["dog", "cat"],
            "'dog' is class 0 of the split `val`, but 1 of the split `train` in `labels`",
        ),
        (
            ["cat", "dog"],
            ["cat", "bird"],
            "class 1 is 'bird' of the split `val`, but 'dog' of the split `train`",
        ),
        (["cat", "dog"], ["news", "sports"], ""),
        (["cat", "dog"], ["cat", "dog", "bird"], ""),
    ],
)
def test_splits_with_a_common_class_number_it_alike(train: list[str], val: list[str], said: str) -> None:
    found = find_renumbered({"splits": {"train": mix(train), "val": {"dataset": mix(val)["dataset"]}}})
    assert len(found) == bool(said)
    assert all(each.startswith(said) for each in found)


def test_a_source_that_differs_in_one_split_is_reported_once() -> None:
    train = mix(["cat", "dog"], ["dog", "cat"])
    assert len(find_renumbered({"splits": {"train": train, "val": mix(["cat", "dog"])}})) == 1


@pytest.mark.parametrize(
    ("classes", "aliases", "column", "words"),
    [
        (
            "dog\ncat\n",
            {"Dog": "dgo"},
            100,
            "`Dog` is an alias of `dgo`, which is no class in .*; did you mean `dog`",
        ),
        ("dog\ncat\n", {"cat": "dog"}, 100, "`cat` is a class itself in "),
        ("dog\ncat\ndog\n", {}, 80, "has the class `dog` twice"),
        ("", {}, 80, "has no classes"),
    ],
)
def test_a_file_of_classes_is_checked_with_the_aliases(
    classes: str, aliases: dict[str, str], column: int, words: str, tmp_path: Path
) -> None:
    (tmp_path / "c.txt").write_text(classes)
    label = {"label": "cls", "file": "c.txt", "aliases": aliases, "unknown": -100}
    spec = {"dataset": [{"shards": "a.tar", "make": {"class_id": label}}]}
    (tmp_path / "s.yaml").write_text(json.dumps(spec))
    [problem] = check(tmp_path / "s.yaml")[1]
    assert (problem.code, problem.column) == ("E203", column)
    assert re.search(words, problem.message)
    with pytest.raises(wdspec.SpecError, match=words):  # before a run reads samples
        wdspec.load(tmp_path / "s.yaml")


def test_a_file_of_classes_that_is_not_here_is_a_warning_alone() -> None:
    label = {"label": "cls", "file": "absent.txt", "aliases": {"Dog": "dgo"}}
    found = check({"dataset": [{"shards": "a.tar", "make": {"class_id": label}}]})[1]
    assert [each.code for each in found] == ["W440"]


def tokenizer(*tokens: str, added: tuple[str, ...] = (), **more: Any) -> str:
    special = [{"content": each, "id": len(tokens) + at, "special": True} for at, each in enumerate(added)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return json.dumps({**more, "model": {"vocab": vocabulary}, "added_tokens": special})


FILES = {
    "ab.json": tokenizer("a", "b", added=("</s>",)),
    "copy.json": tokenizer("a", "b", added=("</s>",), truncation=None),
    "ba.json": tokenizer("b", "a", added=("</s>",)),
    "more.json": tokenizer("a", "b", added=("</s>", "<pad>")),
    "other.json": tokenizer("a", "b", added=("<end>",)),
    "scores.json": json.dumps({"model": {"vocab": [["b", -1.0], ["a", -2.0]]}, "added_tokens": []}),
}


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({"file": "ab.json"}, {"file": "ba.json"}, "'b' is token 0 of `b`, but 1 of `a` in `ids`"),
        ({"file": "ab.json"}, {"file": "scores.json"}, "'b' is token 0 of `b`, but 1 of `a` in `ids`"),
        (
            {"file": "ab.json"},
            {"file": "other.json"},
            "token 2 is '<end>' of `b`, but '</s>' of `a` in `ids`",
        ),
        ({"file": "ab.json"}, {"file": "folder"}, "'b' is token 0 of `b`, but 1 of `a` in `ids`"),
        (
            {"file": "ab.json", "eos": "</s>"},
            {"file": "ab.json"},
            "documents of `b` end with no `eos`, but those of `a` end with '</s>', in `ids`",
        ),
        ({"file": "ab.json"}, {"file": "ab.json", "truncate": 9}, ""),
        ({"file": "ab.json"}, {"file": "copy.json"}, ""),
        ({"file": "ab.json"}, {"file": "more.json"}, ""),
        ({"file": "ab.json"}, {"file": "absent.json"}, ""),
        ({"file": "ab.json", "eos": "</s>"}, {"file": "ab.json", "chat": "text", "template": "t.jinja"}, ""),
        (
            {"file": "ab.json"},
            {"file": "ba.json", "chat": "text", "template": "t.jinja"},
            "'b' is token 0 of `b`",
        ),
    ],
)
def test_sources_with_two_tokenizers_for_one_field_are_one_warning(
    one: dict[str, Any], other: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, text in {**FILES, "folder/tokenizer.json": FILES["ba.json"], "t.jinja": "x"}.items():
        (tmp_path / name).write_text(text)
    steps = [step if "chat" in step else {"tokenize": "text", **step} for step in (one, other, other)]
    sources = [
        {"name": name, "shards": f"{name}.jsonl", "make": {"ids": step}}
        for name, step in zip("abc", steps, strict=True)
    ]
    found = find_renumbered({"dataset": sources})
    assert len(found) == bool(said)
    assert all(said in each for each in found)
    (tmp_path / "s.yaml").write_text(
        json.dumps({"splits": {name: {"dataset": [each]} for name, each in zip("ab", sources, strict=False)}})
    )
    of_splits = [each.message for each in wdspec.validate("s.yaml") if each.code == "W457"]
    assert of_splits == [
        each.replace("`a`", "the split `a`").replace("`b`", "the split `b`") for each in found
    ]


RAW = {"name": "animals", "shards": "r.tar", "extensions": "jpg cls", "rename": {"labels": "cls"}}
NAMED = {"name": "shots", "shards": "n.tar", "make": {"labels": {"label": "txt", "names": ["cat", "dog"]}}}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"dataset": [RAW, NAMED]},
            "`labels` of `animals` has the numbers of its files, but `shots` numbers `names`",
        ),
        (
            {
                "dataset": [
                    {"name": "j", "shards": "j.jsonl", "make": {"labels": {"take": "json.label"}}},
                    NAMED,
                ]
            },
            "`labels` of `j` has the numbers of its files, but `shots` numbers `names`",
        ),
        (
            {"splits": {"train": {"dataset": [NAMED]}, "val": {"dataset": [RAW]}}},
            "`labels` of the split `val` has the numbers of its files, but the split `train` numbers `names`",
        ),
    ],
)
def test_numbers_of_files_beside_numbers_of_names_are_a_warning(spec: dict[str, Any], said: str) -> None:
    assert find_renumbered(spec) == [said]


@pytest.mark.parametrize(
    "spec",
    [
        {"dataset": [RAW, {**NAMED, "make": {"labels": {"label": "txt", "file": "classes.txt"}}}]},
        {"dataset": [{**RAW, "map": {"labels": "lib:renumber"}}, NAMED]},
        {"dataset": [RAW, NAMED], "map": "lib:renumber"},
        {"dataset": [{**RAW, "rename": {"label": "cls"}}, NAMED]},
        {"dataset": [RAW, RAW | {"name": "b", "shards": "b.tar"}]},
    ],
)
def test_numbers_of_files_that_may_be_those_of_the_names_are_none(spec: dict[str, Any]) -> None:
    assert not find_renumbered(spec)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (mix({"cat": 1, "dog": 2, "horse": 3}), "classes of `labels` are numbered from 1"),
        (mix({"cat": 0, "dog": 2, "horse": 2}), "classes of `labels` are up to 2 without 1"),
        (mix({"cat": 0, "dog": 1, "horse": 3, "car": -100}), "classes of `labels` are up to 3 without 2"),
        (mix({"cat": 0}, {"cat": 0, "dog": 2}), "classes of `labels` are up to 2 without 1"),
        (mix({"cat": 0, "dog": 1, "kitty": 0}), None),  # two names of one class
        (mix({"cat": 0}, {"dog": 1}), None),
        (mix({"cat": 281, "dog": 207}), None),  # some classes of many
        (mix({"names": {"yes": 1}, "unknown": 0}), None),
        (mix({"cat": 1, "dog": 2}, label="objects[:].category"), None),  # 0 is the background
    ],
)
def test_numbers_with_a_gap_are_a_warning(spec: dict[str, Any], said: str | None) -> None:
    found = [each.message for each in check(spec)[1] if each.code == "W481"]
    assert found == [said] * (said is not None)


def test_names_with_a_negative_number_are_no_classes() -> None:
    spec = mix({"cat": 0, "dog": 1, "car": -100, "bird": -1})
    assert wdspec.load(spec).class_names("labels") == ["cat", "dog"]


@pytest.mark.parametrize(
    ("where", "is_found"),
    [
        ("class_id > 0", True),
        ("0 < class_id and txt.length < 9", True),
        ("class_id >= 0", False),
        ("class_id >= 1", False),
        ("class_id > 0.5", False),
        ("class_id > 0 or txt.length < 9", False),
        ("json.class_id > 0", False),
    ],
)
def test_a_selection_that_leaves_out_the_first_class_is_doubted(tmp_path, where, is_found):
    (tmp_path / "classes.csv").write_text("name,number\ncat,0\ndog,1\nfox,-100\n")
    step = {"label": "txt", "file": "classes.csv"}
    source = {"shards": "a.tar", "extensions": "txt json", "make": {"class_id": step}, "where": where}
    path = tmp_path / "s.yaml"
    path.write_text(json.dumps({"dataset": [source]}))
    found = [problem.message for problem in wdspec.validate(path) if problem.code == "W491"]
    assert len(found) == is_found
    if is_found:
        assert "leaves out all samples of class 0 of `class_id`, 'cat'" in found[0]
        with pytest.warns(UserWarning, match="W491"):
            wdspec.load(path)


def test_numbers_above_0_are_not_doubted_where_class_0_is_none():
    for names in ({"cat": 1, "dog": 2}, ["__background__", "cat", "dog"]):
        step = {"label": "txt", "names": names}
        spec = {"dataset": [{"shards": "a.tar", "make": {"class_id": step}, "where": "class_id > 0"}]}
        assert "W491" not in [problem.code for problem in wdspec.validate(spec)]


@pytest.mark.parametrize(
    ("names", "aliases", "said"),
    [
        (["cat", "dog"], {"Cat": "dog"}, ["'Cat' stands for 'dog', but 'cat' is a class"]),
        (["cat", "dog"], {"Cat": "cat", "kitty": "cat"}, []),
        (["cat", "CAT", "dog"], {"Cat": "CAT"}, []),
        ({"cat": 0, "pet": 0}, {"Cat": "pet"}, []),
    ],
)
def test_an_alias_that_looks_like_a_class_does_not_stand_for_another_one(names, aliases, said):
    """W497, once for the sources of `defaults`."""
    make = {"labels": {"label": "txt", "names": names, "aliases": aliases}}
    spec = {"defaults": {"make": make}, "dataset": [{"shards": "a.tar"}, {"shards": "b.tar"}]}
    assert [each.message for each in wdspec.validate(spec) if each.code == "W497"] == said
