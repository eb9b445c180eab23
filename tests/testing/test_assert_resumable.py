"""assert_resumable finds what is wrong with loaders that are wrong on purpose, and says where."""

import numpy as np
import pytest
import torch

from wdspec.testing import assert_resumable, difference


class Counting:
    """Batches 0, 1, 2, … in epochs of five, each a nested value; right in every respect."""

    length = 5

    def __init__(self):
        self.next = 0

    def batch(self, number):
        return {"x": torch.tensor([number, number + 1]), "meta": [{"n": np.float32(number)}, ("t", number)]}

    def __iter__(self):
        end = (self.next // self.length + 1) * self.length
        while self.next < end:
            self.next += 1
            yield self.batch(self.next - 1)

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


def test_a_correct_loader_passes():
    assert_resumable(Counting)
    assert_resumable(Counting, batches=7, stops=[0, 3, 7], live=False)


class LosesOne(Counting):
    def load_state_dict(self, state):
        self.next = state["next"] + (state["next"] == 3)


class RepeatsOne(Counting):
    def load_state_dict(self, state):
        self.next = max(0, state["next"] - 1)


class Grows(Counting):
    def state_dict(self):
        return {"next": self.next, "read": list(range(self.next))}


class KeepsTensors(Counting):
    def state_dict(self):
        return {"next": torch.tensor(self.next)}


class KeepsTuples(Counting):
    def state_dict(self):
        return {"next": self.next, "shape": (1, 2)}


class KeepsNan(Counting):
    def state_dict(self):
        return {"next": self.next, "loss": float("nan")}


class ChangesShape(Counting):
    def state_dict(self):
        return {"next": self.next if self.next < 9 else str(self.next)}

    def load_state_dict(self, state):
        self.next = int(state["next"])


class RestoresFreshOnly(Counting):
    def load_state_dict(self, state):
        if self.next == 0:
            self.next = state["next"]


class ForgetsWhatItLoaded(Counting):
    def __init__(self):
        super().__init__()
        self.base = 0

    def state_dict(self):
        return {"next": self.next - self.base}

    def load_state_dict(self, state):
        self.base = self.next = state["next"]


class BeginsAWholeEpoch(Counting):
    def __init__(self):
        super().__init__()
        self.start = None

    def __iter__(self):
        if self.start is None:
            yield from super().__iter__()
            return
        end, self.start = self.start + self.length, None
        while self.next < end:
            self.next += 1
            yield self.batch(self.next - 1)

    def load_state_dict(self, state):
        self.start = self.next = state["next"]


class HandsOutItsOwnState(Counting):
    def __init__(self):
        super().__init__()
        self.state = {"next": 0}

    def state_dict(self):
        self.state["next"] = self.next
        return self.state


class IsDisturbed(Counting):
    def state_dict(self):
        self.next += self.next == 4
        return super().state_dict()


class ChangesDtype(Counting):
    resumed = False

    def batch(self, number):
        batch = super().batch(number)
        return {**batch, "x": batch["x"].float()} if self.resumed else batch

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.resumed = True


class IsEmpty(Counting):
    def __iter__(self):
        return iter(())


class StopsAtTheEnd(Counting):
    def __iter__(self):
        return super().__iter__() if self.next < 5 or not hasattr(self, "loaded") else iter(())

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.loaded = True


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (
            LosesOne,
            r"saved a batch later: batch 3 is another one, namely batch 4 .* \(batches were lost\)",
        ),
        (
            RepeatsOne,
            r"saved a batch later: batch 1 is another one, namely batch 0 .* \(batches were repeated\)",
        ),
        (Grows, r"the state grows: \d+ values after 8 batches, at most \d+ until after 7 batches"),
        (KeepsTensors, r"state before the first batch is not JSON: Object of type Tensor"),
        (
            KeepsTuples,
            r"not JSON: a round trip through JSON text changes it: \['shape'\] should be a tuple",
        ),
        (KeepsNan, "not JSON: Out of range float"),
        (ChangesShape, r"changes its shape: state\['next'\]: str is new after 9 batches"),
        (
            RestoresFreshOnly,
            r"saved before the first batch, loaded into a live loader: batch 0 is another one",
        ),
        (ForgetsWhatItLoaded, r"after 1 batch, and again from one saved a batch later: batch 2 is another"),
        (
            BeginsAWholeEpoch,
            r"saved a batch later: batch 5 belongs to epoch 1, but an epoch ended too late",
        ),
        (
            HandsOutItsOwnState,
            r"saved before the first batch changed while reading .* state\['next'\] should be 0",
        ),
        (IsDisturbed, r"the start, saving a state after every batch: batch 4 .*namely batch 5"),
        (ChangesDtype, r"\['x'\] should be torch.int64 of shape \(2,\), was torch.float32"),
        (IsEmpty, "yields no batches"),
        (StopsAtTheEnd, r"batch 5 is missing, as the loader ended after 5 batches"),
    ],
)
def test_a_broken_loader_is_detected(broken, says):
    with pytest.raises(AssertionError, match=says):
        assert_resumable(broken)


def test_states_that_are_not_json_can_be_allowed():
    class Tensors(KeepsTensors):
        def load_state_dict(self, state):
            self.next = int(state["next"])

    assert_resumable(Tensors, as_json=False)
    assert_resumable(Grows, steady=False)


def test_endless_loaders_need_a_number_of_batches():
    class Endless(Counting):
        length = 10**9

    assert_resumable(Endless, batches=20, stops=[1, 19])
    with pytest.raises(AssertionError, match="no end of an epoch within 10000 batches; pass `batches`"):
        assert_resumable(Endless)


def test_loaders_are_closed():
    closed = []

    class Closing(Counting):
        def close(self):
            closed.append(self)

    assert_resumable(Closing, batches=3)
    assert len(closed) == len({*map(id, closed)}) == 2 + 4


@pytest.mark.parametrize(
    ("expected", "seen", "says"),
    [
        (1, 1.0, "should be a int, was a float"),
        ({"a": 1}, {"b": 1}, "should have the keys"),
        ([1, 2], [1], "should have 2 elements, had 1"),
        ({"a": [0, {"b": b"x"}]}, {"a": [0, {"b": b"y"}]}, r"['a'][1]['b'] should be b'x', was b'y'"),
        (np.zeros(2), np.zeros(2, np.float32), "should be float64 of shape (2,), was float32"),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0]), "nan"),
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 0.0]), "nan"),
        (float("nan"), 1.0, "should be nan"),
        ("x" * 1000, "y", "…"),
    ],
)
def test_differences_are_named(expected, seen, says):
    assert says in difference(expected, seen)
    assert difference(expected, expected) is None
