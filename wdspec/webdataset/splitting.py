"""Stages that split shards among ranks and workers.

Shards are assigned in turn, as in webdataset. If their number is not a multiple, the remaining ones are split by sample
index, so that ranks get equal parts and every worker gets samples:

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
    """Yield the shards of this rank, as given by torch.distributed or `RANK` and `WORLD_SIZE`. Ranks get equal parts.

    Remaining shards are split by sample index: several ranks read each of them, and take turns at its samples.
    """
    seat = find_seat()
    return _deal(source, seat.rank, seat.world_size, only_whole=False)


def split_by_worker(source: Iterable[Any]) -> Iterator[Any]:
    """Yield the shards of this DataLoader worker, split by sample index only if there are fewer than workers."""
    worker, workers = worker_place()
    return _deal(source, worker, workers, only_whole=True)


def single_node_only(source: Iterable[Any]) -> Iterator[Any]:
    """Yield all shards, if there is only one rank.

    Raises:
        UsageError: there are several ranks.
    """
    seat = find_seat()
    if seat.world_size > 1:
        raise UsageError(
            f"this is rank {seat.rank} of {seat.world_size}, and every rank would read all shards; pass "
            "nodesplitter=wdspec.split_by_node, or resampled=True"
        )
    return iter(source)


def worker_place() -> tuple[int, int]:
    """Return (worker, workers) of the DataLoader, or else of `WORKER` and `NUM_WORKERS`, or else (0, 1)."""
    info = get_worker_info()
    if info is not None:
        return info.id, info.num_workers
    worker, workers = os.environ.get("WORKER"), os.environ.get("NUM_WORKERS")
    if worker and workers:
        return int(worker), int(workers)
    return 0, 1


def _deal(source: Iterable[Any], part: int, parts: int, only_whole: bool) -> Iterator[Any]:
    """Yield every parts-th shard, starting with number `part`.

    Remaining shards are split into as many pieces as give equal parts; with `only_whole`, only if there are no others.
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
        # Rotated by one for each shard; otherwise the same part would get the empty pieces of all small shards.
        yield _piece(row[shard], (number + shard) % pieces, pieces)


def _piece(shard: Any, piece: int, pieces: int) -> dict[str, Any]:
    """Return one piece of a shard, or of a piece: the samples with index ≡ residue (mod stride)."""
    entry = dict(shard) if isinstance(shard, dict) else {"url": shard}
    stride, residue = entry.get("stride", 1), entry.get("residue", 0)
    return {**entry, "stride": stride * pieces, "residue": residue + stride * piece}
