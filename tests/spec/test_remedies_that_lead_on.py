"""Remedies that new users followed to the next error: each says what to write for what they wrote."""

import pytest
import yaml
from commandline import within

import wdspec

SOUND = {
    "name": "speech",
    "shards": "a.tar",
    "decode": {"wav": "audio"},
    "companions": {"noise": {"source": "musan"}},
    "make": {"loud": {"add_noise": "wav", "noise": "noise.wav", "snr": 5}},
}


def remedies(source, **top):
    problems = wdspec.validate({"dataset": [{"shards": "a.tar", **source}], **top})
    return {problem.code: problem.hint for problem in problems if problem.is_error}


@pytest.mark.parametrize(
    ("source", "top", "code", "remedy"),
    [
        ({"make": {"n": {"label": "class", "names": ["a"]}}}, {}, "E203", 'write `fields["class"]`'),
        ({"where": "json.from == 1"}, {}, "E330", 'write `json["from"]` for `json.from`'),
        (
            {"make": {"ids": {"tokenize": "a;b", "file": "t.json"}}},
            {},
            "E203",
            "write `rename: {field: a;b}`",
        ),
        (
            {"extensions": "txt", "make": {"input_ids": {"tokenize": "txt", "file": "t.json", "eos": "e"}}},
            {"batch": {"pack": {"fields": ["input_ids", "labels"], "length": 512}}},
            "E316",
            "add `labels: labels` to `tokenize` of `input_ids`, which makes them of the ids",
        ),
        ({"fetch": {"url": {"url": "url", "root": "images/"}}}, {}, "E367", "give the latter another name"),
        ({"join": [{"shards": "b.tar", "missing": "none"}]}, {}, "E340", "such as `fields: txt`"),
        (
            {},
            {"batch": {"size": 2, "pack": {"fields": "ids", "length": 512}}, "epoch": {"batches": 1}},
            "E207",
            "a batch is one row",
        ),
        (
            SOUND,
            {
                "companions": {"musan": {"shards": "b.tar"}},
                "batch": {"cost": "loud.seconds", "max_cost": 9},
                "epoch": "pass",
            },
            "E375",
            "let `batch` read `wav`, which `loud` is made from",
        ),
    ],
)
def test_a_remedy_says_what_to_write(source, top, code, remedy):
    assert remedy in remedies(source, **top)[code]


def test_shares_in_a_pass_are_one_error():
    sources = [{"shards": "a.tar"}, {"shards": "b.tar", "weight": 3}]
    found = wdspec.validate({"dataset": sources, "epoch": "pass", "batch": 8})
    assert [problem.code for problem in found if problem.is_error] == ["E312"]


@pytest.mark.parametrize(
    ("source", "top", "remedy"),
    [
        ({}, {"shares": {"a": "50%"}}, "write the share of a source in the source: `weight: 0.5`"),
        ({"take": ["txt"]}, {}, "to choose fields, write `extensions: jpg txt`"),
        ({"take": {"txt": "body"}}, {}, "to name them, `rename: {text: body}`"),
        ({"take": 1000}, {}, "`limit: 1000` at the top level"),
        ({"take": "wrong.text"}, {}, "write `make: {negative: {take: wrong.text}}`"),
    ],
)
def test_an_unknown_key_is_read_by_its_value(source, top, remedy):
    assert remedy in remedies(source, **top)["E201"]


def test_the_remedies_work():
    assert not remedies({"make": {"n": {"label": 'fields["class"]', "names": ["a"]}}})
    assert not remedies({"where": 'json["from"] == 1'})
    assert not remedies({"fetch": {"image": {"url": "url", "root": "images/"}}})


PACKED = {"window": 8, "pack": {"fields": ["ids"], "length": 64}}


@pytest.mark.parametrize(
    ("source", "top", "remedy"),
    [
        ({"max_passes": 2}, {}, "add `stats: stats.json` and run `wdspec stats SPEC`"),
        (
            {},
            {"batch": PACKED, "epoch": 1000},
            "such as `epoch: {batches: 1000}`, or about how many tokens, such as `epoch: {tokens: 10e6}`",
        ),
        ({}, {"batch": PACKED, "limit": 1000}, "such as `epoch: {batches: 1000}`"),
        ({}, {"batch": {"cost": "text.length"}}, "such as `max_cost: 8192`"),
        ({}, {"batch": {"group_by": "cls"}}, "such as `size: 32`"),
        ({}, {"batch": {"pack": {"fields": ["ids"]}}}, "such as `length: 2048`"),
        ({}, {"mix": {"shares_in": "tokens"}}, "such as `batch: {cost: ids.length, max_tokens: 8192}`"),
    ],
)
def test_a_remedy_has_numbers_that_can_be_written(source, top, remedy):
    [said] = remedies(source, **top).values()
    assert remedy in said
    assert "…" not in said
    written = yaml.safe_load(remedy.split("`")[1])
    if "batch" in top and "epoch" not in written:
        batch = top["batch"]
        written = {"batch": {**batch, **written}}
        if "length" in written["batch"]:
            written = {"batch": {"pack": {**batch["pack"], "length": 2048}}}
    top = {key: value for key, value in top.items() if key != "limit" or "epoch" not in written}
    found = wdspec.validate({"dataset": [{"shards": "a.tar", **source}], **top, **written})
    assert (
        {each.code for each in found if each.is_error} <= {"E206"}
        if "mix" in top
        else not any(each.is_error for each in found)
    )


def test_the_number_of_samples_that_remain_is_that_of_stats(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"score": {number}}}\n' for number in range(10)))
    spec = "dataset:\n  - {name: a, shards: a.jsonl, where: score > 6, max_passes: 2}\nstats: stats.json\n"
    (tmp_path / "spec.yaml").write_text(spec)
    measured = within("stats", "spec.yaml", folder=tmp_path)[0].splitlines()
    table = dict(zip(measured[0].split(), measured[1].split(), strict=False))
    assert not wdspec.validate(tmp_path / "spec.yaml")
    assert (table["kept"], wdspec.load(tmp_path / "spec.yaml").sources[0].samples) == ("3", 3)


def test_a_folder_of_folders_is_told_from_an_empty_one(tmp_path):
    (tmp_path / "cats").mkdir()
    with pytest.raises(wdspec.WdspecError, match="`wdspec create FOLDER -o OUTPUT --classes`"):
        wdspec.plan({"dataset": [{"shards": f"{tmp_path}/"}]})
    (tmp_path / "a.jpg").touch()
    with pytest.raises(wdspec.WdspecError, match="the names of shards end in"):
        wdspec.plan({"dataset": [{"shards": f"{tmp_path}/"}]})
