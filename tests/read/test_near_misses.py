"""Errors of selections that keep nothing, or read values that do not exist, say what would be right."""

import json
import re

import pytest
from commandline import within
from shardmaking import write_shard

import wdspec


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for shard in range(2):
        samples = []
        for index in range(10):
            facts = {
                "lang": "de" if index % 2 else "en",
                "label": str(index % 3),
                "uid": f"u-{shard}-{index}",
                "meta": {"score": index},
                "page title": "T",
                "captions": [{"lang": "fr", "words": 3}],
            }
            samples.append((f"k{shard}{index}", {"txt": b"t", "json": json.dumps(facts).encode()}))
        write_shard(tmp_path / f"a-{shard}.tar", samples)
    return tmp_path


def spec_of(folder, **keys):
    source = {"name": "a", "shards": f"{folder}/a-{{0..1}}.tar", "extensions": "txt", **keys}
    return {"dataset": [source], "batch": 4}


def error_of(spec):
    with pytest.raises(wdspec.WdspecError) as error:
        next(iter(wdspec.loader(spec, num_workers=0)))
    return str(error.value)


def advice_on(folder, spec):
    (folder / "s.yaml").write_text(json.dumps(spec))
    return within("explain", "s.yaml")[0]


SELECTIONS = [
    ('json.lang == "EN"', 'json.lang == "en"'),
    ('"DE " == json.lang and json.meta.score < 20', '"de" == json.lang and json.meta.score < 20'),
]


@pytest.mark.parametrize(("where", "meant"), SELECTIONS)
def test_a_comparison_that_is_nearly_a_value_is_written_as_the_value(folder, where, meant):
    spec = spec_of(folder, where=where)
    said = f"write `where: {meant}`"
    assert said in error_of(spec)
    assert said in advice_on(folder, spec)
    spec["dataset"][0]["where"] = meant
    assert len(next(iter(wdspec.loader(spec, num_workers=0)))["__key__"]) == 4


def test_a_comparison_that_is_like_no_value_shows_the_values(folder):
    said = error_of(spec_of(folder, where='json.lang == "nl"'))
    assert '`json.lang` is `"en"`, `"de"` in the first samples, never as in `"nl"`' in said
    assert "write `" not in said


@pytest.mark.parametrize("where", ["json.meta.score > 99", 'json.lang == "en" and json.meta.score > 99'])
def test_only_comparisons_that_match_no_sample_are_explained(folder, where):
    assert "check `where`" in error_of(spec_of(folder, where=where))


def test_values_that_are_listed_in_place_of_keys_are_named(folder):
    (folder / "kept.txt").write_text("u-0-3\nu-1-4\n")
    spec = spec_of(folder, keys=f"@{folder}/kept.txt")
    said = r"no key of a sample, such as 'k\d0', but 'u-\d-\d', which is a value in samples: add `keys_of: json.uid`"
    assert re.search(said, error_of(spec))
    assert re.search(said, advice_on(folder, spec))
    spec["dataset"][0]["keys_of"] = "json.uid"
    assert next(iter(wdspec.loader({**spec, "batch": 2}, num_workers=0)))["__key__"]


def test_keys_and_comparisons_are_not_blamed_for_samples_that_they_have_kept(folder):
    spec = spec_of(folder, keys=["k00", "k01"], where="json.lang in ['de', 'en']")
    spec["batch"] = {"cost": "txt.length + 9", "max_cost": 5, "window": 4, "overlong": "drop"}
    said = error_of(spec)
    assert "overlong" in said
    assert "check `where`, `subset`, `keys`" in said
    assert "look like" not in said


def test_keys_of_other_data_are_shown_next_to_a_key(folder):
    (folder / "kept.txt").write_text("z9\nz8\n")
    said = error_of(spec_of(folder, keys=f"@{folder}/kept.txt"))
    assert re.search(r"`keys` has keys such as 'z8', but the keys of samples look like 'k\d0'", said)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("json.languag == 'en'", "; write `json.lang`"),
        ("json.Label == '0'", "; write `json.label`"),
        ("json.score > 1", "; write `json.meta.score`"),
        ("json.captions.lang == 'fr'", "which is a list of 1 value; write `json.captions[0].lang`"),
        ("json.page_title == 'T'", "; write `json['page title']`"),
        ("json.meta.zz > 1", "there is no `zz` in it, which has the keys score"),
        ("json.lang.en == 1", "there is no `en` in it, which is a value of the type str"),
    ],
)
def test_the_path_of_a_value_is_written_as_it_is_in_the_data(folder, where, said):
    assert said in error_of(spec_of(folder, where=where))
