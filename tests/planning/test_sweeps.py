"""Promise 5 in sweeps: no drift and no aliasing, whatever the shares, the topology and the batch.

Counts are taken per slot, per global batch, over the whole job, per rank and per position in the batch. The quick
sweeps run in CI; `pytest -m long` runs them all.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from wdspec.planning.draws import Draws, ScheduledDraws
from wdspec.planning.topology import Topology

WEIGHTS = {
    "halves": (1, 1),
    "thirds": (1, 1, 1),
    "two to one": (2, 1),
    "fibonacci": (89, 55, 34),
    "golden": (610, 377),
    "tenths": (7, 2, 1),
    "sevenths": (1,) * 7,
    "tiny": (1, 10**6),
    "tiny among others": (10**6, 10**6, 1),
    "one large, many small": (51, *[1] * 49),
    "fifty equal": (1,) * 50,
    "powers of two": tuple(2**i for i in range(12)),
    "just below a half": (499_999, 500_001),
}
FIBONACCI = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233)
OTHERS = (4, 6, 7, 10, 16, 32, 60, 64, 100, 128, 256)
TOPOLOGIES = [(n, k) for n in (1, 2, 3, 4, 5, 8, 13, 16) for k in (1, 2, 3, 4, 5, 8, 12)]


def shares_of(name):
    weights = WEIGHTS[name]
    return [Fraction(w, sum(weights)) for w in weights]


def counts_of(drawn, sources):
    """Counts of each source along the last axis: (…, n) -> (…, sources)."""
    flat = drawn.reshape(-1, drawn.shape[-1])
    offsets = np.arange(len(flat))[:, None] * sources
    return np.bincount((flat + offsets).ravel(), minlength=len(flat) * sources).reshape(
        *drawn.shape[:-1], sources
    )


def drawn_by_all(draws, topology, batches, first=0):
    """(N, K, batches, b): the sources of the slots' batches m = first.. on."""
    ranks, workers = range(topology.ranks), range(topology.workers)
    return np.stack([np.stack([draws.batches(c, k, first, batches) for k in workers]) for c in ranks])


def check_even(shares, topology, b, batches=24, first=0, unit="sample"):
    """Asserts the bounds of promise 5 on everything that is counted, from batch m = first on."""
    draws = Draws(shares, 7, topology, b, "even", unit)
    exact = np.array([float(share) for share in shares])
    drawn = drawn_by_all(draws, topology, batches, first)
    if unit == "batch":
        assert (drawn == drawn[:1, :, :, :1]).all(), "one source a batch, on every rank"
        drawn = drawn[:, :, :, :1]
        slots = drawn[:1]
        b = 1
    else:
        slots = drawn
    n, k = slots.shape[:2]
    counts = counts_of(slots, len(shares))  # (N, K, batches, sources)
    along = counts.cumsum(axis=2) - np.arange(1, batches + 1)[:, None] * b * exact
    assert np.abs(along).max() < (3 if first == 0 else 4), "every slot, at every batch"
    whole = counts.sum(axis=0)  # (K, batches, sources): global batches
    if unit == "sample":
        assert np.abs(whole - n * b * exact).max() < 4, "every global batch"
    job = along.sum(axis=(0, 1)) if first == 0 else np.zeros(1)
    assert np.abs(job).max() <= max(n * k, 3), "the job: one a slot"
    ranks = along.sum(axis=1) if first == 0 else np.zeros(1)
    assert np.abs(ranks).max() <= max(k, 3), "every rank: one for each of its slots"


def proven_bounds(shares):
    """β of every source (`planning.even`), from the heights of Huffman's tree, joined the slow, obvious way."""
    above = {
        source: [] for source in range(len(shares))
    }  # source -> the shares of the nodes above it, root left out
    nodes = [(share, source, (source,)) for source, share in enumerate(shares)]
    while len(nodes) > 2:
        nodes.sort(key=lambda node: node[:2])
        (one, place, left), (other, second, right) = nodes[:2]
        nodes[:2] = [(one + other, min(place, second), left + right)]
        for source in left + right:
            above[source].append(one + other)
    return np.array([float(1 + sum(p / q for q in above[source])) for source, p in enumerate(shares)])


@pytest.mark.parametrize("name", WEIGHTS)
def test_no_count_exceeds_the_proven_deviation(name):
    shares = shares_of(name)
    exact, bounds = np.array([float(share) for share in shares]), proven_bounds(shares)
    assert bounds.max() < 4
    for (n, k), b, first in itertools.product(((1, 1), (2, 1), (2, 3), (4, 5)), (1, 7, 16, 60), (0, 1 << 40)):
        drawn = drawn_by_all(Draws(shares, 7, Topology(n, k), b), Topology(n, k), 30, first)
        counts = counts_of(drawn, len(shares))  # (N, K, batches, sources)
        slots = (counts - b * exact).cumsum(axis=2)
        job = slots.sum(axis=(0, 1))
        assert (np.abs(slots) < bounds).all(), "a slot, after whole batches"
        assert (np.abs((counts - b * exact).sum(axis=0)) < bounds).all(), "a global batch"
        assert (np.abs(job) < n * k * bounds).all(), "the job, a slot"
        before = np.concatenate([np.zeros_like(slots[:, :, :1]), slots[:, :, :-1]], axis=2)
        here = drawn[..., None] == np.arange(len(shares))  # (N, K, batches, b, sources)
        inside = before[:, :, :, None] + (here - exact).cumsum(axis=3)
        allowed = bounds + counts * (1 - counts / b)
        assert (np.abs(inside) < allowed[:, :, :, None] + 1e-9).all(), "a slot, inside a batch"


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("b", [1, 5, 8, 34, 60])
def test_even_draws_on_some_topologies(name, b):
    for n, k in ((1, 1), (3, 2), (8, 5), (4, 12)):
        check_even(shares_of(name), Topology(n, k), b)
        check_even(shares_of(name), Topology(n, k), b, unit="batch")


@pytest.mark.parametrize("first", [1 << 40, (1 << 50) - 5])
@pytest.mark.parametrize("unit", ["sample", "batch"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_even_draws_at_large_positions(name, unit, first):
    for (n, k), b in (((1, 1), 1), ((3, 4), 21), ((8, 2), 64)):
        check_even(shares_of(name), Topology(n, k), b, first=first, unit=unit)


@pytest.mark.long
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("unit", ["sample", "batch"])
def test_even_draws_on_all_topologies(name, unit):
    for (n, k), b in itertools.product(TOPOLOGIES, (*FIBONACCI, *OTHERS)):
        check_even(shares_of(name), Topology(n, k), b, unit=unit)


def worst_drift(draws, shares, rank, worker, total, step=1 << 20):
    """The largest distance from the exact share over `total` draws of a slot, looked at after every draw."""
    exact = np.array([float(share) for share in shares])
    offsets, seen, worst = np.zeros(len(shares)), 0, 0.0
    while seen < total:
        drawn = draws.sequence(rank, worker, seen, min(step, total - seen))
        along = np.arange(1, len(drawn) + 1)
        for source, share in enumerate(exact):
            off = offsets[source] + np.cumsum(drawn == source) - along * share
            worst = max(worst, np.abs(off).max())
            offsets[source] = off[-1]
        seen += len(drawn)
    return worst


@pytest.mark.parametrize("name", ["thirds", "golden", "tiny", "one large, many small"])
def test_no_drift_in_a_million_draws(name):
    shares = shares_of(name)
    assert worst_drift(Draws(shares, 1, Topology(3, 4), 8), shares, 2, 1, 1_000_000) < 4


@pytest.mark.long
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("slot", [(0, 0), (7, 3)])
def test_no_drift_in_ten_million_draws(name, slot):
    shares = shares_of(name)
    assert worst_drift(Draws(shares, 1, Topology(8, 4), 32), shares, *slot, 10_000_000) < 4


@pytest.mark.parametrize("name", ["halves", "thirds", "fibonacci", "golden", "tenths"])
@pytest.mark.parametrize("b", [5, 8, 34, 55, 89])
@pytest.mark.parametrize("draw", ["even", "random"])
def test_no_position_in_the_batch_is_biased(name, b, draw):
    shares, batches = shares_of(name), 4000
    drawn = Draws(shares, 3, Topology(2, 3), b, draw).batches(1, 2, 0, batches)
    for source, share in enumerate(map(float, shares)):
        spread = np.abs((drawn == source).mean(axis=0) - share).max()
        assert spread < 5.5 * (share * (1 - share) / batches) ** 0.5


@pytest.mark.long
@pytest.mark.parametrize("name", WEIGHTS)
def test_no_position_in_any_batch_is_biased(name):
    shares, batches = shares_of(name), 20_000
    for b in (*FIBONACCI[2:], *OTHERS):
        drawn = Draws(shares, 3, Topology(2, 3), b).batches(1, 2, 0, batches)
        for source, share in enumerate(map(float, shares)):
            expected = batches * share
            off = np.abs((drawn == source).sum(axis=0) - expected).max()
            assert off < 6 * max(expected * (1 - share), 1) ** 0.5 + 6, (b, source)


@pytest.mark.parametrize("name", ["halves", "thirds", "fibonacci", "tenths", "sevenths", "tiny"])
@pytest.mark.parametrize("unit", ["sample", "batch"])
def test_random_draws_stay_within_five_and_a_half_sigma(name, unit):
    shares, topology, batches = shares_of(name), Topology(3, 4), 3000
    drawn = drawn_by_all(Draws(shares, 9, topology, 8, "random", unit), topology, batches)
    if unit == "batch":
        drawn = drawn[:1, :, :, :1]
    for source, share in enumerate(map(float, shares)):
        here = drawn == source
        for axis in (None, (2, 3), (0, 1, 2)):  # the job, every slot, every position
            count, total = here.sum(axis=axis), here.size / np.size(here.sum(axis=axis))
            assert np.abs(count - total * share).max() < 5.5 * (total * share * (1 - share)) ** 0.5 + 3
    first = drawn[0, :, :, 0].ravel()
    repeats = (first[1:] == first[:-1]).mean()
    expected = float(sum(share * share for share in shares))
    assert abs(repeats - expected) < 5.5 * (expected * (1 - expected) / len(first)) ** 0.5 + 1e-3


@pytest.mark.parametrize("sources", [2, 3, 5, 8, 50])
@pytest.mark.parametrize("unit", ["sample", "batch"])
def test_round_robin_is_fair_to_every_slot(sources, unit):
    shares = [Fraction(1, sources)] * sources
    for (n, k), b in itertools.product(((1, 1), (3, 2), (4, 8)), (1, 5, 8)):
        topology = Topology(n, k)
        drawn = drawn_by_all(Draws(shares, 1, topology, b, "round_robin", unit), topology, 100)
        per_slot = counts_of(drawn.reshape(n, k, -1), sources)
        assert np.ptp(per_slot, axis=-1).max() <= (1 if unit == "sample" else b)
        if unit == "sample":
            assert (
                np.ptp(counts_of(drawn.transpose(1, 2, 0, 3).reshape(k, 100, -1), sources), axis=-1).max()
                <= 1
            )


@pytest.mark.parametrize("unit", ["sample", "batch"])
@pytest.mark.parametrize("topology", [Topology(1, 1), Topology(3, 4), Topology(4, 5)])
@pytest.mark.parametrize("b", [1, 8, 21])
def test_every_schedule_segment_is_as_even_as_a_run(topology, b, unit):
    segments = [(0, (1, 1, 1)), (37, (1, 0, 2)), (61, (0, 1, 10**6)), (1_000_003, (5, 3, 2))]
    parts = [
        Draws([Fraction(w, sum(ws)) for w in ws], 5, topology, b, "even", unit, start)
        for start, ws in segments
    ]
    draws = ScheduledDraws(parts)
    for (start, weights), end in zip(segments, (37, 61, 200, 1_000_203), strict=True):
        exact = np.array(weights) / sum(weights)
        first = start // topology.workers
        drawn = drawn_by_all(draws, topology, -(-end // topology.workers) - first, first)
        off = np.zeros((topology.ranks, topology.workers, 3))
        for number in range(start, end):
            m, k = divmod(number, topology.workers)
            counts = counts_of(drawn[:, k, m - first], 3)
            off[:, k] += counts - b * exact
            scale = 1 if unit == "sample" else b
            assert np.abs(off).max() < 3 * scale
            if unit == "sample":
                assert np.abs(counts.sum(axis=0) - topology.ranks * b * exact).max() < 3
            assert np.abs(off.sum(axis=(0, 1))).max() <= max(topology.slots, 3) * scale


def test_a_rare_source_is_spread_evenly_over_workers():
    """Each of K workers alone would meet it once in 10,000 draws; together they do once in 10,000 / K."""
    shares, topology = [Fraction(9999, 10_000), Fraction(1, 10_000)], Topology(1, 16)
    for unit in ("sample", "batch"):
        draws = Draws(shares, 1, topology, 1, "even", unit)
        drawn = drawn_by_all(draws, topology, 40_000)[0, :, :, 0]  # (K, m)
        meetings = np.sort(np.nonzero(drawn == 1)[1])
        assert len(meetings) == 64
        assert np.diff(meetings).min() > 600
