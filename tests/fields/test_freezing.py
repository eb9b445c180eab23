"""Samples as bytes: they come back unchanged, and nothing is a pickle."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wdspec import FieldError
from wdspec.fields.encode import freeze, thaw

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
values = st.binary() | json_values


@given(st.dictionaries(st.text(), values) | st.lists(values) | st.lists(values).map(tuple) | values)
def test_samples_round_trip(sample):
    there = thaw(freeze(sample))
    assert there == sample
    assert type(there) is type(sample)


def test_arrays_and_tensors_keep_shape_and_type():
    sample = {"a": np.arange(6, dtype=np.uint8).reshape(2, 3), "b": torch.ones(2, 2), "c": torch.tensor(3)}
    there = thaw(freeze(sample))
    assert there["a"].dtype == np.uint8
    assert np.array_equal(there["a"], sample["a"])
    assert torch.equal(there["b"], sample["b"])
    assert torch.equal(there["c"], sample["c"])


@pytest.mark.parametrize("value", [{1: 2}, (1, 2), object(), np.array([object()]), {"x": (1,)}, {1, 2}])
def test_values_that_need_pickle_are_rejected(value):
    with pytest.raises(FieldError, match=r"stored.*\[field x\]"):
        freeze({"__key__": "a", "x": value})
