"""What the records of a run add up to, over its ranks and starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wdspec.base.errors import UsageError
from wdspec.base.redaction import redacted_urls
from wdspec.cli.output import Block, Table, Warning, number, percent, pluralize, size
from wdspec.read.counts import Amount
from wdspec.run.stats import describe_ranks


@dataclass(frozen=True)
class Start:
    """What a process read from one start of a run to its last record."""

    rank: int
    """The rank of the process."""
    world_size: int
    """The number of processes."""
    ranks: tuple[int, ...]
    """The canonical ranks that its record is of."""
    first: int
    """Global batches that the run had yielded before."""
    last: int
    """Global batches that it had yielded at the last record."""
    time: str
    """When the last record was written."""
    bytes: int
    """Bytes that the process read from stores, caches and disks."""


@dataclass(frozen=True)
class ReadReport:
    """What some ranks of a run have received."""

    spec: str
    """The file of the spec."""
    digest: str
    """Of the order of the run."""
    batches: int
    """Global batches that the run had yielded, by the oldest of the records that count."""
    ranks: tuple[int, ...]
    """The canonical ranks that the records are of."""
    of: int
    """The number of canonical ranks of the run."""
    sources: Mapping[str, Mapping[str, float]]
    """Source -> `samples`, `cost` and `tokens`, without those that are not known; `bytes` over all starts."""
    newest: int
    """The number of global batches by the newest of the records."""
    starts: tuple[Start, ...] = ()
    """The starts that have left records, by rank and in order."""

    @property
    def gaps(self) -> list[tuple[tuple[int, ...], int, int]]:
        """(canonical ranks, step, step): steps between those of two starts, of which no start has a record.

        Canonical ranks count, since the number of processes may differ from start to start.
        """
        found: dict[tuple[int, int], list[int]] = {}
        for rank in sorted({rank for start in self.starts for rank in start.ranks}):
            reached = 0
            for start in sorted(self.starts, key=lambda start: start.first):
                if rank in start.ranks:
                    if start.first > reached:
                        found.setdefault((reached, start.first), []).append(rank)
                    reached = max(reached, start.last)
        return [(tuple(ranks), *steps) for steps, ranks in found.items()]

    @property
    def silent(self) -> int:
        """Processes of starts that left no record, so that what they read does not count as bytes."""
        records: dict[tuple[int, int], Counter[int]] = {}
        for start in self.starts:
            records.setdefault((start.first, start.world_size), Counter())[start.rank] += 1
        # As many starts from a step as one of its ranks has records.
        return sum(max(ranks.values()) * size - ranks.total() for (_, size), ranks in records.items())

    @property
    def lost(self) -> list[str]:
        """What starts have read that no record has, each as a clause."""
        newest = {
            start.rank: start for start in sorted(self.starts, key=lambda start: (start.first, start.last))
        }
        brief = [each for each in self.starts if each.last == each.first and each is not newest[each.rank]]
        return [
            *(
                f"the steps {first:,} to {last:,} of ranks {describe_ranks(ranks, self.of)} were read in a start that "
                "left no record of them (it was killed before, or its record is not named): their bytes do not count; "
                "samples, cost and tokens do"
                for ranks, first, last in self.gaps
            ),
            *(
                f"the start of rank {each.rank} at step {each.first:,} left no record after its first one, of "
                f"{each.time} (it was killed before, or its record is not named): the bytes that it read do not count"
                for each in brief
            ),
        ]

    def blocks(self) -> Iterator[Block]:
        kinds = [*Amount._fields, "bytes"]
        known = [kind for kind in kinds if any(kind in each for each in self.sources.values())]
        totals = {kind: sum(each.get(kind, 0) for each in self.sources.values()) for kind in known}
        headings = ("source", *(cell for kind in known for cell in (f"{kind}>", "share>")))
        rows = [(name, *_cells(each, totals)) for name, each in self.sources.items()]
        where = f"ranks {describe_ranks(self.ranks, self.of)}"
        title = f"{self.spec}: {pluralize(self.batches, 'step')}, {where}"
        table = Table(headings, rows, title).of_largest(
            [each.get("samples", 0) for each in self.sources.values()]
        )
        yield table._replace(rows=[*table.rows, None, ("total", *_cells(totals, totals))])
        if len(self.starts) > len({start.rank for start in self.starts}):
            begun = [
                (str(each.rank), f"{each.first:,}", f"{each.last:,}", size(each.bytes), each.time)
                for each in self.starts
            ]
            yield Table(("rank>", "from step>", "to step>", "bytes>", "last record"), begun, "starts")
        if missing := sorted({*range(self.of)} - {*self.ranks}):
            yield Warning(
                f"no record is of ranks {describe_ranks(missing, self.of)}: name their records too, or pass "
                "`state=wdspec.gather_state(loader)` to `log_run`"
            )
        if self.newest != self.batches:
            yield Warning(
                f"the records were written at different steps, {self.batches:,} to {self.newest:,}; write them at "
                "the same one"
            )
        for each in self.lost:
            yield Warning(each)
        if self.silent:
            yield f"bytes are without those of {pluralize(self.silent, 'process', 'processes')} that wrote no record"


def _cells(amounts: Mapping[str, float], totals: Mapping[str, float]) -> Iterator[str]:
    """Yield each amount, and its part of the total."""
    for kind, total in totals.items():
        amount = amounts.get(kind)
        yield "?" if amount is None else size(amount) if kind == "bytes" else number(amount)
        yield "?" if amount is None or not total else percent(amount / total)


def age(record: Mapping[str, Any]) -> tuple[str, int]:
    """How new a record is. One of a later start is newer, also if that began at an earlier step."""
    return str(record["time"]), record["read"]["batches"]


def add_records(records: Mapping[str, Mapping[str, Any]]) -> ReadReport:
    """Add up records of one run.

    What a rank has received is in its newest record, over all starts. What a process has read, in bytes, is the sum of
    the last record of each start.

    Args:
        records: path of the file -> its record.

    Raises:
        UsageError: they are of different runs, or two of one start, or without a start, have the same rank.
    """
    first, record = next(iter(records.items()))
    for file, each in records.items():
        if each["digest"] != record["digest"]:
            raise UsageError(
                f"this record is of another run than {first}: their orders differ (`wdspec diff` shows how)",
                file=file,
            )
    counted = _choose_newest(records)
    sources: dict[str, dict[str, float]] = {}
    for kind in Amount._fields:
        parts: Sequence[Mapping[str, float]] = [each["read"].get(kind, {}) for each in counted]
        for name in dict.fromkeys(name for part in parts for name in part):
            amounts = [part[name] for part in parts if name in part]
            found = sources.setdefault(name, {})
            if len(amounts) == len(parts) or kind == "samples":
                found[kind] = sum(amounts)
    last = _last_of_starts(records)
    for each in last:
        for name, stats in each["read"]["stats"]["sources"].items():
            found = sources.setdefault(name, {})
            found["bytes"] = found.get("bytes", 0) + stats["bytes"]
    batches = [each["read"]["batches"] for each in counted]
    return ReadReport(
        str(record.get("file") or "a spec in Python"),
        record["digest"],
        min(batches),
        tuple(sorted(rank for each in counted for rank in each["read"]["canonical_ranks"])),
        record["topology"]["ranks"],
        sources,
        max(batches),
        tuple(
            Start(
                each["read"]["rank"],
                each["topology"]["world_size"],
                tuple(each["read"]["canonical_ranks"]),
                each["read"]["start"]["batches"],
                each["read"]["batches"],
                each["time"],
                sum(stats["bytes"] for stats in each["read"]["stats"]["sources"].values()),
            )
            for each in last
        ),
    )


def _choose_newest(records: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the records that have the newest counts of each rank."""
    owners: dict[int, str] = {}
    chosen = []
    for file, each in sorted(records.items(), key=lambda item: age(item[1]), reverse=True):
        ranks = each["read"]["canonical_ranks"]
        taken = [rank for rank in ranks if rank in owners]
        if taken and (len(taken) < len(ranks) or "start" not in each["read"]):
            raise UsageError(
                f"{owners[taken[0]]} has rank {taken[0]} too, so it would count twice; leave out one of them, or name "
                "the last records of all ranks",
                file=file,
            )
        if not taken:
            owners.update(dict.fromkeys(ranks, file))
            chosen.append(each)
    return chosen


def _last_of_starts(records: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the last record of each start, by rank and in order; earlier versions did not record starts."""
    last: dict[str, Mapping[str, Any]] = {}
    for each in sorted(records.values(), key=age):
        if "start" in each["read"]:
            last[each["read"]["start"]["id"]] = each
    return sorted(
        last.values(), key=lambda each: (each["read"]["rank"], each["read"]["start"]["batches"], age(each))
    )


def sources_of(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The entries of the sources in the spec, also in nested mixes, and of companions that were read, by name."""

    def leaves(entries: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for each in entries:
            yield from leaves(each["dataset"]) if each.get("dataset") else [each]

    spec = record["spec"]
    found = {str(each.get("name", "")): each for each in leaves(spec.get("dataset", ()))}
    read = record["read"]["stats"]["sources"]
    return found | {name: each for name, each in spec.get("companions", {}).items() if name in read}


def locations_of(entry: Mapping[str, Any]) -> list[str]:
    return [redacted_urls(str(each)) for each in entry.get("shards", ())]
