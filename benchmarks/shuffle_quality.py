"""How well delays shuffle, beside a reservoir: how far neighbours in a shard come apart, and who follows whom.

python benchmarks/shuffle_quality.py                          # the table, in half a minute
python benchmarks/shuffle_quality.py --quick                  # next to nothing: checks that it runs
python benchmarks/shuffle_quality.py --plot docs/shuffle.svg  # draws the curves of docs/order.md instead

No data is read: a sample is its place in the shards laid end to end, and shuffling permutes places.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from wdspec.planning.order import Delays, ReleaseOrder

Places = npt.NDArray[np.int64]
"""Places of samples in the shards laid end to end."""
Shuffle = Callable[..., Places]
"""(places in the order of reading, samples held, seed) -> places in the order in which they come out."""

BATCH = 256
SEED = 1
SETTINGS = [
    (100, 1000, 1),
    (1000, 100, 1),
    (1000, 1000, 1),
    (1000, 10_000, 1),
    (1000, 10_000, 16),
    (5000, 1000, 1),
]
"""(samples held, samples in a shard, shards read in turn) of the table."""


def reading(count: int, shard: int, interleave: int = 1, offset: int = 0) -> Places:
    """The places of `count` samples in the order of reading, without those of the first `offset` reads.

    Args:
        count: how many.
        shard: samples in a shard.
        interleave: shards read at a time, a sample of each in turn.
        offset: where in the first shards to begin.
    """
    at_once = shard * interleave
    block = np.arange(at_once).reshape(interleave, shard).T.ravel()
    blocks = -(-(count + offset) // at_once)
    return (np.arange(blocks)[:, None] * at_once + block).ravel()[offset : offset + count]


def delayed(read: Places, size: int, seed: int = SEED) -> Places:
    """What a slot gives that holds `size` samples on average."""
    delays = Delays(seed, "measured", size)
    return read[ReleaseOrder(delays, delays.key(0), 0).rest(len(read))]


def reservoir(read: Places, size: int, seed: int = SEED) -> Places:
    """What a reservoir of `size` samples gives: each sample read takes the place of a random one, which comes out.

    It fills as webdataset's `shuffle(size, initial=100)` does: two samples are read for each one given.
    """
    return np.array(list(_reservoir(iter(read.tolist()), size, min(100, size), random.Random(seed))))


def _reservoir(read: Iterator[int], size: int, initial: int, rng: random.Random) -> Iterator[int]:
    held: list[int] = []
    for sample in read:
        held.append(sample)
        if len(held) < size:
            held.extend(another for another in [next(read, None)] if another is not None)
        if len(held) >= initial:
            pick = int(rng.random() * len(held))
            given, held[pick] = held[pick], held[-1]
            held.pop()
            yield given
    rng.shuffle(held)
    yield from held


@dataclass(frozen=True)
class Quality:
    """How well a stream is shuffled."""

    apart: Places
    """Distance in the stream between two samples that are neighbours in a shard, of each pair, sorted."""
    met: Places
    """Distance in the shards laid end to end between two neighbours in the stream, of each pair, sorted."""
    same_shard: float
    """Fraction of the samples that come from the same shard as the one before."""
    run: float
    """Mean length of a run of samples from one shard."""
    shards: float
    """Mean number of different shards in a batch of `BATCH` samples."""
    delay: Places
    """How many samples were given between a sample's reading and itself, less the smallest such number, sorted."""
    correlation: float
    """Of the order in and out, over stretches of `stretch` samples."""

    def within(self, distance: int) -> float:
        """Fraction of the neighbours in a shard that are at most so far apart in the stream."""
        return float(np.searchsorted(self.apart, distance, side="right") / len(self.apart))


def quality(stream: Places, read: Places, shard: int, skip: int, stretch: int = 1000) -> Quality:
    """Measures a stream in its middle, when start-up is over and the end is not near.

    Args:
        stream: places in the order in which they came out.
        read: the same places in the order of reading.
        shard: samples in a shard.
        skip: samples left out at both ends.
        stretch: over how many samples the correlation is taken.
    """
    places, came_out, was_read = np.sort(read), np.argsort(stream), np.argsort(read)
    middle = slice(skip, len(stream) - skip)
    neighbours = places[:-1] // shard == places[1:] // shard
    neighbours &= (came_out[:-1] >= middle.start) & (came_out[:-1] < middle.stop)
    order = was_read[np.searchsorted(places, stream[middle])]
    delays = np.sort(np.arange(middle.start, middle.stop) - order)
    shards = stream[middle] // shard
    changes = int((shards[1:] != shards[:-1]).sum())
    batches = shards[: len(shards) // BATCH * BATCH].reshape(-1, BATCH)
    stretches = order[: len(order) // stretch * stretch].reshape(-1, stretch)
    return Quality(
        apart=np.sort(np.abs(np.diff(came_out))[neighbours]),
        met=np.sort(np.abs(np.diff(stream[middle]))),
        same_shard=1 - changes / (len(shards) - 1),
        run=len(shards) / (changes + 1),
        shards=float(np.mean([len(np.unique(batch)) for batch in batches])),
        delay=delays - delays[0],
        correlation=float(np.mean([np.corrcoef(np.arange(stretch), each)[0, 1] for each in stretches])),
    )


def measure(
    shuffle: Shuffle, size: int, shard: int, interleave: int = 1, offsets: int = 1, count: int = 0
) -> list[Quality]:
    """The quality of a shuffle over shards of one size.

    Args:
        shuffle: `delayed` or `reservoir`.
        size: samples held.
        shard: samples in a shard.
        interleave: shards read in turn.
        offsets: how many different places in the first shards to begin at; one quality each.
        count: samples read; by default 40 sizes or 16 shards.
    """
    skip = 8 * size + 128  # a reservoir is full by then, and the longest delay over
    count = (count or max(40 * size, 16 * shard)) + 2 * skip
    found = []
    for number in range(offsets):
        read = reading(count, shard, interleave, number * shard * interleave // offsets)
        found.append(quality(shuffle(read, size, SEED + number), read, shard, skip))
    return found


def table(settings: list[tuple[int, int, int]], count: int = 0) -> Iterator[str]:
    """The rows of a table in Markdown."""
    columns = ("apart, median", "256 or less apart", "same shard", "shards in 256", "most delayed")
    yield f"| held | shard | in turn | shuffle | {' | '.join(columns)} |"
    yield "|--:|--:|--:|--|--:|--:|--:|--:|--:|"
    names = {"delays": delayed, "reservoir": reservoir}
    for size, shard, interleave in settings:
        for name, shuffle in names.items():
            found = measure(
                shuffle, size, shard, interleave, offsets=4 if shard >= size // 2 else 1, count=count
            )
            yield (
                f"| {size:,} | {shard:,} | {interleave} | {name} "
                f"| {np.median(found[0].apart):,.0f} "
                f"| {found[0].within(256):.1%} "
                f"| {np.mean([each.same_shard for each in found]):.1%} "
                f"| {np.mean([each.shards for each in found]):.1f} "
                f"| {found[0].delay[-1]:,} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="next to nothing, to see that it runs")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw the curves")
    options = parser.parse_args()
    if options.plot:
        from shuffle_plot import draw

        options.plot.write_text(draw(quick=options.quick), encoding="utf-8")
        return
    for line in table(SETTINGS[:1], 2000) if options.quick else table(SETTINGS):
        print(line, flush=True)


if __name__ == "__main__":
    main()
