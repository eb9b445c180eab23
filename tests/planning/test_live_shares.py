"""Shares that are set during a run: segments as in a schedule, starting at any batch."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from wdspec.base.errors import UsageError
from wdspec.planning.plan import make_plan
from wdspec.planning.shares import (
    LiveShares,
    checked_shares,
    current_shares,
    live_segments,
    shares_as_text,
    shares_from_text,
)
from wdspec.planning.topology import Topology
from wdspec.spec.load import load

SPEC = {
    "dataset": [
        {"name": "web", "shards": "web-{0..9}.tar", "weight": 6},
        {"name": "off", "shards": "off-{0..9}.tar", "weight": 0},
        {
            "name": "books",
            "weight": 3,
            "dataset": [
                {"name": "old", "shards": "old-{0..9}.tar", "weight": 1},
                {"name": "new", "shards": "new-{0..9}.tar", "weight": 3},
            ],
        },
    ],
    "batch": 8,
}


def planned(topology=Topology(2, 3), **changes):  # noqa: B008
    spec = load({**SPEC, **changes})
    return spec, make_plan(spec, {source.name: range(10) for source in spec.sources}, topology)


def live_plan(live, topology=Topology(2, 3), **changes):  # noqa: B008
    spec, plan = planned(topology, **changes)
    return plan.with_shares(
        live_segments(spec, [source.name for source in plan.sources], live, lambda source: 10)
    )


def counts(plan, first, last):
    """How often each source is drawn in the global batches first..last-1."""
    draws, topology = plan.draws(), plan.topology
    found = np.zeros(len(plan.sources), dtype=int)
    for number in range(first, last):
        m, k = divmod(number, topology.workers)
        for rank in range(topology.ranks):
            found += np.bincount(draws.batches(rank, k, m, 1).ravel(), minlength=len(found))
    return found


@pytest.mark.parametrize("start", [0, 1, 7])
def test_set_shares_apply_from_their_batch_and_within_nested_mixes(start):
    plan = live_plan([LiveShares(start, {"web": 1, "books": 4})])
    assert [source.name for source in plan.sources] == ["new", "old", "web"]
    assert [(each.start, each.shares) for each in plan.segments][-1] == (
        start,
        (Fraction(3, 5), Fraction(1, 5), Fraction(1, 5)),
    )
    if start:
        assert (counts(plan, 0, start) == counts(planned()[1], 0, start)).all()
    drawn = counts(plan, start, start + 60)
    assert abs(drawn - 960 * np.array([0.6, 0.2, 0.2])).max() < 4 * plan.topology.slots


def test_set_shares_replace_the_rest_of_a_schedule():
    steps = [{"at": at, "shares": {name: 1}} for at, name in ((0, "web"), (160, "books"), (320, "web"))]
    dataset = [{k: v for k, v in each.items() if k != "weight"} for each in SPEC["dataset"]]
    plan = live_plan([LiveShares(12, {"books": 1})], dataset=dataset, mix={"schedule": steps})
    assert [each.start for each in plan.segments] == [0, 10, 12]


def test_shares_set_for_every_batch_are_right_on_average():
    topology = Topology(1, 2)
    live = [LiveShares(start, {"web": 0.98, "books": 0.02}) for start in range(400)]
    plan = live_plan(live, topology)
    drawn = counts(plan, 0, 400)  # 8 samples each: 0.16 of `books`, 0.04 of `old`
    assert sum(drawn) == 3200
    assert 32 <= drawn[0] + drawn[1] <= 96
    assert drawn[1] > 4


@pytest.mark.parametrize("kind", ["even", "random"])
@pytest.mark.parametrize("unit", ["sample", "batch"])
def test_a_batch_does_not_depend_on_past_segments(kind, unit):
    live = [LiveShares(at, {"web": at + 1, "books": 10}) for at in (3, 5, 11, 20)]
    whole = live_plan(live, mix={"draw": kind, "unit": unit})
    for batch in range(25):
        part = live_plan(current_shares(live, batch), mix={"draw": kind, "unit": unit})
        assert (counts(part, batch, batch + 1) == counts(whole, batch, batch + 1)).all()


def test_states_contain_current_and_future_shares():
    live = [LiveShares(at, {"web": 1.0}) for at in (3, 5, 11)]
    assert [len(current_shares(live, batch)) for batch in (0, 3, 4, 5, 10, 11, 99)] == [3, 3, 3, 2, 2, 1, 1]
    assert current_shares([], 7) == ()
    assert shares_from_text(shares_as_text(live)) == tuple(live)
    one, other = ([LiveShares(1, dict(pairs))] for pairs in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)]))
    assert shares_as_text(one) == shares_as_text(other)


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ({}, r"shares must be a dict by name, such as \{'web': 1, 'off': 2\}, not '\{\}'"),
        ([0.5, 0.5], r"by name, such as \{.*, not '\[0.5, 0.5\]'"),
        ({"wbe": 1}, "the top-level list has no source 'wbe': did you mean `web`"),
        ({"old": 1}, "it is inside 'books', and has a fixed part of that mix's share"),
        ({"zzz": 1}, "its sources are web, off, books"),
        ({3: 1}, "the top-level list has no source 3: "),
        ({"web": 10**400}, "the share of 'web' is too large; a share must be at most 1e308"),
        ({"web": 10**5000}, "the share of 'web' is too large"),
        ({"web": -(10**5000)}, "the share of 'web' is too large"),
        ({"web": -1}, "the share of 'web' is -1; a share must be a number of at least 0"),
        ({"web": math.nan}, "the share of 'web' is nan"),
        ({"web": math.inf}, "the share of 'web' is inf"),
        ({"web": "1"}, "the share of 'web' is 1;"),
        ({"web": True}, "the share of 'web' is True"),
        ({"web": None}, "the share of 'web' is None"),
        ({"web": torch.ones(2)}, "the share of 'web' is tensor"),
        ({"web": 0, "books": 0.0}, "the shares of web, books are all 0; give one of them a share above 0"),
    ],
)
def test_values_that_are_not_shares_are_rejected(shares, says):
    with pytest.raises(UsageError, match=says):
        checked_shares(load(SPEC), shares)


def test_numbers_of_all_types_are_shares():
    given = checked_shares(load(SPEC), {"web": np.float32(0.5), "books": torch.tensor(0.25), "off": 0})
    assert given == {"web": 0.5, "books": 0.25, "off": 0}
    assert all(type(share) is float for share in given.values())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"epoch": "pass", "dataset": [{"shards": "web-{0..9}.tar"}]}, "no effect with `epoch: pass`"),
        ({"mix": {"draw": "round_robin"}}, "no effect with `draw: round_robin`, where sources take turns"),
        (
            {"dataset": [{"shards": "web-{0..9}.tar", "max_passes": 2, "samples": 9}]},
            "in a spec with `max_passes`",
        ),
    ],
)
def test_a_spec_that_does_not_draw_by_shares_is_rejected(changes, says):
    with pytest.raises(UsageError, match=says):
        checked_shares(load({**SPEC, **changes}), {"web": 1})


def test_an_unplanned_source_cannot_get_a_share():
    with pytest.raises(
        UsageError, match=r"never gives this source a share, so it is not in the plan.*source off"
    ):
        live_plan([LiveShares(3, {"web": 1, "off": 0.1})])


@pytest.mark.parametrize(
    "text", ["", "7", "[1]", "[[1]]", '[[-1, {"a": 1}]]', '[[2, {"a": 1}], [2, {"a": 1}]]', '[["1", {}]]']
)
def test_invalid_text_is_not_parsed_as_shares(text):
    with pytest.raises((ValueError, TypeError)):
        shares_from_text(text)
