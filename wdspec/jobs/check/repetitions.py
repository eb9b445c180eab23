"""D301, D302, D304, D308: keys that come in several shards, and samples that hold the same bytes.

D308: images that look like one of the spec that this one is compared with, though their bytes differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from wdspec.jobs.check.data import MOST_EXAMPLES, CheckedData, CheckedSource, LookedAt
from wdspec.jobs.check.facts import DataProblem, Hashes, ShardFacts
from wdspec.jobs.check.hashes import HashFile, Positions, largest
from wdspec.planning.keys import key64


class FoundSample(NamedTuple):
    """A sample, found by its hash."""

    source: CheckedSource
    looked: LookedAt
    number: int


class Where:
    """Which sample stands at a position of a file of hashes."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._shards: list[tuple[int, CheckedSource, LookedAt]] = []

    def add(self, positions: range, number: int, source: CheckedSource, looked: LookedAt) -> None:
        """Notes whose samples have these positions."""
        self._starts.append(positions.start)
        self._shards.append((number, source, looked))

    def shards(self, positions: Positions) -> Positions:
        """The number of the shard of each position."""
        return np.searchsorted(np.array(self._starts), positions, side="right") - 1

    def sources(self, positions: Positions) -> Positions:
        """The number of the source of each position."""
        numbers = np.array([number for number, _, _ in self._shards])
        found: Positions = numbers[self.shards(positions)]
        return found

    def member(self, position: int) -> FoundSample:
        """The sample at a position."""
        shard = int(self.shards(np.array([position]))[0])
        _, source, looked = self._shards[shard]
        return FoundSample(source, looked, position - self._starts[shard])


def repeated_keys(collection: CheckedData) -> Iterator[DataProblem]:
    """Keys that come in several shards of one source."""
    sources = collection.own
    for source in sources:
        times = Counter(looked.shard.text for looked in source.shards)
        for text in (text for text, count in times.items() if count > 1):
            yield DataProblem("D301", "the shard stands twice in its source; name it once", source.name, text)
    with HashFile() as file:
        # Of each source other hashes: numbered samples of several sources share their keys, and mean nothing by it.
        where = _gathered(file, sources, lambda facts: facts.keys, apart=True)
        counts: dict[int, int] = {}
        for pairs in file.alike():
            crossing = where.shards(pairs.first) != where.shards(pairs.second)
            first, second = pairs.first[crossing], pairs.second[crossing]
            for number in np.unique(where.sources(first)).tolist() if len(first) else ():
                own = np.flatnonzero(where.sources(first) == number)
                begun = counts.get(number, 0)
                counts[number] = begun + len(own)
                for at in own[: max(0, MOST_EXAMPLES - begun)].tolist():
                    yield from _one_key(where.member(int(first[at])), where.member(int(second[at])))
        for number, count in counts.items():
            if count > MOST_EXAMPLES:
                message = f"{count:,} keys come again in another shard; {MOST_EXAMPLES} are named"
                yield DataProblem("D301", message, sources[number].name)


def repeated_contents(collection: CheckedData) -> Iterator[DataProblem]:
    """Samples with the same bytes: of one source, of two, and of the spec that this one is compared with."""
    sources = collection.sources
    with HashFile() as file:
        where = _gathered(file, sources, lambda facts: facts.contents)
        counts: dict[tuple[int, int], int] = {}
        for pairs in file.alike():
            both = np.stack([where.sources(pairs.first), where.sources(pairs.second)])
            for one, other in np.unique(both, axis=1).T.tolist():
                if sources[one].is_other and sources[other].is_other:
                    continue
                own = np.flatnonzero((both[0] == one) & (both[1] == other))
                begun = counts.get((one, other), 0)
                counts[one, other] = begun + len(own)
                for at in own[: max(0, MOST_EXAMPLES - begun)].tolist():
                    yield from _one_content(
                        where.member(int(pairs.first[at])), where.member(int(pairs.second[at]))
                    )
        for (one, other), count in counts.items():
            if count > MOST_EXAMPLES:
                code, seen = _kind(sources[one], sources[other])
                message = f"of about {count:,} samples each {seen}; {MOST_EXAMPLES} are named"
                yield DataProblem(code, message, sources[one].name)


def _gathered(
    file: HashFile,
    sources: list[CheckedSource],
    hashes_of: Callable[[ShardFacts], Hashes],
    apart: bool = False,
) -> Where:
    where = Where()
    for number, source in enumerate(sources):
        salt = np.uint64(key64(source.name) if apart else 0)
        for looked in source.read:
            hashes = hashes_of(looked.facts)
            where.add(file.add(np.where(hashes == 0, hashes, hashes ^ salt)), number, source, looked)
    return where


def _one_key(first: FoundSample, second: FoundSample) -> Iterator[DataProblem]:
    if first.looked.shard.text == second.looked.shard.text:
        return  # D301 says so of the shard
    one, other = (member.source.raw(member.looked, member.number) for member in (first, second))
    if one is None or other is None or one[0]["__key__"] != other[0]["__key__"]:
        return
    (sample, _), (again, offset) = one, other
    names, more = _names(sample), _names(again)
    if names.isdisjoint(more):
        seen = (
            f"`{first.looked.shard.text}` has {_listed(names)} of this sample, and this shard {_listed(more)}: it is "
            "split over two shards; pack all files of a sample into one (`wdspec cat`, then `wdspec split`)"
        )
    elif _content(sample) == _content(again):
        seen = f"the same sample is in `{first.looked.shard.text}`; leave one of them out"
    else:
        seen = f"another sample with this key is in `{first.looked.shard.text}`; give each a key of its own"
    yield DataProblem(
        "D301", seen, second.source.name, second.looked.shard.text, key=again["__key__"], offset=offset
    )


def _one_content(first: FoundSample, second: FoundSample) -> Iterator[DataProblem]:
    if second.source.is_other:  # named is the one of the spec that is checked
        first, second = second, first
    one, other = (member.source.raw(member.looked, member.number) for member in (first, second))
    if one is None or other is None or _content(one[0]) != _content(other[0]):
        return
    (sample, _), (again, later) = one, other
    code, seen = _kind(first.source, second.source)
    if sample["__key__"] == again["__key__"] and code == "D304":
        return  # D301 says so
    yield DataProblem(
        code,
        f"the sample {seen}: `{first.looked.shard.text}` has it as `{sample['__key__']}`",
        second.source.name,
        second.looked.shard.text,
        key=again["__key__"],
        offset=later,
    )


def _kind(one: CheckedSource, other: CheckedSource) -> tuple[str, str]:
    """The code of samples that both have, and what to say of them."""
    if one.is_other != other.is_other:
        theirs = one if one.is_other else other
        return "D308", f"is also in `{theirs.name}` of the other spec"
    if one is other:
        return "D304", "holds the same bytes as another of its source"
    return "D302", f"is also in the source `{one.name}`"


def _content(sample: dict[str, Any]) -> Any:
    name = largest(sample)
    return None if name is None else sample[name]


def _names(sample: dict[str, Any]) -> set[str]:
    return {name for name in sample if not name.startswith("__")}


def _listed(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "no file"


FEW_BITS = 3
"""Bits of 64 in which hashes of images that look alike may differ. With so few, one of four parts is equal in both."""
_PARTS = (0, 16, 32, 48)
MOST_COMPARED = 64
"""Images with an equal part that each one is compared with: more have a look that says nothing."""


def similar_images(collection: CheckedData) -> Iterator[DataProblem]:
    """Named in the shards of the spec that is checked."""
    others = _all([source for source in collection.sources if source.is_other])
    if not len(others[0]):
        return
    for source in collection.own:
        hashes, owners = _all([source])
        found = 0
        for at, other in _pairs(hashes, others[0]):
            (_, looked, index), (theirs, their_shard, their_index) = owners[at], others[1][other]
            again, sample = source.raw(looked, index), theirs.raw(their_shard, their_index)
            if again is None or sample is None or _same(again[0], sample[0]):
                continue  # D308 says so of the bytes
            found += 1
            if found > MOST_EXAMPLES:
                break
            yield DataProblem(
                "D308",
                f"the image looks like that of `{sample[0]['__key__']}` in `{their_shard.shard.text}` of the other "
                "spec",
                source.name,
                looked.shard.text,
                key=again[0]["__key__"],
                offset=again[1],
            )


_Owner = tuple[CheckedSource, LookedAt, int]


def _all(sources: list[CheckedSource]) -> tuple[Hashes, list[_Owner]]:
    """The hashes of all images, and whose they are."""
    hashes: list[int] = []
    owners: list[_Owner] = []
    for source in sources:
        for looked in source.read:
            for index in np.flatnonzero(looked.facts.looks).tolist():
                hashes.append(int(looked.facts.looks[index]))
                owners.append((source, looked, index))
    return np.array(hashes, np.uint64), owners


def _pairs(hashes: Hashes, others: Hashes) -> Iterator[tuple[int, int]]:
    """Indexes of hashes that differ in few bits, of each the first other one."""
    told: set[int] = set()
    for shift in _PARTS:
        part = (others >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64)
        order = np.argsort(part, kind="stable")
        ordered = part[order]
        wanted = (hashes >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64)
        low, high = np.searchsorted(ordered, wanted), np.searchsorted(ordered, wanted, side="right")
        for at in np.flatnonzero((high > low) & (high - low <= MOST_COMPARED)).tolist():
            if at in told:
                continue
            near = order[low[at] : high[at]]
            bits = np.unpackbits((others[near] ^ hashes[at]).view(np.uint8).reshape(-1, 8), axis=1).sum(
                axis=1
            )
            if bits.min() <= FEW_BITS:
                told.add(at)
                yield at, int(near[int(bits.argmin())])


def _same(one: dict[str, object], other: dict[str, object]) -> bool:
    return {name: value for name, value in one.items() if type(value) is bytes} == {
        name: value for name, value in other.items() if type(value) is bytes
    }
