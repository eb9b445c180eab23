"""`make`: made fields are fields like others, made when something first asks for them, and once."""

import json
import pickle
import re
from collections import Counter

import pytest
from shardmaking import write_shard

import wdspec
from wdspec.fields import made_field
from wdspec.spec.language.making import STEPS
from wdspec.testing import assert_resumable

ANIMALS = ["cat", "dog", "bird", "fish", "bee"]


@pytest.fixture
def calls(monkeypatch):
    """Counts the values for which each step is called, by the first origin; there is a step `measure` for tests."""
    counts = Counter()

    def build(recipe):
        step = build_step(recipe)

        def count(*values):
            counts[getattr(recipe, recipe.step)] += 1
            return step(*values)

        return count

    build_step = made_field.build_step
    monkeypatch.setattr(made_field, "build_step", build)
    return counts


def write(folder, count=40, **changes):
    """Samples of `count` animals: n.json, the name in it and in n.name; `changes` replaces the JSON of some."""
    made = []
    for number in range(count):
        name = ANIMALS[number * number % 5]
        fields = {
            "json": json.dumps({"animal": name, "n": number}).encode(),
            "name": name.encode(),
            "cls": b"%d" % (number % 3),
        }
        fields |= changes.get(f"s{number}", {})
        made.append((f"{number:04}", {key: data for key, data in fields.items() if data is not None}))
    write_shard(folder / "a.tar", made)


def spec_of(folder, make, **keys):
    top = {
        key: keys.pop(key)
        for key in ("batch", "fields", "to_tuple", "map", "epoch", "costs", "elastic")
        if key in keys
    }
    source = {
        "name": "a",
        "shards": str(folder / "a.tar"),
        "order": "sequential",
        "shuffle": 0,
        **keys,
        "make": make,
    }
    return wdspec.load({"dataset": [source], **top})


def samples(spec, count=40):
    with wdspec.loader(spec, num_workers=0) as loader:
        found = []
        for sample in loader:
            found.append(sample)
            if len(found) == count:
                break
    return found


LABEL = {"kind": {"label": "json.animal", "names": ANIMALS}}
KINDS = [ANIMALS.index(ANIMALS[number * number % 5]) for number in range(40)]


def test_a_made_field_is_delivered_next_to_the_others(tmp_path):
    write(tmp_path)
    found = samples(spec_of(tmp_path, LABEL))
    assert [sample["kind"] for sample in found] == KINDS
    assert all({"json", "cls", "kind"} <= sample.keys() and "__made__" not in sample for sample in found)


def test_a_field_may_be_made_of_another_made_one(tmp_path):
    write(tmp_path)
    make = {"size": {"label": "kind", "names": {"0": 7, "1": 8, "4": 9}}, **LABEL}
    assert [sample["size"] for sample in samples(spec_of(tmp_path, make))] == [
        {0: 7, 1: 8, 4: 9}[kind] for kind in KINDS
    ]


def test_a_selection_sees_a_made_field_before_samples_are_shuffled(tmp_path):
    write(tmp_path)
    found = samples(spec_of(tmp_path, LABEL, where="kind == 4"), 16)
    assert {sample["kind"] for sample in found} == {4}
    keys = [f"{number:04}" for number in range(40) if KINDS[number] == 4]
    assert [sample["__key__"] for sample in found] == keys


@pytest.mark.parametrize(
    "selection", [{"keys": ["4"], "keys_of": "kind"}, {"subset": {"of": "kind", "part": "60%"}}]
)
def test_lists_and_subsets_see_a_made_field(selection, tmp_path):
    write(tmp_path)
    by_number = spec_of(tmp_path, LABEL, **selection)
    written = json.loads(json.dumps(selection).replace('"kind"', '"number"'))
    changes = {
        f"s{number}": {"number": str(kind).encode(), "name": None} for number, kind in enumerate(KINDS)
    }
    write(tmp_path, **changes)
    by_file = wdspec.load(
        {
            "dataset": [
                {
                    "name": "a",
                    "shards": str(tmp_path / "a.tar"),
                    "order": "sequential",
                    "shuffle": 0,
                    **written,
                }
                | {"decode": {"number": "txt"}}
            ]
        }
    )
    keys = [sample["__key__"] for sample in samples(by_number, 30)]
    assert keys == [sample["__key__"] for sample in samples(by_file, 30)]
    assert 0 < len(set(keys)) < 40


def test_a_field_is_made_once_even_if_a_selection_and_a_cost_read_it(calls, tmp_path):
    write(tmp_path)
    batch = {"cost": "kind + 1", "max_cost": 10, "window": 10}
    spec = spec_of(tmp_path, LABEL, where="kind >= 0", batch=batch, epoch="pass")
    with wdspec.loader(spec, num_workers=0) as loader:
        calls.clear()  # what counting the pass made
        batches = list(loader)
    found = {
        key: kind
        for batch in batches
        for key, kind in zip(batch["__key__"], batch["kind"].tolist(), strict=True)
    }
    assert found == {f"{number:04}": kind for number, kind in enumerate(KINDS)}
    assert calls == {"json.animal": 40}


def test_nothing_is_made_for_samples_that_another_part_of_where_leaves_out(calls, tmp_path):
    write(tmp_path)
    found = samples(spec_of(tmp_path, LABEL, where="kind >= 0 and cls == 1"), 13)
    assert len(found) == 13
    assert calls["json.animal"] == 13


def test_nothing_is_made_for_a_sample_that_a_selection_leaves_out_by_other_fields(calls, tmp_path):
    write(tmp_path)
    assert len(samples(spec_of(tmp_path, LABEL, where="cls == 1"), 13)) == 13
    assert calls["json.animal"] == 13


@pytest.mark.parametrize("wanted", [{"fields": "cls"}, {"to_tuple": "cls"}])
def test_a_field_that_nothing_uses_is_not_made(wanted, calls, tmp_path):
    write(tmp_path)
    assert len(samples(spec_of(tmp_path, LABEL, **wanted))) == 40
    assert not calls


@pytest.mark.parametrize("extensions", [None, "json cls", "json;txt cls"])
def test_what_a_field_is_made_of_is_read_even_if_only_the_made_field_is_delivered(extensions, tmp_path):
    write(tmp_path)
    keys = {} if extensions is None else {"extensions": extensions}
    found = samples(spec_of(tmp_path, LABEL, to_tuple="kind", **keys))
    assert [kind for (kind,) in found] == KINDS
    found = samples(spec_of(tmp_path, LABEL, fields="kind", **keys))
    assert [{name for name in sample if not name.startswith("__")} for sample in found] == [{"kind"}] * 40


def test_select_and_map_see_made_fields(tmp_path, monkeypatch):
    write(tmp_path)
    (tmp_path / "functions.py").write_text(
        "def is_fish(sample):\n    return sample['kind'] == 3\n\ndef double(kind):\n    return 2 * kind\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, s7={"json": b'{"animal": "fish"}'}, s9={"json": b'{"animal": "fish"}'})
    found = samples(spec_of(tmp_path, LABEL, select="functions:is_fish", map={"kind": "functions:double"}), 2)
    assert [(sample["__key__"], sample["kind"]) for sample in found] == [("0007", 6), ("0009", 6)]


def test_make_changes_neither_the_order_nor_the_random_numbers_of_functions(tmp_path, monkeypatch):
    write(tmp_path)
    (tmp_path / "drawing.py").write_text(
        "import wdspec\n\ndef draw(sample):\n    return sample | {'drawn': float(wdspec.sample_rng(sample).random())}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = [
        [(sample["__key__"], sample["drawn"]) for sample in samples(spec, 100)]
        for make in ({}, LABEL)
        for spec in [spec_of(tmp_path, make, map="drawing:draw", shuffle=20, where="cls >= 0")]
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("change", [{"animal": None}, {}])
def test_a_value_that_a_field_is_made_of_and_a_sample_lacks_is_an_error(change, tmp_path):
    write(tmp_path, s3={"json": json.dumps(change).encode()})
    with pytest.raises(
        wdspec.FieldError, match=r"`make: kind` needs `json.animal`, which the sample lacks"
    ) as caught:
        samples(spec_of(tmp_path, LABEL))
    assert (caught.value.place["key"], caught.value.place["field"]) == ("0003", "kind")
    with pytest.raises(wdspec.FieldError, match=r"`make: kind` needs `json.animal`"):
        samples(spec_of(tmp_path, LABEL, where="kind > 0"))


def test_a_path_that_no_sample_has_is_shown_with_the_keys_that_there_are(tmp_path):
    """`missing: skip` alone would leave out all samples."""
    write(tmp_path)
    for path, keys in (
        ("json.animals", "animal, n (did you mean `animal`?); set"),
        ("json.x.y", "animal, n; set"),
    ):
        make = {"kind": {"label": path, "names": ANIMALS}}
        with pytest.raises(
            wdspec.FieldError, match=re.escape(f"or which is null; `json` has the keys {keys}")
        ):
            samples(spec_of(tmp_path, make))


@pytest.mark.parametrize("where", [{}, {"where": "kind >= 0"}])
@pytest.mark.parametrize("change", [b'{"animal": null}', b"{}", None], ids=["null", "absent", "no file"])
def test_samples_without_it_are_left_out_and_counted_with_missing_skip(change, where, tmp_path):
    write(tmp_path, s3={"json": change})
    spec = spec_of(tmp_path, LABEL, missing="skip", **where)
    with wdspec.loader(spec, num_workers=0) as loader:
        keys = [sample["__key__"] for sample, _ in zip(loader, range(39), strict=False)]
        assert loader.stats().sources["a"].dropped == {"missing": 1}
    assert keys == [f"{number:04}" for number in range(40) if number != 3]


@pytest.mark.parametrize("change", [b'{"animal": null}', b"{}", None], ids=["null", "absent", "no file"])
def test_the_made_field_is_none_with_missing_none(change, tmp_path):
    write(tmp_path, s3={"json": change})
    found = samples(spec_of(tmp_path, LABEL, missing="none"))
    assert [sample["kind"] for sample in found] == [kind if n != 3 else None for n, kind in enumerate(KINDS)]
    assert samples(spec_of(tmp_path, LABEL, missing="none", where="kind != none"), 39)[3]["__key__"] == "0004"


def test_samples_left_out_for_missing_values_are_left_out_of_windows(tmp_path):
    write(tmp_path, s3={"json": b"{}"})
    batch = {"cost": "kind + 1", "max_cost": 10, "window": 10}
    spec = spec_of(tmp_path, LABEL, missing="skip", batch=batch, epoch="pass")
    with wdspec.loader(spec, num_workers=0) as loader:
        keys = sorted(key for batch in loader for key in batch["__key__"])
        assert loader.stats().sources["a"].dropped == {"missing": 1}
    assert keys == [f"{number:04}" for number in range(40) if number != 3]


@pytest.mark.parametrize("where", [{}, {"where": "kind >= 0"}])
def test_a_value_that_a_step_cannot_use_is_an_error_or_a_skip_of_its_sample(where, tmp_path):
    write(tmp_path, s3={"json": b'{"animal": "wolf"}'})
    with pytest.raises(wdspec.FieldError, match="`label` has no class 'wolf'") as caught:
        samples(spec_of(tmp_path, LABEL, **where))
    assert (caught.value.place["key"], caught.value.place["field"]) == ("0003", "kind")
    found = samples(spec_of(tmp_path, LABEL, errors="skip", **where), 39)
    assert [sample["__key__"] for sample in found] == [f"{number:04}" for number in range(40) if number != 3]


@pytest.mark.parametrize("keys", [{}, {"where": "kind >= 0"}, {"to_tuple": "kind"}, {"fields": "kind"}])
def test_a_file_that_has_the_name_of_a_made_field_is_an_error(keys, tmp_path):
    write(tmp_path, s2={"kind": b"already here"})
    with pytest.raises(
        wdspec.FieldError, match="makes the field `kind`, but the sample already has one"
    ) as caught:
        samples(spec_of(tmp_path, LABEL, **keys))
    assert (caught.value.code, caught.value.place["key"]) == ("D206", "0002")


def test_a_column_that_has_the_name_of_a_made_field_is_an_error(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"animal": "cat"}\n{"animal": "cat", "kind": 3}\n')
    source = {"shards": str(tmp_path / "a.jsonl"), "make": {"kind": {"label": "animal", "names": ANIMALS}}}
    with pytest.raises(wdspec.FieldError, match="makes the field `kind`, but the sample already has one"):
        samples(wdspec.load({"dataset": [source]}))


def test_a_file_of_that_name_that_is_not_read_does_no_harm(tmp_path):
    write(tmp_path, s2={"kind": b"already here"})
    assert [sample["kind"] for sample in samples(spec_of(tmp_path, LABEL, extensions="json cls"))] == KINDS


def test_runs_resume_with_made_fields_in_selections_and_costs(tmp_path):
    write(tmp_path)
    batch = {"cost": "kind + 1", "max_cost": 10, "window": 10}
    spec = spec_of(tmp_path, LABEL, where="kind > 0", batch=batch, shuffle=5, epoch={"batches": 8})
    assert_resumable(lambda: wdspec.loader(spec, num_workers=0), batches=16)


def test_workers_give_the_same_as_one_process(tmp_path):
    write(tmp_path)
    spec = spec_of(
        tmp_path,
        LABEL,
        where="kind > 0",
        batch=4,
        shuffle=5,
        epoch={"batches": 6},
        elastic={"ranks": 1, "workers": 2},
    )
    found = []
    for workers in (0, 2):
        with wdspec.loader(spec, num_workers=workers) as loader:
            found.append([(batch["__key__"], batch["kind"].tolist()) for batch in loader])
    assert found[0] == found[1]
    assert len(found[0]) == 6


def test_what_files_have_is_not_pickled(tmp_path):
    (tmp_path / "names.txt").write_text("\n".join(f"class number {n}" for n in range(20_000)))
    entry = made_field.MadeField(
        "kind", STEPS["label"](label="cls", file=str(tmp_path / "names.txt")), "error", None
    )
    assert entry.make(["class number 9"], {}) == {"kind": 9}
    pickled = pickle.dumps(entry)
    assert len(pickled) < 5_000
    assert pickle.loads(pickled).make(["class number 9"], {}) == {"kind": 9}


def test_a_file_is_read_once_in_a_process_and_again_if_it_changes(tmp_path, monkeypatch):
    read, seen = made_field.resolve_name, []
    factory = lambda **options: seen.append(options) or read("wdspec.steps.label:make_label")(**options)  # noqa: E731
    monkeypatch.setattr(made_field, "resolve_name", lambda name: factory)
    (tmp_path / "names.txt").write_text("cat\ndog")
    write(tmp_path)
    recipe = STEPS["label"](label="cls", file=str(tmp_path / "names.txt"))
    entries = [made_field.MadeField(name, recipe, "error", None) for name in ("a", "b")]
    assert [entry.make(["dog"], {}) for entry in entries] == [{"a": 1}, {"b": 1}]
    assert len(seen) == 1
    (tmp_path / "names.txt").write_text("cat\nbird\ndog")
    assert made_field.MadeField("c", recipe, "error", None).make(["dog"], {}) == {"c": 2}


def test_class_names_come_from_the_spec_and_the_loader(tmp_path):
    write(tmp_path)
    spec = spec_of(tmp_path, LABEL)
    assert spec.class_names("kind") == ANIMALS
    with wdspec.loader(spec, num_workers=0) as loader:
        assert loader.class_names("kind") == ANIMALS
    (tmp_path / "names.csv").write_text("cat,3\nkitty,3\ndog,5\n")
    spec = spec_of(tmp_path, {"kind": {"label": "json.animal", "file": str(tmp_path / "names.csv")}})
    assert spec.class_names("kind") == {3: "cat", 5: "dog"}
    with pytest.raises(
        wdspec.UsageError, match="no source of the spec makes a field 'kid' by `label`; did you mean `kind`"
    ):
        spec.class_names("kid")


def test_two_sources_that_number_a_class_in_two_ways_have_no_common_names(tmp_path):
    sources = [
        {"name": name, "shards": f"{name}.tar", "make": {"kind": {"label": "cls", "names": names}}}
        for name, names in (("a", ["cat", "dog"]), ("b", ["dog", "cat"]))
    ]
    with pytest.raises(wdspec.UsageError, match="`a` and `b` number the classes of 'kind' in two ways"):
        wdspec.load({"dataset": sources}).class_names("kind")


def test_paths_are_relative_to_the_file_that_has_them_and_defaults_merge_by_key(tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "names.txt").write_text("cat\ndog")
    (tmp_path / "base" / "base.yaml").write_text(
        "dataset: [{name: a, shards: a.tar}]\ndefaults: {make: {kind: {label: cls, file: names.txt}}}\n"
    )
    (tmp_path / "spec.yaml").write_text(
        "extends: base/base.yaml\nsources:\n  a:\n    make:\n      kind: {aliases: {kitty: cat}}\n"
        "      other: {label: cls, names: [x]}\n"
    )
    (source,) = wdspec.load(str(tmp_path / "spec.yaml")).sources
    assert source.make["kind"].file == str(tmp_path / "base" / "names.txt")
    assert source.make["kind"].aliases == {"kitty": "cat"}
    assert source.make["other"].names == {"x": 0}
    (tmp_path / "spec.yaml").write_text("extends: base/base.yaml\nsources: {a: {make: {kind: null}}}\n")
    assert wdspec.load(str(tmp_path / "spec.yaml")).sources[0].make == {}


def test_steps_work_in_secure_mode(tmp_path, monkeypatch):
    monkeypatch.setenv("WDS_SECURE", "1")
    write(tmp_path)
    assert [sample["kind"] for sample in samples(spec_of(tmp_path, LABEL))] == KINDS


@pytest.mark.parametrize("fields", [None, ["kind"]])
def test_a_file_whose_name_has_a_dot_needs_a_name_without_one(fields, tmp_path):
    write_shard(tmp_path / "a.tar", [("a", {"label.txt": b"cat", "json": b"{}"})])
    keys = {} if fields is None else {"fields": fields}
    spec = spec_of(tmp_path, {"kind": {"label": "label.txt", "names": ["cat"]}}, **keys)
    with pytest.raises(wdspec.FieldError, match=r"write `rename: \{label: label.txt\}`") as caught:
        next(iter(wdspec.loader(spec, num_workers=0)))
    assert "alternative" not in str(caught.value)
    assert "`extensions`" not in str(caught.value)


def test_a_field_with_the_first_part_of_the_name_of_a_file_is_made_of_it_as_the_message_says(tmp_path):
    write_shard(tmp_path / "a.tar", [("a", {"label.txt": b"cat"})])
    with pytest.raises(wdspec.SpecError, match="`label` would be made from itself") as caught:
        wdspec.load(spec_of(tmp_path, {"label": {"label": "label.txt", "names": ["cat"]}}))
    assert "write `rename: {file_label: label.txt}`, and make `label` from `file_label`" in str(caught.value)
    made = {"label": {"label": "file_label", "names": ["cat"]}}
    spec = spec_of(tmp_path, made, rename={"file_label": "label.txt"})
    assert next(iter(wdspec.loader(spec, num_workers=0)))["label"] == 0


@pytest.mark.parametrize("origin", ["label", "label[0]", "label[:].name"])
def test_a_field_that_would_be_made_from_its_own_items_is_made_from_no_file(origin, tmp_path):
    with pytest.raises(wdspec.SpecError, match="`label` would be made from itself") as caught:
        wdspec.load(spec_of(tmp_path, {"label": {"label": origin, "names": ["cat"]}}))
    assert "rename" not in str(caught.value)


def test_the_result_of_a_step_is_not_proposed_for_what_it_is_made_from(tmp_path):
    """Written there, it would be made from itself."""
    write(tmp_path)
    spec = spec_of(tmp_path, {"animals": {"label": "animalz", "names": ANIMALS}}, fields=["animals"])
    with pytest.raises(wdspec.FieldError, match="no field 'animalz'") as caught:
        next(iter(wdspec.loader(spec, num_workers=0)))
    assert "Did you mean `animals`" not in str(caught.value)


def test_the_only_other_column_is_proposed_for_a_field_that_a_sample_lacks(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"other": "a", "lang": "en"}\n')
    spec = {"dataset": [{"shards": str(tmp_path / "a.jsonl")}], "fields": ["body", "lang"]}
    with pytest.raises(wdspec.FieldError, match=r"write `rename: \{body: other\}`, or set"):
        next(iter(wdspec.loader(spec, num_workers=0)))
    spec["dataset"][0]["rename"] = {"body": "other"}
    assert next(iter(wdspec.loader(spec, num_workers=0)))["body"] == "a"


def test_a_made_field_is_proposed_for_a_misspelt_one_in_where(tmp_path):
    write(tmp_path)
    spec = spec_of(tmp_path, {"labels": {"label": "name", "names": ANIMALS}}, where="lables >= 0")
    with pytest.raises(wdspec.FieldError, match=r"it has .*labels.*Did you mean `labels`\?"):
        next(iter(wdspec.loader(spec, num_workers=0)))
