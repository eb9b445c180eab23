"""Remedies that new users followed to the next error: each says what to write for what they wrote."""

import pytest

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


def test_the_remedies_work():
    assert not remedies({"make": {"n": {"label": 'fields["class"]', "names": ["a"]}}})
    assert not remedies({"where": 'json["from"] == 1'})
    assert not remedies({"fetch": {"image": {"url": "url", "root": "images/"}}})


def test_a_folder_of_folders_is_told_from_an_empty_one(tmp_path):
    (tmp_path / "cats").mkdir()
    with pytest.raises(wdspec.WdspecError, match="`wdspec create FOLDER -o OUTPUT --classes`"):
        wdspec.plan({"dataset": [{"shards": f"{tmp_path}/"}]})
    (tmp_path / "a.jpg").touch()
    with pytest.raises(wdspec.WdspecError, match="the names of shards end in"):
        wdspec.plan({"dataset": [{"shards": f"{tmp_path}/"}]})
