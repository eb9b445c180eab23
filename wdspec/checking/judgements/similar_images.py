"""D308: images that look like one of the spec that this one is compared with, though their bytes differ."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wdspec.checking.judgements.checked_data import MOST_EXAMPLES, CheckedData, CheckedSource, LookedAt
from wdspec.checking.shards.data_problem import DataProblem
from wdspec.checking.shards.shard_facts import Hashes

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
