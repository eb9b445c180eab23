"""`check` counts all repeated samples: JSON lists them, text counts the others, and a file leaves them out."""

import json
import random

import pytest
from commandline import within
from shardmaking import write_shard


def text(seed):
    return random.Random(seed).randbytes(300)


@pytest.fixture
def folder(tmp_path):
    """Nine keys are in two shards, with other bytes; 23 samples of the second shard have bytes of the first."""
    first = [(f"a{n:02d}", {"bin": text(n)}) for n in range(40)]
    second = [(f"b{n:02d}", {"bin": text(n)}) for n in range(23)]
    second += [(f"a{n:02d}", {"bin": text(100 + n)}) for n in range(9)]
    write_shard(tmp_path / "a-0.tar", first)
    write_shard(tmp_path / "a-1.tar", second)
    write_shard(tmp_path / "v.tar", [(f"v{n:02d}", {"bin": text(30 + n)}) for n in range(8)])
    spec(tmp_path, {"name": "a", "shards": "a-{0..1}.tar"})
    (tmp_path / "v.yaml").write_text(json.dumps({"dataset": [{"name": "v", "shards": "v.tar"}]}))
    return tmp_path


def spec(folder, *sources):
    (folder / "s.yaml").write_text(json.dumps({"dataset": sources}))


def check(folder, *arguments):
    return within("check", "s.yaml", "--all", "--jobs", "0", *arguments, folder=folder)


def test_json_lists_all_repeated_keys_and_contents(folder):
    report = json.loads(check(folder, "--format", "json")[0])
    keys = sorted(each["key"] for each in report["problems"] if each["code"] == "D301")
    contents = sorted(each["key"] for each in report["problems"] if each["code"] == "D304")
    assert (keys, contents) == ([f"a{n:02d}" for n in range(9)], [f"b{n:02d}" for n in range(23)])
    assert {each["code"]: each["problems"] for each in report["totals"]} == {"D301": 9, "D304": 23}
    assert report["hidden"] == {}


def test_text_says_how_many_more_there_are(folder):
    out, _ = check(folder)
    assert (out.count(": D301 "), out.count(": D304 ")) == (5, 5)
    rows = [line.split() for line in out.splitlines() if line.startswith("a  ")]
    assert rows == [["a", "D301", "9", "4"], ["a", "D304", "23", "18"]]
    assert "`--format json` lists all repeated samples" in out
    assert out.splitlines()[-1] == "2 shards checked: 32 warnings"


def test_the_file_of_duplicates_leaves_them_out(folder):
    _, said = check(folder, "--duplicates", "again.txt")
    assert "again.txt: 23 keys for `exclude: '@again.txt'` in `a`" in said
    assert (folder / "again.txt").read_text().splitlines() == [f"b{n:02d}" for n in range(23)]
    spec(folder, {"name": "a", "shards": "a-{0..1}.tar", "exclude": "@again.txt"})
    report = json.loads(check(folder, "--format", "json")[0])
    assert report["sources"]["a"]["delivered"] == 40 + 9
    assert {each["code"] for each in report["problems"]} == {"D301"}


def test_samples_that_a_selection_leaves_out_are_no_duplicates_but_split_samples_are_found(folder):
    spec(folder, {"name": "a", "shards": "a-{0..1}.tar", "exclude": [f"a{n:02d}" for n in range(40)]})
    assert json.loads(check(folder, "--format", "json")[0])["problems"] == []
    write_shard(folder / "b-0.tar", [("b", {"txt": b"t"}), ("c", {"txt": b"t", "cls": b"1"})])
    write_shard(folder / "b-1.tar", [("b", {"cls": b"1"})])
    spec(folder, {"name": "b", "shards": "b-{0..1}.tar", "extensions": "txt cls", "missing": "skip"})
    [problem] = json.loads(check(folder, "--format", "json")[0])["problems"]
    assert "it is split over two shards" in problem["message"]


def test_each_source_has_its_own_file_and_the_other_spec_has_none(folder):
    spec(folder, {"name": "a", "shards": "a-0.tar"}, {"name": "c", "shards": "a-1.tar"})
    check(folder, "--duplicates", "again.txt", "--against", "v.yaml")
    assert (folder / "again.a.txt").read_text().splitlines() == [f"a{n:02d}" for n in range(30, 38)]
    assert (folder / "again.c.txt").read_text().splitlines() == [f"b{n:02d}" for n in range(23)]
    assert not (folder / "again.txt").exists()
    spec(folder, {"name": "v", "shards": "v.tar"})
    assert "again.v.txt: not written" in check(folder, "--duplicates", "again.v.txt")[1]


def test_all_copies_of_a_sample_of_the_other_spec_are_listed(folder):
    write_shard(folder / "a-0.tar", [(f"a{n}", {"bin": text(n % 3)}) for n in range(9)])
    write_shard(folder / "v.tar", [(f"v{n}", {"bin": text(n % 2)}) for n in range(4)])
    spec(folder, {"name": "a", "shards": "a-0.tar"})
    check(folder, "--duplicates", "again.txt", "--against", "v.yaml")
    left = {f"a{n}" for n in range(9)} - set((folder / "again.txt").read_text().split())
    assert left == {"a2"}  # the first of those that are not in the other spec


def test_a_shard_that_is_listed_twice_counts_once(folder):
    spec(folder, {"name": "a", "shards": ["a-0.tar", "a-0.tar"]})
    report = json.loads(check(folder, "--format", "json")[0])
    assert [each["code"] for each in report["problems"]] == ["D301"]
    out, _ = check(folder)
    assert out.splitlines()[-1] == "2 shards checked: 1 warning"


def test_what_all_samples_lack_is_said_of_the_first_ones(folder):
    sources = [{"name": "a", "shards": "a-{0..1}.tar"}]
    (folder / "s.yaml").write_text(json.dumps({"dataset": sources, "fields": ["lack"]}))
    out, _ = within("check", "s.yaml", "--all", "--jobs", "0", folder=folder, code=1)
    assert out.count(": D201 ") == 5
    report = json.loads(
        within("check", "s.yaml", "--all", "--jobs", "0", "--format", "json", folder=folder, code=1)[0]
    )
    [total] = [each["problems"] for each in report["totals"] if each["code"] == "D201"]
    assert ["a", "D201", str(total), str(total - 5)] in [line.split() for line in out.splitlines()]


ASK = [{"role": "user", "content": "<image>\nWhat is in this picture, and what is it made of?"}]


@pytest.mark.parametrize("name", ["", "pictures"])
def test_rows_with_the_same_text_and_other_objects_are_not_the_same(tmp_path, name):
    """The same are only the second and the fourth row, the last two with a box, and those without an image."""
    rows = [{"images": [f"{n}.txt"], "messages": ASK} for n in (0, 1, 2, 1)]
    rows += [{"images": [f"{'long' * 20}.txt"], "box": n} for n in (1, 2, 3, 3)]
    rows += [{"messages": ASK, "images": images} for images in (None, [])]
    lines = [json.dumps({**row, "id": f"c{n}"}) for n, row in enumerate(rows)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines).replace('"c7"', '"c6"'))
    for stem in (*"012", "long" * 20):
        (tmp_path / f"{stem}.txt").write_text("t")
    fetch = {"texts": {"url": name or "images", "root": ".", "missing": "none"}}
    rename = {"rename": {name: "images"}} if name else {}
    spec(tmp_path, {"name": "a", "shards": "a.jsonl", "fetch": fetch, **rename})
    problems = json.loads(check(tmp_path, "--format", "json")[0])["problems"]
    found = [each for each in problems if each["code"] == "D304"]
    assert [each["key"] for each in found] == ["a/3", "a/7", "a/9"], problems
    assert "as `a/1` (compared by `images`, `messages` only); " in found[0]["message"]
    assert "compared by" not in found[1]["message"]
    assert "as `a/8` (compared by `messages` only); " in found[2]["message"]
