"""Entries of `keys` and `exclude` that no sample has are found, with a key as it is and what would match."""

import json

import pytest
from commandline import within
from shardmaking import write_shard

import wdspec


@pytest.fixture
def folder(tmp_path):
    write_shard(tmp_path / "a.tar", [(f"./{n:04d}", {"cls": b"1"}) for n in range(6)])
    write_shard(tmp_path / "b.tar", [(f"{n}", {"cls": b"1"}) for n in range(6)])
    write_shard(tmp_path / "c.tar", [(f"{n}", {"cls": b"1"}) for n in range(6, 12)])
    return tmp_path


def write(folder, *sources, **top):
    (folder / "s.yaml").write_text(json.dumps({"dataset": sources, **top}))


def check(folder, *arguments, code=0):
    out, _ = within(
        "check", "s.yaml", "--jobs", "0", "--format", "json", *arguments, folder=folder, code=code
    )
    return [each["message"] for each in json.loads(out)["problems"] if each["code"] == "D331"]


def advice(folder, *command):
    report = json.loads(within(*command, "s.yaml", "--format", "json", folder=folder)[0])
    found = report["files"][0]["warnings"] if "files" in report else report["warnings"]
    return [each.partition("W394 ")[2] for each in found if "W394" in each]


def test_the_message_shows_an_entry_and_a_key(folder):
    write(folder, {"name": "a", "shards": "a.tar", "exclude": ["0000", "./0001", "0002"]})
    said = (
        "2 of 3 keys in `exclude` of `a` occur in no sample, such as '0000'; keys look like './0000'; './0000' occurs: "
        "write the keys with `./`"
    )
    assert check(folder) == [said]
    assert advice(folder, "explain") == [said]
    assert advice(folder, "simulate", "--probe") == [said]
    assert advice(folder, "stats", "-o", "a.json") == ["2 of 3 keys in `exclude` of `a` occur in no sample"]


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("0 ", "without blanks"),
        ('"0"', "without quotes"),
        ("0.txt", "without `.txt`"),
        ("0,bad", "only the column"),
        ("0\tbad", "only the column"),
        ('["0", "1"]', "one key per line, not JSON"),
        ('{"key": "0"}', "one key per line, not JSON"),
        ("images/0.jpg", "without folders and endings"),
    ],
)
def test_lists_in_another_form_are_found_and_the_remedy_works(folder, line, remedy):
    key = "keys" if "only" in remedy else "exclude"
    (folder / "list.txt").write_text(f"{line}\n3\n")
    write(folder, {"name": "b", "shards": "b.tar", key: "@list.txt"})
    [said] = check(folder)
    assert said.startswith(f"1 of 2 keys in `{key}` of `b` occur in no sample, such as {line!r}")
    assert "'0' occurs" in said
    assert remedy in said
    assert advice(folder, "explain") == [said]
    (folder / "list.txt").write_text("0\n3\n")
    assert check(folder) == advice(folder, "explain") == advice(folder, "stats", "-o", "b.json") == []


@pytest.mark.parametrize("key", ["keys", "exclude"])
def test_a_byte_order_mark_is_no_part_of_a_key(folder, key):
    (folder / "list.txt").write_bytes(b"\xef\xbb\xbf0\n3\n")
    source = {"name": "b", "shards": f"{folder}/b.tar", key: f"@{folder}/list.txt"}
    loader = wdspec.loader({"dataset": [source], "batch": 2, "epoch": "pass"})
    kept = {key for batch in loader for key in batch["__key__"]}
    assert kept == ({"0", "3"} if key == "keys" else {"1", "2", "4", "5"})


def test_an_entry_that_is_a_file_is_named_with_its_sign(folder):
    (folder / "bad").write_text("0\n")
    write(folder, {"name": "b", "shards": "b.tar", "exclude": "bad"})
    [said] = check(folder)
    assert said.endswith("write `'@bad'` for the keys in the file")
    assert advice(folder, "explain") == [said]


def test_a_list_that_several_sources_share_is_compared_with_all_of_them(folder):
    shared = {"exclude": ["0", "7"]}
    write(folder, {"name": "b", "shards": "b.tar", **shared}, {"name": "c", "shards": "c.tar", **shared})
    assert check(folder) == advice(folder, "explain") == []
    write(folder, {"name": "b", "shards": "b.tar", **shared})
    assert len(check(folder)) == len(advice(folder, "explain")) == 1


def test_a_partial_check_and_values_of_fields_are_not_judged(folder):
    write(folder, {"name": "b", "shards": ["b.tar", "c.tar"], "exclude": ["7"]})
    assert check(folder, "--sample", "1") == []
    write(folder, {"name": "b", "shards": "b.tar", "exclude": ["7"], "keys_of": "cls"})
    assert check(folder) == advice(folder, "explain") == []


def test_a_long_list_is_compared_too(folder, monkeypatch):
    monkeypatch.setattr("wdspec.shards.key_lists.IN_MEMORY", 3)
    (folder / "list.txt").write_text("".join(f"{n}\n" for n in range(10)))
    write(folder, {"name": "b", "shards": "b.tar", "keys": "@list.txt"})
    assert check(folder) == [
        "4 of 10 keys in `keys` of `b` occur in no sample, such as '6'; keys look like '0'"
    ]


@pytest.mark.parametrize("key", ["keys", "exclude"])
def test_validate_warns_of_a_file_without_its_sign(folder, key):
    write(folder, {"name": "b", "shards": "b.tar", key: "bad.txt"})
    [problem] = wdspec.validate(str(folder / "s.yaml"))
    assert problem.code == "W394"
    assert "write `'@bad.txt'`" in problem.hint
    for silent in ("@bad.txt", "bad", ["a", "b.jpg"]):
        write(folder, {"name": "b", "shards": "b.tar", key: silent})
        assert wdspec.validate(str(folder / "s.yaml")) == []
    write(folder, {"name": "b", "shards": "b.tar", key: "a.txt", "keys_of": "json.name"})
    assert wdspec.validate(str(folder / "s.yaml")) == []


def test_recipes_and_class_names_may_start_with_a_byte_order_mark(folder):
    (folder / "x.txt").write_text("x")
    for name, text in (("r.recipe", "0.txt x.txt\n"), ("m.csv", "id,txt\n0,hello\n")):
        (folder / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    within("create", "r.recipe", "-o", "r.tar", folder=folder)
    within("create", "m.csv", "-o", "m.tar", "--key-column", "id", "--value", "txt=txt", folder=folder)
    for name in ("r.tar", "m.tar"):
        assert '"key": "0"' in within("ls", name, "--format", "json", folder=folder)[0]


@pytest.mark.parametrize(
    ("keys", "is_said"),
    [
        (["./0001", "./7777"], False),  # of other shards
        (["./0001", "7777-a"], True),
        (["./0001", "0002"], True),
    ],
)
def test_advice_is_silent_about_keys_that_other_shards_may_have(folder, keys, is_said):
    write(folder, {"name": "a", "shards": "a.tar", "keys": keys})
    assert bool(advice(folder, "explain")) == is_said
    assert check(folder)  # which reads all of the source
