"""`label`: the names of classes become numbers, by any kind of list."""

import json

import numpy as np
import pytest

import wdspec
from wdspec.base.errors import FieldError, SpecError
from wdspec.spec.language.class_files import class_names, read_class_file
from wdspec.steps import make_label


def test_names_are_numbered_in_their_order():
    label = make_label(names={"cat": 0, "dog": 1})
    assert [label(name) for name in ("dog", "cat", "dog")] == [1, 0, 1]


def test_numbers_are_looked_up_by_their_text():
    label = make_label(names={"281": 0, "207": 1})
    assert [label(281), label(207), label("207")] == [0, 1, 1]


@pytest.mark.parametrize("unknown", ["error", -100])
def test_the_number_of_a_class_is_not_taken_for_an_unknown_name(unknown):
    """With `unknown: -100`, the labels of all samples would be -100."""
    label = make_label(names={"cat": 0, "dog": 1}, unknown=unknown)
    with pytest.raises(
        FieldError, match="this is the number 1; if it is that of its class, leave the step out"
    ):
        label(1)
    assert make_label(names={"281": 0, "207": 1}, unknown=-100)(1) == -100
    assert make_label(names={"cat": 0, "dog": 1}, unknown=-100)(-1) == -100


def test_a_list_of_names_becomes_an_array_of_numbers_at_the_same_places():
    label = make_label(names={"cat": 0, "dog": 1}, aliases={"kitty": "cat"}, unknown=-100)
    for names in (["dog", "owl", "kitty", " dog"], np.array(["dog", "owl", "kitty", "dog"])):
        found = label(names)
        assert found.dtype == np.int64
        assert found.tolist() == [1, -100, 0, 1]
    numbers = make_label(names={"1": 0, "18": 2})
    for array in (np.array([18, 1]), np.array([18, 1], np.uint8), np.array([18, 1], object)):
        assert numbers(array).tolist() == [2, 0]
    with pytest.raises(FieldError, match="has no class '3'"):
        numbers(np.array([1, 3]))
    assert label([]).shape == (0,)
    assert label([]).dtype == np.int64


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["cat", None], "in each item, but item 1 is None"),
        ([["cat"], "cat"], r"in each item, but item 0 is \['cat'\]"),
        (["cat", "dgo"], "no class 'dgo'; did you mean `dog`"),
        (["cat", 1], "this is the number 1"),
    ],
)
def test_an_item_that_is_no_name_is_an_error(names, message):
    with pytest.raises(FieldError, match=message):
        make_label(names={"cat": 0, "dog": 1})(names)


def test_the_names_of_objects_and_their_boxes_keep_their_places(tmp_path):
    rows = [
        {"objects": [{"category": "dog", "box": [0, 0, 2, 2]}, {"category": "cat", "box": [1, 1, 3, 3]}]},
        {"objects": []},
        {"objects": [{"category": "cat", "box": [0, 1, 2, 2]}]},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    make = {"class_ids": {"label": "objects[:].category", "names": ["cat", "dog"]}}
    spec = {
        "dataset": [{"shards": str(tmp_path / "a.jsonl"), "make": make}],
        "fields": ["class_ids", "objects"],
        "epoch": "pass",
        "batch": {"size": 3, "collate": {"class_ids": "list", "objects": "list"}},
    }
    (batch,) = wdspec.loader(spec)
    found = {
        tuple(each["category"] for each in objects): ids.tolist()
        for objects, ids in zip(batch["objects"], batch["class_ids"], strict=True)
    }
    assert found == {("dog", "cat"): [1, 0], (): [], ("cat",): [0]}


def test_lists_of_classes_are_not_padded_with_one() -> None:
    make = {"class_ids": {"label": "objects[:].category", "names": ["cat", "dog"]}}
    spec = {"dataset": [{"shards": "a.jsonl", "make": make}]}
    for pad, codes in (("pad", ["E378"]), ({"pad": {"value": 0}}, ["W446"]), ({"pad": {"value": -100}}, [])):
        found = wdspec.validate({**spec, "batch": {"size": 2, "collate": {"class_ids": pad}}})
        assert [each.code for each in found if each.code in ("E378", "W446")] == codes


@pytest.mark.parametrize("name", ["cat\n", " cat", "cat\r\n", "\tcat "])
def test_space_around_a_name_does_not_count(name):
    assert make_label(names={"dog": 3, "cat": 7})(name) == 7


def test_a_name_with_space_inside_is_a_name_of_its_own():
    label = make_label(names={"polar bear": 1, "bear": 0})
    assert label("polar bear") == 1
    with pytest.raises(FieldError, match="no class 'polarbear'; did you mean `polar bear`"):
        label("polarbear")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.txt", "cat\ndog\nbird\n"),
        ("list.names", "cat\r\ndog\r\nbird"),
        ("list.json", '["cat", "dog", "bird"]'),
        ("map.json", '{"dog": 1, "cat": 0, "bird": 2}'),
        ("id2label.JSON", '{"0": "cat", "2": "bird", "1": "dog"}'),
        ("bare.csv", "cat,0\ndog,1\nbird,2\n"),
        ("header.csv", "name,number\ncat,0\ndog,1\n\nbird,2\n"),
        ("tabs.tsv", "cat\t0\ndog\t1\nbird\t2\n"),
        ("quotes.csv", '"cat",0\n"dog", 1\nbird,2\n'),
        ("bom.csv", "\ufeffcat,0\ndog,1\nbird,2\n"),
    ],
)
def test_every_kind_of_file_gives_the_same_numbers(name, text, tmp_path):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8", newline="")
    assert read_class_file(str(file)) == {"cat": 0, "dog": 1, "bird": 2}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "", "has no classes"),
        ("a.txt", "cat\n\ndog\n", "has an empty line, no. 2"),
        ("a.txt", "cat\ndog\ncat\n", "has the class `cat` twice"),
        ("a.json", "{", "is not JSON"),
        ("a.json", '{"0": ["n01440764", "tench"]}', "needs a list of names, or a map"),
        ("a.json", '{"cat": 0.5}', "needs a list of names, or a map"),
        ("a.json", "[]", "has no classes"),
        ("a.csv", "cat,0\ndog,one\n", "needs two columns.*line 2"),
        ("a.csv", "cat,0,felis\n", "needs two columns"),
        ("a.csv", "cat\ndog\n", "needs two columns"),
    ],
)
def test_a_file_that_is_no_list_of_classes_is_an_error_that_names_it(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError, match=message) as caught:
        make_label(file=str(tmp_path / name))
    assert str(tmp_path / name) in str(caught.value)


def test_a_file_that_does_not_exist_or_is_not_text_is_an_error(tmp_path):
    with pytest.raises(SpecError, match="does not exist"):
        make_label(file=str(tmp_path / "none.txt"))
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="cannot be read"):
        make_label(file=str(tmp_path / "a.txt"))


def test_aliases_are_other_names_of_classes(tmp_path):
    (tmp_path / "names.json").write_text(json.dumps({"cat": 5}))
    label = make_label(file=str(tmp_path / "names.json"), aliases={"kitty": "cat"})
    assert (label("kitty"), label("cat")) == (5, 5)


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        (
            {"Dog": "dgo"},
            r"`Dog` is an alias of `dgo`, which is no class in \S*names.txt; did you mean `dog`\?",
        ),
        ({"kitty": "lion"}, r"which is no class in \S*names.txt; correct `aliases`, or add the class"),
        ({"cat": "dog"}, r"`cat` is a class itself in \S*names.txt; remove the alias"),
        (
            {"cat": "dog", "Wolf": "wolf", "Lion": "lion"},
            r"`aliases` do not fit the classes in \S*names.txt: the aliases `cat` are among them, and `wolf`, `lion`, "
            "which aliases stand for, is not; correct `file`, or else `aliases`",
        ),
    ],
)
def test_a_wrong_alias_of_a_class_in_a_file_is_an_error(aliases, message, tmp_path):
    (tmp_path / "names.txt").write_text("cat\ndog")
    with pytest.raises(SpecError, match=message):
        make_label(file=str(tmp_path / "names.txt"), aliases=aliases)


def test_an_unknown_name_is_an_error_that_has_it_and_the_nearest_class():
    label = make_label(names={"labrador": 0})
    with pytest.raises(FieldError, match=r"`label` has no class 'labrodor'; did you mean `labrador`\?"):
        label("labrodor")
    with pytest.raises(FieldError, match="'wolf'; add it to `names`, or, as another name of a class, to"):
        label("wolf")


def test_unknown_names_get_the_number_that_the_spec_says():
    label = make_label(names={"cat": 0}, unknown=-100)
    assert [label("cat"), label("wolf"), label("")] == [0, -100, -100]


@pytest.mark.parametrize("value", [b"cat", None, True, 1.5, {"name": "cat"}])
def test_a_value_that_is_no_name_is_an_error_even_if_unknown_names_have_a_number(value):
    with pytest.raises(FieldError, match="`label` needs the name of a class, but this is"):
        make_label(names={"cat": 0}, unknown=-100)(value)


def test_class_names_are_a_list_if_the_numbers_are_those_of_one():
    assert class_names({"dog": 1, "cat": 0}) == ["cat", "dog"]
    assert class_names({"dog": 7, "cat": 0, "kitty": 0}) == {0: "cat", 7: "dog"}
