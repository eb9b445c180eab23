"""A short form that is merged with a map: which keys of the other one stay."""

import pytest
import yaml

import wdspec

MERGED = {
    "skip below a map": ("skip", {"log": "/x"}, {"skip": True, "log": "/x"}),
    "skip over a map": ({"log": "/x", "retry": 60}, "skip", {"skip": True, "log": "/x", "retry": 60.0}),
    "skip over some causes": ({"skip": ["map"], "max_count": 3}, "skip", {"skip": True, "max_count": 3}),
    "raise below a map": ("raise", {"log": "/x"}, {"skip": False, "log": "/x"}),
    "raise over a budget": ({"max_rate": 0.1, "log": "/x"}, "raise", {"skip": False, "log": "/x"}),
    "a budget over raise": ("raise", {"max_count": 3}, {"skip": True, "max_count": 3}),
    "two short forms": ("skip", "raise", {"skip": False}),
    "null": ("skip", None, {"skip": False}),
}
LAYERS = {
    "source": lambda below, above: {"errors": below, "dataset": [{"shards": "a.tar", "errors": above}]},
    "defaults": lambda below, above: {
        "errors": below,
        "defaults": {"errors": above},
        "dataset": [{"shards": "a.tar"}],
    },
    "environment": lambda below, above: {
        "errors": below,
        "environments": {"e": {"errors": above}},
        "dataset": [{"shards": "a.tar"}],
    },
    "source of an environment": lambda below, above: {
        "environments": {"e": {"sources": {"a": {"errors": above}}}},
        "dataset": [{"shards": "a.tar", "errors": below}],
    },
    "split": lambda below, above: {
        "errors": below,
        "splits": {"s": {"errors": above, "dataset": [{"shards": "a.tar"}]}},
    },
}


def errors_of(spec, **options):
    (source,) = wdspec.load(spec, **options).sources
    return source.errors.model_dump(exclude_defaults=True) | {"skip": source.errors.skip}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", MERGED)
def test_a_word_for_errors_merges_like_the_map_that_it_stands_for(name, layer):
    below, above, expected = MERGED[name]
    options = {"env": "e"} if "environment" in layer else {"split": "s"} if layer == "split" else {}
    assert errors_of(LAYERS[layer](below, above), **options) == expected


@pytest.mark.parametrize("name", MERGED)
def test_a_word_for_errors_merges_in_files_and_overrides_too(name, tmp_path):
    below, above, expected = MERGED[name]
    base = {"errors": below, "dataset": [{"shards": "a.tar"}]}
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base))
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({"extends": "base.yaml", "errors": above}))
    assert errors_of(tmp_path / "s.yaml") == expected
    assert errors_of(base, overrides={"errors": above}) == expected


def test_a_wrong_word_for_errors_is_reported_where_it_is():
    spec = {"errors": {"log": "/x"}, "dataset": [{"shards": "a.tar", "errors": "skp"}]}
    (problem,) = wdspec.validate(spec)
    assert (problem.code, problem.hint) == ("E203", "did you mean `skip`?")


def test_tags_called_errors_are_texts():
    spec = {
        "defaults": {"tags": {"errors": "skip"}},
        "dataset": [{"shards": "a.tar", "tags": {"errors": "raise"}}],
    }
    assert wdspec.load(spec).sources[0].tags == {"errors": "raise"}


@pytest.mark.parametrize(
    ("key", "below", "above"),
    [
        ("batch", {"global_size": 8, "ragged": "list"}, 4),
        ("batch", 4, {"global_size": 8}),
        ("epoch", {"batches": 9}, 32),
        ("epoch", "pass", {"batches": 9}),
        ("cache", {"dir": "/x", "size": 5}, "/y"),
    ],
)
def test_a_short_form_of_other_keys_replaces_and_is_replaced(key, below, above):
    dataset = {"dataset": [{"shards": "a.tar"}], "batch": 4}
    both = wdspec.load(dataset | {key: below}, overrides={key: above})
    assert getattr(both, key) == getattr(wdspec.load(dataset | {key: above}), key)
