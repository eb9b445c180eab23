"""Mixing the items of several pipelines into one stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.planning.draws import EvenSequence
from wdspec.planning.keys import key64
from wdspec.webdataset.pipeline import DataPipeline
from wdspec.webdataset.stage import start_pass

_BLOCK = 1024


class WeightedMix:
    """Several sources, each with a share of the stream.

    Args:
        sources: the pipelines (or lists) to mix.
        shares: relative weights; equal by default. A source with a share of 0 is never drawn.
        longest: whether to continue with the other sources when one ends; otherwise the mix ends.
        seed: where in the sequence of draws the mix starts.

    Raises:
        UsageError: a share is invalid, or there are more or fewer shares than sources.
    """

    def __init__(
        self,
        sources: Sequence[Any],
        shares: Sequence[float] | None = None,
        longest: bool = False,
        seed: int = 0,
    ) -> None:
        shares = [1] * len(sources) if shares is None else list(shares)
        if not sources:
            raise UsageError("a mix needs at least one source")
        if len(shares) != len(sources):
            raise UsageError(f"{len(shares)} shares for {len(sources)} sources; give one for each source")
        wrong = [share for share in shares if not 0 <= share < float("inf")]
        if wrong or not any(shares):
            seen = f"a share of {wrong[0]}" if wrong else "no share above 0"
            raise UsageError(f"{seen} in {shares}; shares are 0 or more, and not all 0")
        self.sources, self.longest, self.seed = list(sources), longest, seed
        self.shares = [Fraction(share) for share in shares]

    @property
    def endless(self) -> bool:
        """Whether a pass has no end."""
        drawn = [source for source, share in zip(self.sources, self.shares, strict=True) if share]
        return _is_endless(drawn, self.longest)

    def iterate(self, number: int) -> Iterator[Any]:
        """Yield the items of one pass over each source."""
        drawn = [i for i, share in enumerate(self.shares) if share]
        streams = {i: start_pass(self.sources[i], number) for i in drawn}
        while drawn:
            total = sum(self.shares[i] for i in drawn)
            sequence = EvenSequence([self.shares[i] / total for i in drawn])
            start = key64(self.seed, "mix", number, len(drawn)) >> 44
            ended = None
            while ended is None:
                for which in sequence.take(0, start, _BLOCK).tolist():
                    try:
                        item = next(streams[drawn[which]])
                    except StopIteration:
                        ended = drawn[which]
                        break
                    yield item
                start += _BLOCK
            if not self.longest:
                return
            drawn.remove(ended)


class RoundRobinMix:
    """Several sources in turn. The first end ends the mix, unless `longest` is set: then the others continue."""

    def __init__(self, sources: Sequence[Any], longest: bool = False) -> None:
        if not sources:
            raise UsageError("a mix needs at least one source")
        self.sources, self.longest = list(sources), longest

    @property
    def endless(self) -> bool:
        """Whether a pass has no end."""
        return _is_endless(self.sources, self.longest)

    def iterate(self, number: int) -> Iterator[Any]:
        """Yield the items of one pass over each source."""
        streams = [start_pass(source, number) for source in self.sources]
        while streams:
            for stream in list(streams):
                try:
                    item = next(stream)
                except StopIteration:
                    if not self.longest:
                        return
                    streams.remove(stream)
                    continue
                yield item


def _is_endless(sources: Sequence[Any], longest: bool) -> bool:
    """Whether a mix has no end, if it lasts as long as the longest (or the shortest) of its sources."""
    return (any if longest else all)(getattr(source, "endless", False) for source in sources)


class RandomMix(DataPipeline):
    """Items of several pipelines, each with a share, evenly spread. See `WeightedMix` for arguments and errors.

    Example:
        >>> import wdspec as wds
        >>> list(wds.RandomMix([["a"] * 6, ["b"] * 2], [3, 1], longest=True)).count("b")
        2
    """

    def __init__(
        self,
        datasets: Sequence[Any],
        probs: Sequence[float] | None = None,
        longest: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(WeightedMix(datasets, probs, longest, seed))


class RoundRobin(DataPipeline):
    """Items of several pipelines in turn, up to the first end, or with `longest` up to the last one."""

    def __init__(self, datasets: Sequence[Any], longest: bool = False) -> None:
        super().__init__(RoundRobinMix(datasets, longest))
