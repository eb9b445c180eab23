"""Judgements on samples: repeated keys (D301), repeated samples (D302, D304), samples of another spec (D308), and
entries of `keys` and `exclude` that no sample has (D331).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.advice.unknown_keys import find_unknown
from wdspec.jobs.check.facts import (
    CheckedData,
    CheckedSource,
    DataProblem,
    Hashes,
    LookedAt,
    ShardFacts,
)
from wdspec.jobs.check.hashes import (
    Content,
    HashFile,
    Pairs,
    Positions,
    content_of,
    key_hashes,
    without_marked,
    without_marks,
)
from wdspec.planning.keys import key64
from wdspec.shards.key_lists import iter_keys

CODES = frozenset({"D301", "D302", "D304", "D308"})
"""The codes of repeated samples, of which there can be as many as samples."""
FEW_BITS = 3
"""Hashes of similar images differ in at most this many of 64 bits; then at least one of four parts is equal."""
_REMEDY = "`wdspec check --duplicates again.txt` writes the keys for `exclude: '@again.txt'`"
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

    def content_of(self, raw: dict[str, Any]) -> Content:
        """What of the raw sample is compared."""
        return content_of(raw, self.source.parts.transform.objects)

    @property
    def content(self) -> int:
        """The hash of its bytes; 0 for none."""
        return int(self.looked.facts.contents[self.number])


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
        urls: dict[str, int] = {}
        numbers = []
        self._shards: list[tuple[int, CheckedSource, LookedAt]] = []
        for number, source in enumerate(sources):
            salt = np.uint64(key64(source.name) if apart else 0)
            for looked in source.read:
                hashes = hashes_of(looked.facts)
                self._starts.append(file.add(np.where(hashes == 0, hashes, hashes ^ salt)).start)
                self._shards.append((number, source, looked))
                numbers.append(urls.setdefault(looked.shard.text, len(urls)))
        self._urls = np.array(numbers, np.int64)

    def shards(self, positions: Positions) -> Positions:
        """The number of the shard of each position."""
        return np.searchsorted(np.array(self._starts), positions, side="right") - 1

    def urls(self, positions: Positions) -> Positions:
        """The number of the URL of each position; a shard that is listed twice has one."""
        found: Positions = self._urls[self.shards(positions)]
        return found

    def keys(self, positions: Positions) -> Hashes:
        """The hashes of the keys at some positions."""
        shards, found = self.shards(positions), np.zeros(len(positions), np.uint64)
        for shard in np.unique(shards).tolist():
            here = shards == shard
            found[here] = self._shards[shard][2].facts.keys[positions[here] - self._starts[shard]]
        return found

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

    def examples(self, pairs: Pairs, most: int) -> Iterator[tuple[FoundSample, FoundSample]]:
        """The first pairs, up to `most`, in the order of the shards."""
        for at in np.argsort(pairs.second, kind="stable")[: max(0, most)].tolist():
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
        index = HashIndex(file, sources, lambda facts: without_marked(facts.keys), apart=True)
        counts: Counter[int] = Counter()
        for pairs in file.equal_pairs():
            pairs = pairs.of(index.urls(pairs.first) != index.urls(pairs.second))
            owners = index.sources(pairs.first)
            for number in np.unique(owners).tolist():
                chosen = pairs.of(owners == number)
                for first, second in index.examples(chosen, collection.most - counts[number]):
                    yield from _judge_key(first, second)
                counts[number] += len(chosen.first)
        for number, count in counts.items():
            collection.hidden[sources[number].name, "D301"] += max(0, count - collection.most)


def unknown_keys(collection: CheckedData) -> Iterator[DataProblem]:
    """Entries of `keys` and `exclude` that no sample has, where all samples of the sources with this list are known."""
    lists: dict[tuple[str, tuple[str, ...]], list[CheckedSource]] = {}
    for source in collection.own:
        for key, entries in (("keys", source.source.only_keys), ("exclude", source.source.exclude)):
            if entries is not None and source.source.keys_of is None:
                lists.setdefault((key, tuple(entries)), []).append(source)
    for (key, _), sources in lists.items():
        damaged = (
            problem.code.startswith("D1")
            for each in sources
            for looked in each.shards
            for problem in looked.facts.problems
        )
        if any(len(each.read) < len(each.shards) for each in sources) or any(damaged):
            continue
        known = np.unique(
            np.concatenate([without_marks(looked.facts.keys) for each in sources for looked in each.read])
        )
        first = next((looked for looked in sources[0].read if len(looked.facts.keys)), None)
        sample = None if first is None else FoundSample(sources[0], first, 0).read()
        if sample is None:
            continue

        def are_known(texts: Sequence[str], known: Hashes = known) -> Sequence[bool]:
            found: Sequence[bool] = np.isin(without_marks(key_hashes(texts)), known).tolist()
            return found

        listed = iter_keys(key, sources[0].source, sources[0].parts.open.storage)
        found = find_unknown(key, listed, are_known, sample[0]["__key__"], sources[0].source.base)
        if found is not None:
            names = "`, `".join(each.name for each in sources)
            message = "; ".join(filter(None, (found.describe(names), found.hint)))
            yield DataProblem("D331", message, sources[0].name)


def repeated_contents(collection: CheckedData) -> Iterator[DataProblem]:
    """Samples with the same bytes: of one source, of two sources, and of the spec of `--against`."""
    sources = collection.sources
    with HashFile() as file:
        index = HashIndex(file, sources, lambda facts: facts.contents)
        counts: Counter[tuple[int, int]] = Counter()
        others = np.array([source.is_other for source in sources])
        for pairs in file.equal_pairs():
            pairs = _add_leaks(pairs, others[index.sources(pairs.second)]) if any(others) else pairs
            both = np.stack([index.sources(pairs.first), index.sources(pairs.second)])
            for one, other in np.unique(both, axis=1).T.tolist():
                if sources[one].is_other and sources[other].is_other:
                    continue
                if one == other and sources[one].shares_files:
                    continue
                if one != other and not (sources[one].is_mixed and sources[other].is_mixed):
                    continue  # samples that are also companions
                chosen = pairs.of((both[0] == one) & (both[1] == other))
                if one == other:  # D301 reports equal keys
                    chosen = chosen.of(index.keys(chosen.first) != index.keys(chosen.second))
                for first, second in index.examples(chosen, collection.most - counts[one, other]):
                    yield from _judge_content(first, second)
                counts[one, other] += len(chosen.first)
        for (one, other), count in counts.items():
            owner = sources[one if sources[other].is_other else other]  # as `_judge_content` chooses
            code = _describe(sources[one], sources[other])[0]
            collection.hidden[owner.name, code] += max(0, count - collection.most)


def _add_leaks(pairs: Pairs, is_other: npt.NDArray[np.bool_]) -> Pairs:
    """Add a pair with the other spec for each sample that is not the last of the samples with its hash before those.

    Args:
        pairs: neighbours in the order of their hashes; the samples of the other spec are last.
        is_other: whether the second sample of each pair is of the other spec.
    """
    firsts, leaks, leak = [], [], -1
    for first, second, ends in zip(*(each[::-1].tolist() for each in (*pairs, is_other)), strict=True):
        if ends:
            leak, following = second, first
        elif leak >= 0 and second == following:
            firsts.append(first)
            leaks.append(leak)
            following = first
        else:
            leak = -1
    more = Pairs(np.array(firsts, np.int64), np.array(leaks, np.int64))
    return Pairs(*(np.concatenate(each) for each in zip(pairs, more, strict=True)))


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
    elif first.content_of(sample).data == second.content_of(again).data:
        seen = f"the same sample is in `{shard}`; remove one of them"
    else:
        seen = f"another sample with this key is in `{shard}`; give each sample a unique key"
    yield _problem("D301", seen, second, again, offset)


def _judge_content(first: FoundSample, second: FoundSample) -> Iterator[DataProblem]:
    if second.source.is_other:  # report the sample of the checked spec
        first, second = second, first
    one, other = first.read(), second.read()
    if one is None or other is None:
        return
    (sample, _), (again, offset) = one, other
    compared = second.content_of(again)
    if first.content_of(sample).data != compared.data:
        return
    code, seen = _describe(first.source, second.source)
    if sample["__key__"] == again["__key__"] and code == "D304":
        return  # D301 reports it
    by = f" (compared by {_quote(set(compared.fields))} only)" if compared.fields else ""
    message = f"the sample {seen}: `{first.looked.shard.text}` has it as `{sample['__key__']}`{by}; {_REMEDY}"
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


def _names(sample: dict[str, Any]) -> set[str]:
    return {name for name in sample if not name.startswith("__")}


def _quote(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "no file"


def similar_images(collection: CheckedData) -> Iterator[DataProblem]:
    """Images that look like an image of the other spec, but have other bytes."""
    their_hashes, theirs = _list_images([source for source in collection.sources if source.is_other])
    if not theirs:
        return
    for source in collection.mixed:
        hashes, own = _list_images([source])
        found = 0
        for at, other in _find_similar(hashes, their_hashes):
            if found >= collection.most:
                collection.hidden[source.name, "D308"] += own[at].content != theirs[other].content
                continue
            again, sample = own[at].read(), theirs[other].read()
            if again is None or sample is None or _files(again[0]) == _files(sample[0]):
                continue  # D308 reports equal bytes
            found += 1
            shard = theirs[other].looked.shard.text
            message = f"the image looks like that of `{sample[0]['__key__']}` in `{shard}` of the other spec; {_REMEDY}"
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
