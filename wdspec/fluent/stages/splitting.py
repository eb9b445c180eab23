"""Shards dealt to ranks and workers.

They are dealt out in turn, as in webdataset. Where they do not come out even, the ones left over are cut by sample
index, so that ranks get equal parts and no worker goes without:

    6 shards, 4 ranks:   a b c d | e f  →  rank 0: a, e[0::2]   rank 1: b, e[1::2]   rank 2: c, f[1::2]   …
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from math import gcd
from typing import Any

from torch.utils.data import get_worker_info

from wdspec.base.errors import UsageError
from wdspec.planning.topology import find_seat


def split_by_node(source: Iterable[Any]) -> Iterator[Any]:
    """The shards of this rank, found in torch.distributed or `RANK` and `WORLD_SIZE`; equal parts for all ranks.

    Shards left over are cut by sample index: each is then read by several ranks, which take turns at its samples.
    """
    seat = find_seat()
    return _dealt(source, seat.rank, seat.world_size, only_whole=False)


def split_by_worker(source: Iterable[Any]) -> Iterator[Any]:
    """The shards of this DataLoader worker; they are cut by sample index only if there are fewer than workers."""
    worker, workers = worker_place()
    return _dealt(source, worker, workers, only_whole=True)


def single_node_only(source: Iterable[Any]) -> Iterator[Any]:
    """All shards, where there is but one rank.

    Raises:
        UsageError: there are several.
    """
    seat = find_seat()
    if seat.world_size > 1:
        raise UsageError(
            f"this is rank {seat.rank} of {seat.world_size}, and every rank would read all shards; pass "
            "nodesplitter=wdspec.split_by_node, or resampled=True"
        )
    return iter(source)


def worker_place() -> tuple[int, int]:
    """(worker, workers): of the DataLoader, else of `WORKER` and `NUM_WORKERS`, else (0, 1)."""
    info = get_worker_info()
    if info is not None:
        return info.id, info.num_workers
    worker, workers = os.environ.get("WORKER"), os.environ.get("NUM_WORKERS")
    if worker and workers:
        return int(worker), int(workers)
    return 0, 1


def _dealt(source: Iterable[Any], part: int, parts: int, only_whole: bool) -> Iterator[Any]:
    """Every parts-th shard from `part` on.

    Those left over are cut into as many pieces as make them even; with `only_whole` only if there are no other shards.
    """
    shards = iter(source)
    if parts == 1:
        yield from shards
        return
    first = True
    while len(row := list(islice(shards, parts))) == parts:
        yield row[part]
        first = False
    if not row:
        return
    if only_whole and not first:
        yield from row[part : part + 1]
        return
    pieces = parts // gcd(len(row), parts)
    for number in range(part, len(row) * pieces, parts):
        shard = number // pieces
        # Turned on by one for each shard, or with few samples the same part would get the empty pieces of all.
        yield _piece(row[shard], (number + shard) % pieces, pieces)


def _piece(shard: Any, piece: int, pieces: int) -> dict[str, Any]:
    """One piece of a shard, or of a piece: the samples with index ≡ residue (mod stride)."""
    entry = dict(shard) if isinstance(shard, dict) else {"url": shard}
    stride, residue = entry.get("stride", 1), entry.get("residue", 0)
    return {**entry, "stride": stride * pieces, "residue": residue + stride * piece}
