"""The steps of a sample in order, compared with the same steps written by hand."""

import itertools

import pytest

from wdspec.base.errors import FieldError
from wdspec.fields.samples import SampleFields
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.transform import Transform, UserFunctions
from wdspec.spec.language.options import Errors
from wdspec.spec.language.samples import Call


def raw(number, **fields):
    place = {"__key__": f"k{number}", "__url__": "u.tar", "__source__": "s"}
    return {**place, **(fields or {"cls": b"%d" % number})}


def built(skip=False, fields=None, **transform):
    budget = ErrorBudget(Errors(skip=skip), "s")
    transform = Transform(fields or SampleFields(), **transform)
    return transform.build(budget, seed=3, slot=5, functions=UserFunctions(lends=False)), budget


def trace(tmp_path, monkeypatch):
    (tmp_path / "tracing.py").write_text(
        "def first(sample): return {**sample, 'trace': [('first', sorted(sample))]}\n"
        "def last(sample): return {**sample, 'trace': [*sample['trace'], ('last', sorted(sample))]}\n"
        "def even(sample): return 'trace' not in sample and sample['cls'] % 2 == 0\n"
        "def forgetful(sample): return {'cls': sample['cls']}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


def test_without_transforms_fields_are_decoded_and_counted():
    process, budget = built()
    assert process(raw(7), 1) == {**raw(7), "cls": 7}
    assert budget.delivered == 1


def test_select_then_maps_of_the_source_then_tags_then_maps_of_the_spec_then_fields(tmp_path, monkeypatch):
    trace(tmp_path, monkeypatch)
    process, budget = built(
        selects=("tracing:even",),
        maps=(Call(call="tracing:first"), Call(call="tracing:last")),
        own_maps=1,
        tags={"lang": "en"},
        keep=("trace", "lang"),
    )
    assert [process(raw(n), n) is None for n in range(4)] == [False, True, False, True]
    names = sorted(raw(0))
    sample = process(raw(0), 5)
    assert sample["trace"] == [("first", names), ("last", sorted([*names, "trace", "lang"]))]
    assert set(sample) == {*names, "trace", "lang"} - {"cls"}
    assert (budget.dropped, budget.delivered) == ({"select": 2}, 3)


def test_a_map_cannot_lose_the_origin_of_a_sample(tmp_path, monkeypatch):
    trace(tmp_path, monkeypatch)
    process, _ = built(maps=(Call(call="tracing:forgetful"),), own_maps=1)
    assert process(raw(3), 1) == {**raw(3), "cls": 3}


@pytest.mark.parametrize(
    ("keep", "kept"), [(("b;a",), {"b": 1}), (("a", "b"), {"a": 2, "b": 1}), (("c;b",), {"c": 1})]
)
def test_alternatives_use_the_first_present_field_under_the_first_name(keep, kept):
    process, _ = built(fields=SampleFields(names=("raw",)), keep=keep)
    sample = process(raw(0, a=b"2", b=b"1"), 1)
    assert {name: int(value) for name, value in sample.items() if name[0] != "_"} == kept


@pytest.mark.parametrize("missing", ["error", "skip", "none"])
def test_a_missing_required_field_is_an_error_dropped_or_none(missing):
    process, budget = built(need=("z;y",), missing=missing)
    if missing == "error":
        with pytest.raises(FieldError, match=r"no field `z;y`; it has: cls.*source s.*key k1"):
            process(raw(1), 1)
    elif missing == "skip":
        assert process(raw(1), 1) is None
        assert budget.dropped == {"missing": 1}
    else:
        assert process(raw(1), 1)["z"] is None


def test_a_skip_yields_nothing_and_does_not_affect_the_next_sample():
    process, budget = built(skip=True)
    assert [process(raw(n, cls=text), n) for n, text in enumerate((b"x", b"1"))] == [
        None,
        {**raw(1), "cls": 1},
    ]
    assert (budget.skipped, budget.delivered) == ({"D202": 1}, 1)


def test_random_numbers_depend_on_slot_and_ordinal():
    def draws(slot, ordinals):
        budget = ErrorBudget(Errors(), "s")
        transform = Transform(SampleFields(), maps=(Call(call="picks:jitter"),), own_maps=1)
        process = transform.build(budget, 3, slot, UserFunctions(lends=False))
        return [process(raw(0), ordinal)["noise"] for ordinal in ordinals]

    first = draws(5, range(20))
    assert draws(5, reversed(range(20))) == first[::-1]
    assert len({*first, *draws(6, range(20))}) == 40
    assert all(a != b for a, b in itertools.pairwise(first))
