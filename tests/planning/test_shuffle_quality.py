"""How well delays shuffle compared with a reservoir: measured, with bounds that follow from how each works.

A reservoir of N keeps each sample for a random time, geometric of mean N: two neighbours come out N apart on average
and N·ln 2 = 0.69·N in the median. Delays are exponential of mean N too, but cut, so that they spread more evenly
below 3.6 N: 0.71·N in the median.
"""

import itertools
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from wdspec.planning.order import Delays, ShardOrder
from wdspec.planning.plan import SourcePlan
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.source import SourceStream, StreamState
from wdspec.spec.language.options import Errors

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.modules["shuffle_quality"] = quality = module_from_spec(
    spec_from_file_location("shuffle_quality", BENCHMARKS / "shuffle_quality.py")
)
quality.__spec__.loader.exec_module(quality)
delayed, measure, reading, reservoir = quality.delayed, quality.measure, quality.reading, quality.reservoir

SIZES = (100, 1000, 5000)


class Counted:
    """A shard of numbers, and whatever a stream needs besides."""

    source = "measured"
    next_offset = next_index = unjoined = 0
    is_copy = False
    selection = None

    def __init__(self, numbers=()):
        self.numbers = numbers

    def __iter__(self):
        return iter(self.numbers)

    def close(self):
        pass

    def process(self, slot):
        return lambda raw, ordinal: raw


class Opening:
    """Opens shards of n numbers, none of them ahead."""

    def __init__(self, shard):
        self.shard = shard
        self.fields = SimpleNamespace(draws=False)

    def __call__(self, piece, **_):
        return Counted(range(piece.shard * self.shard, (piece.shard + 1) * self.shard))

    def ahead(self):
        return self

    def expect(self, following, count):
        pass


def real_stream(count, size, shard, shards, interleave):
    """The first samples that the pipeline itself gives of a source in listed order, as places."""
    plan = SourcePlan(
        name="measured",
        shards=range(shards),
        share=1,
        order=ShardOrder(1, "measured", shards, 1, "sequential"),
        delays=Delays(1, "measured", size),
        samples=None,
        interleave=interleave,
    )
    source = Counted()
    source.plan, source.parts, source.budget = plan, source, ErrorBudget(Errors(), "measured")
    source.open = Opening(shard)
    return list(itertools.islice(iter(SourceStream(source, 0, StreamState())), count))


@pytest.mark.parametrize("interleave", [1, 4])
@pytest.mark.parametrize(("size", "shard"), [(100, 37), (250, 1000), (1000, 128)])
def test_the_measurement_uses_the_order_of_the_pipeline(size, shard, interleave):
    shards = 8 * interleave
    count = shards * shard
    expected = delayed(reading(count, shard, interleave), size)
    assert real_stream(count, size, shard, shards, interleave) == expected.tolist()


@pytest.mark.parametrize("shuffle", [delayed, reservoir])
def test_every_sample_is_released_once(shuffle):
    read = reading(5000, 70, 3, 11)
    assert sorted(shuffle(read, 300).tolist()) == sorted(read.tolist())


def test_our_reservoir_matches_webdataset():
    from webdataset.filters import _shuffle

    read = reading(60_000, 1000)
    theirs = np.array(list(_shuffle(iter(read.tolist()), bufsize=1000, initial=100, seed=1)))
    ours = reservoir(read, 1000)

    def quantiles(stream):
        middle = stream[10_000:50_000]
        return np.quantile(np.abs(np.diff(middle)), [0.1, 0.25, 0.5, 0.75, 0.9])

    # 40,000 pairs, but those of one stay in the reservoir are similar: a few hundred independent ones.
    assert quantiles(ours) == pytest.approx(quantiles(theirs), rel=0.06)


@pytest.mark.parametrize("size", SIZES)
def test_distances_of_neighbours_match_theory_and_a_reservoir(size):
    (delays,), (pool,) = measure(delayed, size, 1000), measure(reservoir, size, 1000)
    assert np.median(delays.apart) == pytest.approx(0.713 * size, rel=0.03)
    assert np.median(pool.apart) == pytest.approx(np.log(2) * size, rel=0.05)
    assert pool.apart.mean() == pytest.approx(size, rel=0.05)
    # The other way round: two that meet in the stream were as far apart in the shards.
    assert np.median(delays.met) == pytest.approx(np.median(delays.apart), rel=0.07)
    for part in (20, 10, 5):  # neighbours that come out within a twentieth, a tenth, a fifth of the size
        assert delays.within(size // part) < 1.06 * pool.within(size // part)


def test_delays_are_bounded_and_those_of_a_reservoir_are_not():
    (delays,), (pool,) = measure(delayed, 1000, 1000), measure(reservoir, 1000, 1000)
    # Of 50,000 samples the last leaves a reservoir after ln 50,000.
    assert delays.delay[-1] < 3.8 * 1000
    assert 7 * 1000 < pool.delay[-1] < 20 * 1000


@pytest.mark.parametrize("size", SIZES)
def test_short_ranges_keep_hardly_more_order_than_with_a_reservoir(size):
    (delays,), (pool,) = measure(delayed, size, 1000), measure(reservoir, size, 1000)
    # A reservoir's few very late samples belong to no stretch at all.
    assert delays.correlation <= pool.correlation + 0.07


@pytest.mark.parametrize("shard", [100, 500, 875, 1000, 2000, 10_000])
def test_shards_are_mixed_as_with_a_reservoir(shard):
    delays, pool = measure(delayed, 1000, shard, offsets=4), measure(reservoir, 1000, shard, offsets=4)
    same = [np.mean([each.same_shard for each in found]) for found in (delays, pool)]
    assert same[0] < same[1] + 0.015
    # Delays are cut: what a reservoir still has of long ago is a few samples of shards long over.
    assert np.mean([each.shards for each in delays]) > 0.6 * np.mean([each.shards for each in pool])


def test_interleaved_shards_are_mixed_as_with_a_reservoir():
    (delays,), (pool,) = (measure(each, 1000, 10_000, 16, count=60_000) for each in (delayed, reservoir))
    for found in (delays, pool):
        assert found.same_shard == pytest.approx(1 / 16, abs=0.005)
        assert found.run < 1.1
        assert found.shards >= 16


@pytest.mark.parametrize("more", [[], ["--plot", "plot.svg"]])
def test_the_script_runs(more, tmp_path):
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "shuffle_quality.py", "--quick", *more],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    if more:
        assert (tmp_path / "plot.svg").read_text().count("<polyline") == 2 + 8
    else:
        assert len([line for line in done.stdout.splitlines() if line.startswith("|")]) == 2 + 2


@pytest.mark.long
def test_the_script_of_batches_runs():
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "batch_entropy.py", "--quick"],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    bits = [float(line.split("|")[2].split("±")[0]) for line in done.stdout.splitlines()[2:]]
    everywhere, theirs, ours, *_ = bits
    assert ours >= theirs - 0.1, "here the buffers hold all"
    assert everywhere >= ours - 0.1


def test_batches_of_sorted_shards_are_better_mixed_than_by_webdataset(tmp_path):
    spec = spec_from_file_location("batch_entropy", BENCHMARKS / "batch_entropy.py")
    entropies = module_from_spec(spec)
    spec.loader.exec_module(entropies)
    paths = entropies.write(tmp_path, 40, 500)
    for slot, slots in ((0, 1), (2, 8)):
        count = 20_000 // slots
        ours, theirs = (
            entropies.entropy(itertools.islice(each(paths, slot, slots, 0), count, 2 * count), count)
            for each in (entropies.ours, entropies.theirs)
        )
        assert ours > theirs + 0.2
