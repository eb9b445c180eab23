"""Words that mean something else elsewhere: what `validate` says of them."""

import re

import pytest

from wdspec.spec.load import check

DATA = "dataset:\n  - {shards: a.tar%s}\n"


@pytest.fixture
def problems(tmp_path):
    def find(text):
        (tmp_path / "spec.yaml").write_text(text)
        return check(str(tmp_path / "spec.yaml"))[1]

    return find


LATER = (
    "rename: {meta: json}, tags: {origin: new}, "
    "make: {class_id: {label: cls, names: [x]}, uid: {take: ids.uid}}"
)


@pytest.mark.parametrize(
    "key", ["lookup: {table: t.csv, fields: score, 'on': %s}", "join: {shards: c.tar, 'on': %s}"]
)
@pytest.mark.parametrize(
    ("on", "maker", "hint"),
    [
        ("meta.id", "rename", "write `on: json.id`, the name in the shards"),
        ("meta", "rename", "write `on: json`, the name in the shards"),
        ("class_id", "make", "name a field that the shards have"),
        ("uid", "make", "write `on: ids.uid`, of which it is made"),
        ("origin", "tags", "name a field that the shards have"),
        ("json.id", "", None),
        ("cls", "", None),
        ("__key__", "", None),
    ],
)
def test_a_join_or_lookup_by_a_name_that_samples_get_later_is_a_warning(key, on, maker, hint, problems):
    found = problems(DATA % f", {LATER}, {key % on}")
    assert [(each.code, each.hint) for each in found] == ([] if hint is None else [("W443", hint)])
    assert all(each.message.startswith(f"`{maker}` makes `") for each in found)
    assert all(each.line == 2 and each.column > 100 for each in found)


@pytest.mark.parametrize(
    "key", ["lookup: {table: t.csv, fields: score, 'on': photo}", "join: {shards: c.tar, 'on': photo}"]
)
def test_a_join_or_lookup_by_an_object_that_is_fetched_later_is_an_error(key, problems):
    (found,) = problems(DATA % f", fetch: {{photo: {{url: json.photo, root: photos/}}}}, {key}")
    assert (found.code, found.line) == ("E367", 2)


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


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("box_format: xywh", "`box_format` is a key of `crop` in `make`"),
        ("kept: kept", "`kept` is a key of `crop` in `make`"),
        ("image_length: 16", "`image_length` is a key of `chat` in `make`"),
        ("labels: labels", "`labels` is a key of `tokenize`, `chat`, `mask_tokens` in `make`"),
        ("labels: [cat]", "it is a step of `make`"),
        ("root: img/", "`root` is a key of an entry of `fetch`: `fetch: {image: {url: path, root: …}}`"),
        ("hflip: 0.5", "beside boxes or masks, it is in the step `crop`"),
    ],
)
def test_keys_of_steps_and_of_fetch_in_a_source_say_where_they_belong(key, says, problems):
    [found] = problems(DATA % f", {key}")
    assert found.code == "E201"
    assert says in found.hint


@pytest.mark.parametrize("key", ["boxes", "points", "masks"])
def test_a_path_in_place_of_a_map_of_new_fields_has_a_line_that_works(key, problems):
    step = "{crop: jpg, size: 8, %s}"
    written = f'{key}: "json.objects[:].x"'
    [found] = problems(DATA % f", decode: rgb8, make: {{image: {step % written}}}")
    [line] = re.findall(r"write `(.*?)`", found.hint)
    assert not problems(DATA % f", decode: rgb8, make: {{image: {step % line}}}")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (f"loader: {{{word}: ray}}", "write `loader: {kind: ray, workers: 16}`")
        for word in ("backend", "engine", "executor")
    ]
    + [
        ("loader: {kind: ray, address: 'host:6379'}", "in the environment variable RAY_ADDRESS"),
        ("ray: true", "write `loader: {kind: ray, workers: 16}`"),
        ("loader: {kind: actors}", "write `processes`, `threads` or `ray`"),
        ("loader: {kind: ray, persistent: false}", "remove it"),
    ],
)
def test_words_for_workers_on_other_machines_lead_to_their_kind(problems, line, hint):
    (problem,) = problems(f"{line}\n{DATA % ''}")
    assert hint in problem.hint
