"""Batches compared with torch's `default_collate`, where it is defined."""

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from wdspec.base.errors import FieldError
from wdspec.read.batch import as_tuple, collate, stack


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 3],
        [1.5, 2.5],
        [True, False],
        [torch.zeros(2, 3), torch.ones(2, 3)],
        [np.zeros((2, 2), np.uint8), np.ones((2, 2), np.uint8)],
        [np.float32(1), np.float32(2)],
    ],
)
def test_equal_values_stack_as_in_torch(values):
    ours, theirs = stack(values), default_collate(values)
    assert ours.dtype == theirs.dtype
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "values",
    [
        ["a", "b"],
        [b"a", b"b"],
        [None, 1],
        [{"a": 1}, {"a": 2}],
        [1, 2.5],
        [np.zeros(2), np.zeros(3)],
        [np.zeros(2), np.zeros(2, np.float32)],
        [torch.zeros(2), torch.zeros(3)],
        [1 << 70, 1],
        [np.array(["a"]), np.array(["b"])],
        [np.array([None]), np.array([None])],
    ],
)
def test_values_that_do_not_stack_become_a_list(values):
    assert stack(values) is values


def sample(source, key="k", **fields):
    return {"__key__": key, "__url__": "u.tar", "__source__": source, **fields}


def test_a_batch_is_a_dict_in_the_order_of_the_fields():
    batch = collate([sample("a", cls=1, txt="x"), sample("a", "l", txt="y", cls=2)])
    assert list(batch) == ["__key__", "__url__", "__source__", "cls", "txt"]
    assert batch["cls"].tolist() == [1, 2]
    assert batch["__key__"] == ["k", "l"]


def test_different_sources_are_listed_with_a_rename_to_paste():
    with pytest.raises(FieldError) as caught:
        collate([sample("a", image=1, cls=2), sample("b", png=1, cls=2)])
    assert "a: cls, image\n  b: cls, png" in str(caught.value)
    assert "in b: rename: {image: png}" in str(caught.value)


def test_different_samples_of_one_source_are_reported():
    with pytest.raises(FieldError, match=r"one source have different fields.*\(cls; cls, txt\).*key k2"):
        collate([sample("a", cls=1), sample("a", "k2", cls=1, txt="x")])


def test_tuples_use_the_first_present_alternative():
    assert as_tuple({"png": 1, "cls": 2}, ("jpg;png", "cls")) == (1, 2)
    with pytest.raises(FieldError, match="no field `jpg`; it has: png"):
        as_tuple({"png": 1}, ("jpg",))
