"""Looks at the data of a spec: which local shards exist, what is in the first one of each source, what its selection
keeps, and how batches by cost come out in the first windows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from typing import Literal, NamedTuple

from wdspec.advice.class_names import ClassNames
from wdspec.advice.unknown_keys import UnknownKeys, find_unknown
from wdspec.base.amounts import pluralize
from wdspec.base.errors import WdspecError, warn_user
from wdspec.formats.compression import format_of
from wdspec.formats.decompress import decompress
from wdspec.formats.tar.members import iter_members
from wdspec.formats.tar.reader import splitter
from wdspec.planning.passes import SourceCount
from wdspec.planning.plan import Plan
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.near_misses import explain_nothing
from wdspec.read.selection import Selection
from wdspec.read.shard import Piece
from wdspec.read.transform import SourceParts, parts_of
from wdspec.shards.key_lists import iter_keys
from wdspec.shards.shards import Shards
from wdspec.spec.measurements import MeasuredSource
from wdspec.spec.reading import is_same_selection
from wdspec.spec.rules.sources import are_disjoint
from wdspec.spec.spec import Source, Spec
from wdspec.storage.storage import Storage
from wdspec.stores.local import open_file
from wdspec.urls.urls import UrlSequence, local_path, spread

MOST_LOOKED_AT = 10_000
"""Number of shards per source that are checked for existence, evenly spaced in longer lists."""
MOST_OF_ALL = 100_000
"""The same for all sources together."""
LEAST_LOOKED_AT = 100
"""The same for each of very many sources."""
MOST_MEMBERS = 100_000
"""Maximum number of headers to read from a shard (about half a second). The rest is assumed to be similar."""
MOST_FIELDS = 50
"""Maximum number of fields of a shard that `stats` measures; numbers in suffixes can create any number of fields."""
MOST_SELECTED = 4_000
"""Samples of a source that are read to estimate how many its selection keeps."""
MOST_SELECTED_SHARDS = 4
"""Number of shards that these samples come from."""
MOST_UNPACKED = 64 * 1024 * 1024
"""Bytes to read from a compressed shard, in which seeking is not possible."""


@dataclass(frozen=True)
class Measure:
    """Facts from the headers of one shard."""

    samples: float
    """Samples of the shard."""
    sample_bytes: float
    """Mean size of the requested members of a sample."""
    whole: bool = True
    """Whether all headers were read."""
    suffixes: frozenset[str] = frozenset()
    """Suffixes of all files in it, requested or not, in lower case."""
    deep: frozenset[str] = frozenset()
    """Those whose first file is a grey PNG of 16 bits."""


def measure(
    source: Source, shards: UrlSequence, storage: Storage, field_of: Callable[[str], str | None]
) -> Measure | WdspecError | None:
    """Measure the first shard of a source.

    Args:
        source: the source.
        shards: its shards.
        storage: its storage.
        field_of: maps the suffix of a member to its field; None for members that are not requested.

    Returns:
        The measure; the error that reading would raise; None for a shard that is not a local tar file, whose samples
        can only be counted by reading them.
    """
    try:
        location = storage.resolve(shards[0]).location
        path = local_path(location)
        if path is None or (os.path.exists(path) and not os.path.isfile(path)):
            return None
        if format_of(location, source.format) != "tar" and os.path.exists(path):
            return None
        return _measure(path, source, field_of)
    except WdspecError as error:
        return error.at(source=source.name, url=shards[0].text)


def recall_measure(
    source: Source, shards: UrlSequence, totals: MeasuredSource, field_of: Callable[[str], str | None]
) -> Measure | None:
    """The measure of a source from its measurements by `wdspec stats`; `shards` and `field_of` as for `measure`.

    It has the suffixes only of tars: in other formats, values such as numbers have no size.
    """
    if not totals.samples or not totals.measured:
        return None
    size = sum(each.count * each.mean for name, each in totals.fields.items() if field_of(name) is not None)
    is_tar = format_of(shards[0].text, source.format) == "tar" and len(totals.fields) < MOST_FIELDS
    suffixes = frozenset(totals.fields if is_tar else ())
    return Measure(totals.samples / totals.measured, size / totals.samples, suffixes=suffixes)


def _measure(path: str, source: Source, field_of: Callable[[str], str | None]) -> Measure:
    split = splitter(source.key)
    samples = size = members = 0
    last: bytes | None = None
    suffixes: set[bytes] = set()
    deep: set[bytes] = set()
    with open_file(path) as raw:
        total = os.fstat(raw.fileno()).st_size
        file = decompress(raw)
        most_bytes = total if file is raw else MOST_UNPACKED
        rules = {"lenient_end": source.tar.end == "lenient", "may_be_empty": source.empty == "allow"}
        for member in iter_members(file, **rules):
            parts = split(member.name) if member.may_be_sampled else None
            if parts is None:
                continue
            key, suffix = parts
            if file is raw and suffix not in suffixes and suffix.lower().endswith(b"png"):
                head = os.pread(raw.fileno(), 26, member.data_offset)
                deep |= {suffix} if head.startswith(b"\x89PNG") and head[24:] == b"\x10\0" else set()
            suffixes.add(suffix)
            if key != last:
                if members >= MOST_MEMBERS or member.offset > most_bytes:
                    estimate = samples * max(1.0, total / max(1, raw.tell()))
                    return Measure(
                        estimate, size / samples, whole=False, suffixes=_texts(suffixes), deep=_texts(deep)
                    )
                samples, last = samples + 1, key
            members += 1
            if field_of(suffix.decode("utf-8", "surrogateescape")) is not None:
                size += member.file_size
    return Measure(samples, size / samples if samples else 0.0, suffixes=_texts(suffixes), deep=_texts(deep))


class KeptSamples(NamedTuple):
    """How many samples of a source `where`, `subset`, `keys` and `exclude` keep, as far as it was read."""

    kept: int
    looked_at: int
    shards: int
    """Shards that were read, in part."""
    by: Literal["sample", "stats", "count"] = "sample"
    """Whether only some samples were read (`sample`), or `stats` or counting for `epoch: pass` has read all of them."""
    causes: Mapping[str, int] = {}
    """How many are left out, by key of the spec, if it is known."""
    unknown: tuple[UnknownKeys, ...] = ()
    """Entries of `keys` and `exclude` that occur in no sample, if all samples were read."""
    remedy: str = ""
    """What to change if nothing is kept, if this is known."""
    is_to_measure: bool = False
    """Whether `stats` has measured the source, but with no or another selection."""
    names: Mapping[str, Mapping[str, int]] = {}
    """The names that are no class, for steps whose fields the selection reads."""

    @property
    def fraction(self) -> float:
        """The fraction of the samples that is kept."""
        return self.kept / max(1, self.looked_at)


def measure_selection(parts: SourceParts, source: Source, shards: UrlSequence) -> KeptSamples:
    """Read some samples of a source, and count those that its selection keeps.

    Raises:
        WdspecError: a shard cannot be read, or an expression cannot be evaluated.
    """
    budget = ErrorBudget(source.errors, source.name).without_log()
    choose = parts.build_choice(budget)
    names = ClassNames(parts.transform.fields, parts.selection, {})
    kept = looked_at = 0
    is_whole = len(shards) <= MOST_SELECTED_SHARDS
    keys: dict[str, None] = {}
    places = spread(len(shards), MOST_SELECTED_SHARDS)
    for place in places:
        with closing(
            parts.selecting(Piece(shards[place]), on_error=lambda error: budget(error, "shard"))
        ) as samples:
            most = MOST_SELECTED // len(places)
            for number, raw in enumerate(islice(samples, most), 1):
                looked_at += 1
                keys[raw["__key__"]] = None
                names.look_at_selected(raw)
                kept += choose(raw)
                is_whole = is_whole and number < most
    unknown = tuple(_find_unknown(parts, source, keys)) if is_whole and keys else ()
    causes = budget.all_dropped
    remedy = "" if kept or not looked_at else explain_nothing(parts, shards[places[0]], causes)
    return KeptSamples(
        kept, looked_at, len(places), causes=causes, unknown=unknown, remedy=remedy, names=names.unknown
    )


class UnfoundTable(NamedTuple):
    """A table of `lookup` that has no row for the first samples of a source."""

    table: str
    samples: int
    """How many were looked up."""
    wanted: str
    """The first key that was looked for."""
    example: str
    """The first key of the table; empty if the table is too large to read it again."""
    column: str
    """A column that has the keys; empty if none does."""


MOST_LOOKED_UP = 50
"""Samples of a source that are looked up in its tables."""


def find_useless_tables(parts: SourceParts, source: Source, shards: UrlSequence) -> Iterator[UnfoundTable]:
    """Look up the first samples in the tables for which missing rows are no errors. Raises WdspecError."""
    if all(options.missing == "error" for options in source.lookup):
        return
    from wdspec.read.lookup import Lookup
    from wdspec.shards.lookup_tables import find_column

    opener, shard = parts.open, shards[0]
    with closing(opener.samples(Piece(shard), str.lower, lambda error: None, opener.ahead())) as samples:
        raws = list(islice(samples, MOST_LOOKED_UP))
    for options, table in zip(source.lookup, shard.tables, strict=True):
        lookup = Lookup(options, table, opener.fields, opener.storage)
        keys = [key for raw in raws if (key := lookup.key_of(raw)) is not None]
        if options.missing != "error" and keys and not any(map(lookup.has, keys)):
            column, example = find_column(options, opener.storage, keys)
            yield UnfoundTable(options.table, len(keys), keys[0], example, column)


def _find_unknown(parts: SourceParts, source: Source, keys: dict[str, None]) -> Iterator[UnknownKeys]:
    """Find the entries of `keys` and `exclude` that are not among all keys of a source."""
    for key, entries in (("keys", source.only_keys), ("exclude", source.exclude)):
        if entries is not None and source.keys_of is None:
            listed = iter_keys(key, source, parts.open.storage)
            found = find_unknown(
                key, listed, lambda texts: [text in keys for text in texts], next(iter(keys)), source.base
            )
            if found is not None:
                yield found


def selection_in_stats(
    totals: MeasuredSource | None, spec: Spec, source: Source, files: Mapping[str, str]
) -> KeptSamples | None:
    """Return what `stats` counted; None if it did not count this selection, or not in all shards.

    Args:
        totals: what `stats` measured.
        spec: the spec.
        source: the source.
        files: digests of the files that its selection names.
    """
    if totals is None or totals.kept is None or not totals.is_whole:
        return None
    if not is_same_selection(totals.keeping, spec, source, files):
        return None
    return KeptSamples(totals.kept, totals.samples, totals.measured, "stats", names=totals.names)


def selection_in_pass(count: SourceCount | None, selection: Selection) -> KeptSamples | None:
    """Return what counting for `epoch: pass` found; None if it did not count all that the selection leaves out."""
    if count is None or not (count.counted == "all" or (count.counted and selection.by_value is None)):
        return None
    kept = count.of_a_copy
    return KeptSamples(
        kept, kept + count.uncounted, count.turns, "stats" if count.counted == "all" else "count"
    )


def _texts(suffixes: set[bytes]) -> frozenset[str]:
    return frozenset(suffix.decode("utf-8", "surrogateescape").lower() for suffix in suffixes)


class WindowFacts(NamedTuple):
    """Batches by cost, as planned from windows that were read."""

    windows: int
    """How many were read."""
    samples: int
    """Samples in each."""
    batches: float
    """Batches of a window, on average."""
    sizes: tuple[int, float, int]
    """The least, mean and largest number of samples in a batch."""
    cost: float
    """Mean cost of the samples of a batch, without padding."""
    fill: float | None
    """Mean cost of a batch, as a part of `max_cost`."""
    useful: float
    """The part of the cost of batches that is not padding."""
    balance: float | None
    """With `balance`: the mean weight of the ranks at a step, as a part of the largest."""


MOST_WINDOWS, MOST_OF_WINDOWS = 8, 10_000
"""Windows to read at most, each of another rank, and samples in all of them, if one does not have more."""


def measure_windows(spec: Spec, shards: Shards, plan: Plan, most: int = MOST_WINDOWS) -> WindowFacts | None:
    """Read the first windows of some ranks, and plan their batches.

    Returns None if that needs functions or objects (`fetch`), or, with a warning, if the windows make no batch.

    Args:
        most: windows to read at most.

    Raises:
        WdspecError: a sample cannot be read.
    """
    if any(spec.functions.values()) or any(map(spec.measured_objects, spec.sources)):
        return None
    from wdspec.planning.windows import rules_of
    from wdspec.read.reader import Reader  # imports numpy and torch, which other specs do not need here
    from wdspec.read.windows import WindowPlanner

    planner = WindowPlanner.of(spec)
    most = min(most, plan.topology.ranks, max(1, MOST_OF_WINDOWS // plan.batching.per_slot))
    reader = Reader(plan, parts_of(spec, shards), range(most), spec)
    try:
        ranks = reader.measure_windows()
    finally:
        reader.close()
    costs = [costs for batches in ranks for costs, _ in batches]
    if not costs:
        warn_user(
            f"{pluralize(len(ranks), 'window')} of {plan.batching.per_slot:,} samples made no batch; "
            "check `group_by`, `overlong`, `incomplete` and `batch.cost`"
        )
        return None
    rules = rules_of(planner.batch)
    of_batches = [len(each) * max(each) if rules.padded else sum(each) for each in costs]
    steps = list(zip(*([weight for _, weight in batches] for batches in ranks if batches), strict=False))
    levels = [sum(weights) / len(weights) / max(weights) for weights in steps if max(weights) > 0]
    return WindowFacts(
        windows=len(ranks),
        samples=plan.batching.per_slot,
        batches=len(costs) / len(ranks),
        sizes=(min(map(len, costs)), sum(map(len, costs)) / len(costs), max(map(len, costs))),
        cost=sum(map(sum, costs)) / len(costs),
        fill=sum(of_batches) / len(costs) / rules.max_cost if isfinite(rules.max_cost) else None,
        useful=sum(map(sum, costs)) / sum(of_batches),
        balance=sum(levels) / len(levels) if planner.batch.balance and levels and len(ranks) > 1 else None,
    )


class SourceFiles(NamedTuple):
    """The local files of one source."""

    looked_at: int
    """Shards that were looked for."""
    is_whole: bool
    """Whether these are all of its shards."""
    directories: tuple[tuple[str, str], ...]
    """URLs and paths of directories that are listed as one shard."""
    missing: tuple[tuple[str, str], ...]
    """(URL, path) of shards that do not exist."""
    repeated: tuple[str, str] | None
    """The first URL whose file is a shard of an earlier source that may keep the same samples, or an earlier shard of
    this one; and that source."""


def look_at_files(spec: Spec, shards: Shards) -> dict[str, SourceFiles]:
    """Look for the local shards of all sources that are read, and of companions; returns their files by name."""
    of_mix: dict[str, list[Source]] = {}
    most = max(LEAST_LOOKED_AT, min(MOST_LOOKED_AT, MOST_OF_ALL // max(1, len(spec.collections))))
    found = {}
    for source in spec.collections:
        urls, storage = shards.lists[source.name], shards.storages[source.name]
        owners = {} if source.name in spec.companions else of_mix  # companions may be samples of the mix
        looked_at, repeated = 0, None
        missing, directories = [], []
        for index in spread(len(urls), most):
            url = urls[index]
            try:
                path = local_path(storage.resolve(url).location)
            except WdspecError:
                continue  # W502 reports it for the first
            if path is None or path == "-":
                continue
            looked_at += 1
            if os.path.isdir(path):
                directories.append((url.text, path))
            elif not os.path.exists(path):
                missing.append((url.text, path))
            else:
                before = owners.setdefault(os.path.realpath(path), [])
                others = (
                    other.name for other in before if other is source or not are_disjoint(other, source)
                )
                repeated = repeated or next(((url.text, name) for name in others), None)
                before.append(source)
        found[source.name] = SourceFiles(
            looked_at, looked_at == len(urls), tuple(directories), tuple(missing), repeated
        )
    return found
