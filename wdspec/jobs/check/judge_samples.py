"""Judgements on samples: repeated keys (D301), repeated samples (D302, D304), and samples of another spec (D308)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from wdspec.jobs.check.facts import (
    MOST_EXAMPLES,
    CheckedData,
    CheckedSource,
    DataProblem,
    Hashes,
    LookedAt,
    ShardFacts,
)
from wdspec.jobs.check.hashes import HashFile, Pairs, Positions, largest
from wdspec.planning.keys import key64

FEW_BITS = 3
"""Hashes of similar images differ in at most this many of 64 bits; then at least one of four parts is equal."""
_PARTS = (0, 16, 32, 48)
MOST_COMPARED = 64
"""An image is compared with others that have an equal part, unless they are more: then the part is not distinctive."""


class FoundSample(NamedTuple):
    """A sample that was found by its hash."""

    source: CheckedSource
    looked: LookedAt
    number: int

    def read(self) -> tuple[dict[str, Any], int] | None:
        """The raw sample and its byte offset."""
        return self.source.raw(self.looked, self.number)


class HashIndex:
    """Maps positions in a file of hashes to samples.

    Args:
        file: the file; this adds the hashes.
        sources: the sources of the samples.
        hashes_of: chooses the hashes of a shard.
        apart: whether to make the hashes of each source different, so that only hashes of one source are equal.
    """

    def __init__(
        self,
        file: HashFile,
        sources: list[CheckedSource],
        hashes_of: Callable[[ShardFacts], Hashes],
        apart: bool = False,
    ) -> None:
        self._starts: list[int] = []
        self._shards: list[tuple[int, CheckedSource, LookedAt]] = []
        for number, source in enumerate(sources):
            salt = np.uint64(key64(source.name) if apart else 0)
            for looked in source.read:
                hashes = hashes_of(looked.facts)
                self._starts.append(file.add(np.where(hashes == 0, hashes, hashes ^ salt)).start)
                self._shards.append((number, source, looked))

    def shards(self, positions: Positions) -> Positions:
        """The number of the shard of each position."""
        return np.searchsorted(np.array(self._starts), positions, side="right") - 1

    def sources(self, positions: Positions) -> Positions:
        """The number of the source of each position."""
        numbers = np.array([number for number, _, _ in self._shards])
        found: Positions = numbers[self.shards(positions)]
        return found

    def sample(self, position: int) -> FoundSample:
        """The sample at a position."""
        shard = int(self.shards(np.array([position]))[0])
        _, source, looked = self._shards[shard]
        return FoundSample(source, looked, position - self._starts[shard])

    def examples(
        self, pairs: Pairs, chosen: Positions, counted: int
    ) -> Iterator[tuple[FoundSample, FoundSample]]:
        """The first chosen pairs, up to `MOST_EXAMPLES` including those counted before."""
        for at in chosen[: max(0, MOST_EXAMPLES - counted)].tolist():
            yield self.sample(int(pairs.first[at])), self.sample(int(pairs.second[at]))


def repeated_keys(collection: CheckedData) -> Iterator[DataProblem]:
    """Keys that are in several shards of one source."""
    sources = collection.own
    for source in sources:
        times = Counter(looked.shard.text for looked in source.shards)
        for text in (text for text, count in times.items() if count > 1):
            yield DataProblem(
                "D301", "the shard is listed twice in its source; list it once", source.name, text
            )
    with HashFile() as file:
        # Numbered samples of several sources have equal keys by chance, which is no problem.
        index = HashIndex(file, sources, lambda facts: facts.keys, apart=True)
        counts: Counter[int] = Counter()
        for pairs in file.equal_pairs():
            crossing = index.shards(pairs.first) != index.shards(pairs.second)
            pairs = Pairs(pairs.first[crossing], pairs.second[crossing])
            owners = index.sources(pairs.first)
            for number in np.unique(owners).tolist():
                chosen = np.flatnonzero(owners == number)
                for first, second in index.examples(pairs, chosen, counts[number]):
                    yield from _judge_key(first, second)
                counts[number] += len(chosen)
        for number, count in counts.items():
            if count > MOST_EXAMPLES:
                message = f"{count:,} keys are repeated in another shard; {MOST_EXAMPLES} are listed"
                yield DataProblem("D301", message, sources[number].name)


def repeated_contents(collection: CheckedData) -> Iterator[DataProblem]:
    """Samples with the same bytes: of one source, of two sources, and of the spec of `--against`."""
    sources = collection.sources
    with HashFile() as file:
        index = HashIndex(file, sources, lambda facts: facts.contents)
        counts: Counter[tuple[int, int]] = Counter()
        for pairs in file.equal_pairs():
            both = np.stack([index.sources(pairs.first), index.sources(pairs.second)])
            for one, other in np.unique(both, axis=1).T.tolist():
                if sources[one].is_other and sources[other].is_other:
                    continue
                chosen = np.flatnonzero((both[0] == one) & (both[1] == other))
                for first, second in index.examples(pairs, chosen, counts[one, other]):
                    yield from _judge_content(first, second)
                counts[one, other] += len(chosen)
        for (one, other), count in counts.items():
            if count > MOST_EXAMPLES:
                code, seen = _describe(sources[one], sources[other])
                message = f"each of about {count:,} samples {seen}; {MOST_EXAMPLES} are listed"
                yield DataProblem(code, message, sources[one].name)


def _judge_key(first: FoundSample, second: FoundSample) -> Iterator[DataProblem]:
    shard = first.looked.shard.text
    if shard == second.looked.shard.text:
        return  # D301 reports the shard
    one, other = first.read(), second.read()
    if one is None or other is None or one[0]["__key__"] != other[0]["__key__"]:
        return
    (sample, _), (again, offset) = one, other
    names, more = _names(sample), _names(again)
    if names.isdisjoint(more):
        seen = (
            f"`{shard}` has {_quote(names)} of this sample, and this shard {_quote(more)}: it is split over two "
            "shards; put all files of a sample into one shard (`wdspec cat`, then `wdspec split`)"
        )
    elif _content(sample) == _content(again):
        seen = f"the same sample is in `{shard}`; remove one of them"
    else:
        seen = f"another sample with this key is in `{shard}`; give each sample a unique key"
    yield _problem("D301", seen, second, again, offset)


def _judge_content(first: FoundSample, second: FoundSample) -> Iterator[DataProblem]:
    if second.source.is_other:  # report the sample of the checked spec
        first, second = second, first
    one, other = first.read(), second.read()
    if one is None or other is None or _content(one[0]) != _content(other[0]):
        return
    (sample, _), (again, offset) = one, other
    code, seen = _describe(first.source, second.source)
    if sample["__key__"] == again["__key__"] and code == "D304":
        return  # D301 reports it
    message = f"the sample {seen}: `{first.looked.shard.text}` has it as `{sample['__key__']}`"
    yield _problem(code, message, second, again, offset)


def _problem(code: str, message: str, found: FoundSample, sample: dict[str, Any], offset: int) -> DataProblem:
    shard = found.looked.shard.text
    return DataProblem(code, message, found.source.name, shard, key=sample["__key__"], offset=offset)


def _describe(one: CheckedSource, other: CheckedSource) -> tuple[str, str]:
    """The code and the description of samples that both sources have."""
    if one.is_other != other.is_other:
        theirs = one if one.is_other else other
        return "D308", f"is also in `{theirs.name}` of the other spec"
    if one is other:
        return "D304", "has the same bytes as another sample of its source"
    return "D302", f"is also in the source `{one.name}`"


def _content(sample: dict[str, Any]) -> Any:
    name = largest(sample)
    return None if name is None else sample[name]


def _names(sample: dict[str, Any]) -> set[str]:
    return {name for name in sample if not name.startswith("__")}


def _quote(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "no file"


def similar_images(collection: CheckedData) -> Iterator[DataProblem]:
    """Images that look like an image of the other spec, but have other bytes."""
    their_hashes, theirs = _list_images([source for source in collection.sources if source.is_other])
    if not theirs:
        return
    for source in collection.own:
        hashes, own = _list_images([source])
        found = 0
        for at, other in _find_similar(hashes, their_hashes):
            again, sample = own[at].read(), theirs[other].read()
            if again is None or sample is None or _files(again[0]) == _files(sample[0]):
                continue  # D308 reports equal bytes
            found += 1
            if found > MOST_EXAMPLES:
                break
            shard = theirs[other].looked.shard.text
            message = f"the image looks like that of `{sample[0]['__key__']}` in `{shard}` of the other spec"
            yield _problem("D308", message, own[at], *again)


def _list_images(sources: list[CheckedSource]) -> tuple[Hashes, list[FoundSample]]:
    """The hashes and samples of all images."""
    hashes: list[int] = []
    samples: list[FoundSample] = []
    for source in sources:
        for looked in source.read:
            for index in np.flatnonzero(looked.facts.looks).tolist():
                hashes.append(int(looked.facts.looks[index]))
                samples.append(FoundSample(source, looked, index))
    return np.array(hashes, np.uint64), samples


def _find_similar(hashes: Hashes, others: Hashes) -> Iterator[tuple[int, int]]:
    """Yield indexes of hashes that differ in few bits; of each hash the nearest other one."""
    seen: set[int] = set()
    for shift in _PARTS:
        part = (others >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64)
        order = np.argsort(part, kind="stable")
        ordered = part[order]
        own = (hashes >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64)
        low, high = np.searchsorted(ordered, own), np.searchsorted(ordered, own, side="right")
        for at in np.flatnonzero((high > low) & (high - low <= MOST_COMPARED)).tolist():
            if at in seen:
                continue
            near = order[low[at] : high[at]]
            differences = (others[near] ^ hashes[at]).view(np.uint8).reshape(-1, 8)
            bits = np.unpackbits(differences, axis=1).sum(axis=1)
            if bits.min() <= FEW_BITS:
                seen.add(at)
                yield at, int(near[int(bits.argmin())])


def _files(sample: dict[str, Any]) -> dict[str, bytes]:
    return {name: value for name, value in sample.items() if type(value) is bytes}
