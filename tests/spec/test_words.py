"""Words that mean something else elsewhere: what `validate` says of them."""

import pytest

from wdspec.spec.load import check

DATA = "dataset:\n  - {shards: a.tar%s}\n"


@pytest.fixture
def problems(tmp_path):
    def find(text):
        (tmp_path / "spec.yaml").write_text(text)
        return check(str(tmp_path / "spec.yaml"))[1]

    return find


@pytest.mark.parametrize(
    ("on", "hint"),
    [
        ("meta.id", "write `on: json.id`, the name in the shards"),
        ("meta", "write `on: json`, the name in the shards"),
        ("class_id", "look up a field that the shards have"),
        ("origin", "look up a field that the shards have"),
        ("json.id", None),
        ("cls", None),
        ("__key__", None),
    ],
)
def test_a_lookup_by_a_name_that_samples_get_later_is_a_warning(on, hint, problems):
    later = "rename: {meta: json}, tags: {origin: new}, make: {class_id: {label: cls, names: [x]}}"
    found = problems(DATA % f", {later}, lookup: {{table: t.csv, 'on': {on}, fields: score}}")
    assert [(each.code, each.hint) for each in found] == ([] if hint is None else [("W443", hint)])


@pytest.mark.parametrize(
    ("skip", "hint"),
    [
        ("100", "write `0..99` for the first 100 steps, or `[100]` for this one"),
        ("0", None),
        ("[100]", None),
        ("100..100", None),
    ],
)
def test_a_single_number_to_skip_asks_whether_that_step_alone_is_meant(skip, hint, problems):
    found = problems(f"skip: {skip}\nbatch: 4\n{DATA % ''}")
    assert [(each.code, each.hint) for each in found] == ([] if hint is None else [("W444", hint)])


def test_a_number_that_may_be_one_of_epochs_gets_the_key_for_epochs(problems):
    (found,) = problems(f"epoch: 90\nbatch: 8\n{DATA % ''}")
    assert found.code == "W351"
    assert "this is no number of epochs" in found.hint
    assert "epoch: {pass: drop, reshuffle: true}" in found.hint


@pytest.mark.parametrize(
    ("key", "says"), [("balance: 2", "`mix: {by: equal}`"), ("temperature: 2", "`mix: {by: ")]
)
def test_words_of_the_mix_in_a_source_say_where_they_belong(key, says, problems):
    (found,) = problems(DATA % f", {key}")
    assert found.code == "E201"
    assert says in found.hint
