"""How well windows shuffle, beside a reservoir: measured, with bounds that follow from how each works.

A window of w samples puts two of them at two random places of w: neighbours in a shard come out w/3 apart on
average and w·(1 - √½) = 0.29·w in the median. Windows of size W are of any length w from 3/4·W to W: 7/8·W on average,
and 37/42·W for the average sample, as more of them are in long ones. A reservoir of B keeps each sample for a random
time of B on average: two come out B apart on average and B·ln 2 = 0.69·B in the median. Windows of size 2·B, which
hold 7/8·B samples on average, for a window empties while it is given out, have 8/7 of its close encounters.
"""

import itertools
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from wdspec.planning.plan import SourcePlan
from wdspec.planning.shard_order import ShardOrder
from wdspec.planning.stream_state import StreamState
from wdspec.planning.windows import Windows
from wdspec.reading.interleave import InterleavedStream
from wdspec.reading.source_stream import SourceStream

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.modules["shuffle_quality"] = quality = module_from_spec(
    spec_from_file_location("shuffle_quality", BENCHMARKS / "shuffle_quality.py")
)
quality.__spec__.loader.exec_module(quality)
doubled, measure, reading = quality.doubled, quality.measure, quality.reading
reservoir, windowed = quality.reservoir, quality.windowed

SIZES = (100, 1000, 5000)
MEAN = 7 / 8
"""Mean length of a window, as a fraction of its size."""
OF_A_SAMPLE = 37 / 42
"""Mean length of the window of a sample."""


class Counted:
    """A shard of numbers, and whatever a stream needs besides."""

    source = "measured"
    next_offset = next_index = 0

    def __init__(self, numbers=()):
        self.numbers = numbers

    def __iter__(self):
        return iter(self.numbers)

    def close(self):
        pass

    def process(self, slot):
        return lambda raw, ordinal: raw


class Opening:
    """Opens shards of so many numbers, none of them ahead."""

    def __init__(self, shard):
        self.shard = shard

    def __call__(self, piece, **_):
        return Counted(range(piece.shard * self.shard, (piece.shard + 1) * self.shard))

    def ahead(self):
        return self

    def expect(self, shards):
        pass


def real_stream(count, window, shard, shards, interleave):
    """The first samples that the pipeline itself gives of a source in listed order, as places."""
    plan = SourcePlan(
        name="measured",
        shards=range(shards),
        share=1,
        order=ShardOrder(1, "measured", shards, 1, "sequential"),
        windows=Windows(1, "measured", window),
        samples=None,
        interleave=interleave,
    )
    source = Counted()
    source.plan, source.parts, source.budget = plan, source, source
    source.open = Opening(shard)
    stream = SourceStream if interleave == 1 else InterleavedStream
    return list(itertools.islice(iter(stream(source, 0, StreamState())), count))


@pytest.mark.parametrize("interleave", [1, 4])
@pytest.mark.parametrize(("window", "shard"), [(100, 37), (250, 1000), (1000, 128)])
def test_what_is_measured_is_what_the_pipeline_gives(window, shard, interleave):
    shards = 8 * interleave
    count = shards * shard
    expected = windowed(reading(count, shard, interleave), window)
    assert real_stream(count, window, shard, shards, interleave) == expected.tolist()


@pytest.mark.parametrize("shuffle", [windowed, reservoir])
def test_every_sample_comes_out_once(shuffle):
    read = reading(5000, 70, 3, 11)
    assert sorted(shuffle(read, 300).tolist()) == sorted(read.tolist())


def test_our_reservoir_is_that_of_webdataset():
    from webdataset.filters import _shuffle

    read = reading(60_000, 1000)
    theirs = np.array(list(_shuffle(iter(read.tolist()), bufsize=1000, initial=100, seed=1)))
    ours = reservoir(read, 1000)

    def quantiles(stream):
        middle = stream[10_000:50_000]
        return np.quantile(np.abs(np.diff(middle)), [0.1, 0.25, 0.5, 0.75, 0.9])

    # 40,000 pairs, of which those of one stay in the reservoir are alike: a few hundred independent ones.
    assert quantiles(ours) == pytest.approx(quantiles(theirs), rel=0.06)


@pytest.mark.parametrize("size", SIZES)
def test_neighbours_come_out_as_far_apart_as_theory_has_it(size):
    (window,), (pool,) = measure(windowed, size, 1000), measure(reservoir, size, 1000)
    assert np.median(window.apart) == pytest.approx((1 - 0.5**0.5) * OF_A_SAMPLE * size, rel=0.05)
    assert window.apart.mean() == pytest.approx(OF_A_SAMPLE * size / 3, rel=0.05)
    assert np.median(pool.apart) == pytest.approx(np.log(2) * size, rel=0.05)
    assert pool.apart.mean() == pytest.approx(size, rel=0.05)
    # The other way round: two that meet in the stream were as far apart in the shards.
    assert np.median(window.met) == pytest.approx(np.median(window.apart), rel=0.07)
    assert np.median(pool.met) == pytest.approx(np.median(pool.apart), rel=0.07)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shard", [100, 1000, 10_000])
def test_a_window_of_twice_the_size_separates_neighbours_nearly_like_a_reservoir(size, shard):
    (window,), (pool,) = measure(doubled, size, shard), measure(reservoir, size, shard)
    for part in (20, 10, 5):  # neighbours that come out within a twentieth, a tenth, a fifth of the size
        assert window.within(size // part) == pytest.approx(pool.within(size // part) / MEAN, rel=0.15)
    # Beyond that a reservoir scatters further: it has no end, and a window has.
    assert 1.5 < pool.apart.mean() / window.apart.mean() < 2


def test_a_window_delays_no_sample_by_more_than_itself_and_a_reservoir_some_by_ten_times_its_size():
    (window,), (pool,) = measure(windowed, 1000, 1000), measure(reservoir, 1000, 1000)
    # At most one window too early and one too late. Of 50,000 samples the last leaves a reservoir after ln 50,000.
    assert window.delay[-1] < 2 * 1000
    assert 7 * 1000 < pool.delay[-1] < 20 * 1000


@pytest.mark.parametrize("size", SIZES)
def test_the_order_that_is_left_over_short_stretches_is_little_where_they_are_shorter_than_the_window(size):
    (window,), (pool,) = measure(windowed, size, 1000), measure(reservoir, size, 1000)
    # A stretch of 1000 inside one window of 5000 is in random order; over ten windows of 100 it is hardly shuffled.
    bounds = {100: (0.98, 1.0), 1000: (0.5, 0.7), 5000: (0.0, 0.2)}[size]
    assert bounds[0] - 0.03 <= window.correlation <= bounds[1]
    assert pool.correlation <= window.correlation + 0.1


def test_short_shards_are_mixed_by_a_window_half_as_well_as_by_a_reservoir():
    (window,), (pool,) = measure(windowed, 5000, 100), measure(reservoir, 5000, 100)
    assert window.same_shard == pytest.approx(100 / (MEAN * 5000), rel=0.15)
    assert pool.same_shard == pytest.approx(100 / 5000 / 2, rel=0.15)
    # A batch holds the shards of a window, 38 to 50, or of two where it spans them; a reservoir goes further back.
    assert 43 <= window.shards <= 50
    assert pool.shards > 1.8 * window.shards


def test_shards_longer_than_the_window_are_hardly_mixed_by_either():
    window, pool = measure(windowed, 1000, 10_000, offsets=4), measure(reservoir, 1000, 10_000, offsets=4)
    # Only windows over a shard's end hold two shards: one of ten, of which a third is lost to luck of the place.
    assert np.mean([each.same_shard for each in window]) == pytest.approx(1 - 1000 / 10_000 / 3, abs=0.01)
    assert np.mean([each.same_shard for each in pool]) == pytest.approx(0.9, abs=0.01)


def test_shards_read_in_turn_are_mixed_by_a_small_window_as_by_a_reservoir():
    (window,), (pool,) = (measure(each, 1000, 10_000, 16, count=60_000) for each in (windowed, reservoir))
    for found in (window, pool):
        assert found.same_shard == pytest.approx(1 / 16, abs=0.005)
        assert found.run < 1.1
        assert found.shards >= 16


@pytest.mark.parametrize("shard", [500, 875, 1000, 2000])
def test_windows_stay_in_step_with_shards_of_no_size(shard):
    # The ramp of 64 + 128 + 256 + 512 = 960 ends 40 samples before a shard of 1000 does. Windows that were all of
    # 1000 would too, so that 92 % of the samples would follow one of their own shard.
    found = [each.same_shard for each in measure(windowed, 1000, shard, offsets=8)]
    assert max(found) < np.mean(found) + 0.12
    assert np.mean(found) < {500: 0.5, 875: 0.72, 1000: 0.75, 2000: 0.88}[shard]
    assert np.mean([each.same_shard for each in measure(windowed, 1000, shard, 8, offsets=4)]) < 0.16


@pytest.mark.parametrize("more", [[], ["--plot", "plot.svg"]])
def test_the_script_runs(more, tmp_path):
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "shuffle_quality.py", "--quick", *more],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    if more:
        assert (tmp_path / "plot.svg").read_text().count("<polyline") == 3 + 8
    else:
        assert len([line for line in done.stdout.splitlines() if line.startswith("|")]) == 2 + 3
