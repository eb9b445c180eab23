"""No batch of a window has a sample twice, and batches are those of a plain loop over lists."""

import random
from itertools import chain

import numpy as np
import pytest
from oracle import grouping
from oracle.grouping import Candidate

from wdspec.planning.windows import (
    Copies,
    WindowRules,
    find_copies,
    gather_groups,
    plan_batches,
    plan_window,
    rules_of,
)
from wdspec.spec.language.batch import Batch

METHODS = ("padded", "sums", "best_fit", "in_order", "concatenate")


class Window:
    """A window of random samples, of which there are copies.

    Args:
        draw: the random numbers.
        has_fractions: whether costs may be fractions.
        limits: the number of further costs.
    """

    def __init__(self, draw, has_fractions, limits):
        different = draw.randint(1, 40)
        costs = [float(draw.choice([draw.randint(1, 50), draw.randint(1, 10)])) for _ in range(different)]
        if has_fractions:
            costs = [cost + draw.random() / 2 for cost in costs]
        further = [float(draw.randint(0, 40)) for _ in range(different)]
        self.names = [draw.randrange(different) for _ in range(draw.randint(1, 50))]
        self.costs = np.array([costs[name] for name in self.names])
        self.sums = np.array([[further[name]] * limits for name in self.names]).reshape(
            len(self.names), limits
        )

    def candidates(self, values=1):
        """The samples for the plain loop, with several values of `group_by`."""
        rows = zip(self.costs.tolist(), self.sums.tolist(), self.names, strict=True)
        made = [Candidate(cost, sums, 0, name % values, None, None, name=name) for cost, sums, name in rows]
        for place, each in enumerate(made):
            each.place = place
        return made


def draw_batch(draw, method):
    """A `batch` that fills by a method, with some further keys."""
    length = draw.choice([51, 100, 300])
    if method in ("padded", "sums"):
        keys = {"cost": "x", "max_cost": length, "padded": method == "padded"}
        if draw.random() < 0.3:
            keys["max_size"] = draw.randint(1, 8)
        if draw.random() < 0.3:
            keys["limits"] = {"y": draw.choice([60, 100])}
        if method == "padded" and draw.random() < 0.3:
            keys["size_multiple"] = draw.randint(1, 4)
        if draw.random() < 0.2:
            keys |= {"max_cost": 30, "limits": {"y": 30}, "overlong": "alone"}
        return Batch(**keys)
    keys = {"pack": {"fields": ["ids"], "length": length, "method": method}}
    if draw.random() < 0.4:
        keys["pack"]["length"] = 20
        keys["overlong"] = "error" if method == "concatenate" else draw.choice(["truncate", "split"])
    return Batch(**keys)


@pytest.mark.parametrize("method", METHODS)
def test_batches_are_those_of_a_plain_loop(method):
    draw = random.Random(METHODS.index(method))
    for _ in range(300):
        batch = draw_batch(draw, method)
        has_fractions = not batch.cuts_samples and draw.random() < 0.3
        window = Window(draw, has_fractions, len(batch.limits))
        pieces, planned = plan_batches(window.costs, window.sums, batch, find_copies(window.names))
        right = grouping._make_batches(window.candidates(), grouping.Rules(batch))
        if pieces is None:
            assert [list(each) for each in planned] == [[one.place for one in each] for each in right]
        else:
            found = [[pieces[at] for at in each] for each in planned]
            assert found == [[(one.place, *one.cut[1:]) for one in each] for each in right]


@pytest.mark.parametrize("method", METHODS)
def test_no_batch_has_a_sample_twice(method):
    draw = random.Random(METHODS.index(method))
    for _ in range(200):
        batch = draw_batch(draw, method)
        window = Window(draw, False, len(batch.limits))
        pieces, planned = plan_batches(window.costs, window.sums, batch, find_copies(window.names))
        of_batches = [[at if pieces is None else pieces[at][0] for at in each] for each in planned]
        for places in of_batches:
            different = set(places)
            assert len({window.names[at] for at in different}) == len(different)
        if batch.overlong != "truncate":
            spent = sum(stop - start for _, start, stop in pieces or ())
            assert pieces is None or spent == window.costs.sum()
        assert {at for places in of_batches for at in places} == set(range(len(window.names)))


@pytest.mark.parametrize("incomplete", ["keep", "merge", "drop"])
def test_groups_are_those_of_a_plain_loop(incomplete):
    draw = random.Random(7)
    for _ in range(300):
        keys = {"group_by": "g", "incomplete": incomplete, "window": draw.choice([5, 20, 100])}
        keys |= {"size": draw.randint(1, 8)} if draw.random() < 0.5 else {"cost": "x", "max_cost": 100}
        if draw.random() < 0.3:
            keys["size_multiple"] = draw.randint(1, min(4, keys.get("size", 4)))
        if draw.random() < 0.3:
            keys["limits"] = {"y": draw.choice([60, 100])}
        batch, values = Batch(**keys), draw.randint(1, 4)
        window = Window(draw, draw.random() < 0.3, len(batch.limits))
        samples = [
            (each.cost, each.sums, 0, each.value, each.place, each.name) for each in window.candidates(values)
        ]
        dropped = []
        found = gather_groups(
            samples, rules_of(batch), incomplete, dropped.extend, batch.window, 5, 3, lambda each: each[5]
        )
        places = [[each[4] for each in members] for members in found]
        right = grouping.plan_groups(window.candidates(values), batch, 5, 3)
        assert places == [[each.place for each in members] for members in right]
        assert sorted([*chain.from_iterable(places), *(each[4] for each in dropped)]) == list(
            range(len(window.names))
        )
        for members in places:
            assert len({window.names[at] for at in members}) == len(members)


class CountedName:
    """The name of a sample, which counts how often it is looked up."""

    looked_up = 0

    def __hash__(self):
        CountedName.looked_up += 1
        return id(self)


def test_a_sample_is_not_compared_with_all_open_batches():
    names = [CountedName() for _ in range(3)]
    samples = [(1.0, (), 0, at % 2, at, names[at % 3]) for at in range(3_000)]  # no batch of eight gets full
    found = list(
        gather_groups(samples, WindowRules(max_size=8), "keep", [].extend, 100, 5, 3, lambda each: each[5])
    )
    assert len(found) == 1_000
    assert CountedName.looked_up < 10 * len(samples)


def test_a_window_without_copies_has_no_parts():
    assert find_copies([]) is find_copies(range(100)) is None


def test_parts_have_equal_numbers_of_samples_and_no_copies():
    draw = random.Random(3)
    for _ in range(100):
        names = [draw.randrange(draw.randint(1, 30)) for _ in range(60)]
        copies = find_copies(names)
        parts = copies.split()
        assert copies.part_count == len(parts) == max(map(names.count, names))
        assert sorted(at for part in parts for at in part.tolist()) == list(range(60))
        for part in parts:
            assert len({names[at] for at in part}) == len(part)
    five = find_copies([*range(40)] * 5)
    assert [len(part) for part in five.split()] == [40] * 5


@pytest.mark.parametrize(
    ("rules", "most"),
    [
        (WindowRules(8192), 0.05),
        (WindowRules(8192, padded=False), 0.01),
        (WindowRules(8192, padded=False, in_order=True), 0.01),
    ],
    ids=["padded", "best fit", "in order"],
)
def test_five_passes_in_a_window_leave_batches_full(rules, most):
    generator = np.random.default_rng(1)
    for seed in range(5):
        names = [each for _ in range(5) for each in generator.permutation(200).tolist()]
        by_name = np.minimum(np.round(generator.lognormal(5, 0.8, 200)) + 1, 4000)
        costs = by_name[names]

        def fill(copies: Copies | None, costs=costs):
            batches = [costs[list(each)] for each in plan_window(costs, np.zeros((1000, 0)), rules, copies)]
            spent = [len(each) * each.max() if rules.padded else each.sum() for each in batches]
            return sum(spent) / rules.max_cost / len(batches)

        assert fill(find_copies(names)) > fill(None) - most, seed


def test_many_copies_are_planned_fast():
    names = [0] * 20_000
    costs, sums = np.ones(20_000), np.zeros((20_000, 0))
    for rules in (WindowRules(8), WindowRules(8, padded=False), WindowRules(8, padded=False, in_order=True)):
        planned = plan_window(costs, sums, rules, find_copies(names))
        assert [list(each) for each in planned] == [[at] for at in range(20_000)]
