"""The job of `wdspec stats`: measure samples, bytes and field sizes of shards from headers, and lengths from values.

Stores are asked about shards that were measured before; new and changed shards are measured. `wdspec.spec.measurements`
describes the file, and how a spec uses its numbers.
"""

from __future__ import annotations

import warnings
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wdspec.advice.class_names import ClassNames, pool_names
from wdspec.advice.facts import Facts
from wdspec.advice.measure import MOST_FIELDS, KeptSamples, measure_windows, recall_measure
from wdspec.advice.unknown_keys import UnknownKeys
from wdspec.base.errors import ShardError, UsageError, WdspecError
from wdspec.base.progress import with_progress
from wdspec.fields.values import sides_of
from wdspec.formats.compression import format_of
from wdspec.formats.readers import seeks
from wdspec.formats.samples import Unread
from wdspec.jobs.engine import Engine
from wdspec.jobs.job import (
    LiveCount,
    ReadTask,
    ShardFailed,
    ShardJob,
    make_plan_if_possible,
    measure_rate,
    read_earlier,
)
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.object_count import count_objects
from wdspec.read.pass_count import KeepingCount, count_shard, mark_distance, measure_costs
from wdspec.read.shard import Piece, SampleReader
from wdspec.read.transform import parts_of
from wdspec.read.windows import WindowPlanner
from wdspec.shards.lock import check_harmless, digest_partners, find_measured, place_of
from wdspec.shards.shards import list_shards
from wdspec.spec.measurements import (
    LEVELS,
    MeasuredShard,
    MeasuredSource,
    Measurements,
    Requested,
    SampleCosts,
    Spread,
)
from wdspec.spec.problems import advise_stats
from wdspec.spec.reading import (
    digest_costing,
    digest_decoding,
    digest_keeping,
    digest_requesting,
    digest_shards,
    is_same_selection,
)
from wdspec.spec.spec import Source, Spec
from wdspec.stores.object_requests import SEGMENT, count_requests
from wdspec.stores.outputs import save
from wdspec.stores.store import ObjectStat
from wdspec.urls.urls import ShardUrl


@dataclass(frozen=True)
class MeasureTask(ReadTask):
    """A shard to measure."""

    lengths: bool
    """Whether to decode its samples too, as in training."""
    planner: WindowPlanner | None = None
    """Measures what its samples cost, if that is needed."""
    keeps_costs: bool = False
    """Whether the cost of each sample is needed."""
    counts_objects: bool = False
    """Whether to count the objects that samples name."""
    counts_kept: bool = False
    """Whether to count the samples that the selection of the source keeps."""
    distance: int | None = None
    """The number of bytes between two marks."""


class Fault(NamedTuple):
    """A shard that could not be measured."""

    source: str
    shard: str
    why: str


class StatsJob(ShardJob[MeasureTask, MeasuredShard]):
    """The shards of a spec to measure, and all measurements.

    Args:
        spec: the spec; all of its sources are measured, whatever their shares, and those of companions.
        path: of the file; None writes no file.
        update: whether to ignore earlier measurements.
        lengths: whether to decode samples of all sources, to measure the lengths of values; otherwise this is done for
            sources that have been measured so, with the same decoders.
        requests: whether to measure shards again if the spec requests other columns, or objects, than when they were
            measured.

    Raises:
        UsageError: URLs contain a secret, which the file would keep; the file is of another kind, or another split.
        WdspecError: shards cannot be listed.
    """

    def __init__(
        self,
        spec: Spec,
        path: str | None = None,
        *,
        update: bool = False,
        lengths: bool = False,
        requests: bool = True,
    ) -> None:
        self._spec, self._path, self._requests = spec, path, requests
        before, self._text = (None, b"") if path is None else _read_before(path, spec.split)
        # The file that `stats` names may not exist yet: this job writes it.
        self._shards = list_shards(spec.of(spec.sources).model_copy(update={"stats": None}))
        self._known: dict[str, dict[str, MeasuredShard]] = {}
        self._found: Measurements | None = None
        """All measurements so far, if no shard was measured since."""
        files = self._shards.files
        self._costing = {
            source.name: digest_costing(spec.by_which(source), source, files.get(source.name, {}))
            for source in spec.collections
        }
        self._keeping = {
            source.name: digest_keeping(spec.by_which(source), source, files.get(source.name, {}))
            for source in spec.collections
        }
        self._requesting = {
            source.name: digest_requesting(spec.by_which(source), source, files.get(source.name, {}))
            for source in spec.collections
            if source.fetch or self._has_tables(source)
        }
        planner = WindowPlanner.of(spec) if any(self._costing.values()) else None
        self._decoding: dict[str, str] = {}
        """How values are decoded, for the sources whose values are measured."""
        self.gone: list[tuple[str, str]] = []
        """(source, URL) of measured shards that are no longer listed."""
        self.faults: list[Fault] = []
        for source in spec.collections:
            self._recall(source, None if update else before, lengths)
        self.unchanged = sum(map(len, self._known.values()))
        """Number of shards that have not changed since they were measured."""
        tasks = MeasureTask.of_spec(
            spec,
            spec.collections,
            self._shards,
            parts_of(spec, self._shards),
            lambda source, number, shard: {
                "lengths": source.name in self._decoding,
                "planner": planner if self._costing[source.name] else None,
                "keeps_costs": spec.is_pass,
                "counts_objects": bool(source.fetch) and (lengths or not spec.functions["decode"]),
                "counts_kept": bool(self._keeping[source.name]),
                "distance": mark_distance(spec),
            },
        )
        self.tasks: Sequence[MeasureTask] = [
            task for task in tasks if task.shard.text not in self._known[task.source]
        ]
        """New and changed shards."""

    def _has_tables(self, source: Source) -> bool:
        """Whether parts of shards are read."""
        return any(seeks(format_of(text, source.format)) for text in self._shards.lists[source.name].texts())

    def _recall(self, source: Source, before: Measurements | None, lengths: bool) -> None:
        """Ask the store which shards of a source are unchanged."""
        shards = self._shards.lists[source.name]
        check_harmless(source.name, shards.parts, "the file")
        known = self._known[source.name] = {}
        then = None if before is None else before.of(self._spec, source)
        decoding = ""
        own = self._spec.by_which(source), source, self._shards.files.get(source.name, {})
        if lengths or (then is not None and then.decoding):
            decoding = digest_decoding(*own)
        has_lengths = bool(decoding) and then is not None and then.decoding == decoding
        if lengths or has_lengths:
            self._decoding[source.name] = decoding
        has_cost = then is not None and then.costing == self._costing[source.name]
        has_kept = then is not None and (
            not self._keeping[source.name] or is_same_selection(then.keeping, *own)
        )
        requesting = None if then is None or not self._requests else then.requesting
        is_asked = requesting in (None, self._requesting.get(source.name, ""))
        is_same = has_cost and has_kept and is_asked and (has_lengths or not lengths)
        if before is None or then is None or not is_same:
            return
        found = find_measured(before, self._spec, source, self._shards.storages[source.name], shards)
        title = f"asking about {source.name}"
        for shard, same in zip(shards, with_progress(found, title, total=len(shards)), strict=True):
            if same is not None:
                known[shard.text] = same if has_lengths else replace(same, lengths={})
        texts = set(shards.texts())
        were = before.shards.get(source.name, ())
        self.gone.extend((source.name, text) for text in were if text not in texts)

    def run(self, engine: Engine) -> None:
        """Measure the tasks; save the file from time to time and at the end. Closes the engine."""
        self._samples = self._bytes = 0
        self.run_tasks(measure_shard, self.tasks, engine)
        self.faults.sort()

    def columns(self) -> Mapping[str, tuple[str, Any]]:
        return {
            "samples": ("{:,} samples", LiveCount(lambda: self._samples)),
            "rate": ("{:,.1f} MB/s of files", measure_rate(lambda: self._bytes)),
        }

    def take(self, task: MeasureTask, outcome: MeasuredShard | ShardFailed) -> None:
        self._found = None
        if isinstance(outcome, ShardFailed):
            self.faults.append(Fault(task.source, task.shard.text, " ".join(outcome.cause.split())))
        else:
            self._known[task.source][task.shard.text] = outcome
            self._samples += outcome.samples
            self._bytes += outcome.bytes

    def keep(self) -> None:
        text = self.measurements().text
        if self._path is not None and text != self._text:
            save(self._path, text)
            self._text = text

    def measurements(self) -> Measurements:
        """All measurements so far."""
        if self._found is None:
            shards = {
                name: {text: known[text] for text in self._shards.lists[name].texts() if text in known}
                for name, known in self._known.items()
            }
            totals = {each.name: self._total(each, shards[each.name]) for each in self._spec.collections}
            self._found = Measurements(totals, shards, self._spec.split, self._spec.environment)
        return self._found

    def facts(self) -> Facts:
        """What advice needs to know: what was measured, and the plan for the topology in the spec."""
        spec, shards, totals = self._spec, self._shards, self.measurements().sources
        measures = {
            each.name: found
            for each in spec.sources
            if (found := recall_measure(each, shards.lists[each.name], totals[each.name], str)) is not None
        }
        samples = None
        if (plan := make_plan_if_possible(spec, shards)) is not None:
            read = [totals[source.name] for source in plan.sources]
            if all(each.is_whole for each in read):
                samples = sum(each.samples if each.kept is None else each.kept for each in read)
        selected = {
            source.name: KeptSamples(
                each.kept,
                each.samples,
                each.measured,
                "stats",
                unknown=self._count_unknown(source, each),
                names=each.names,
            )
            for source in spec.collections
            if (each := totals[source.name]).kept is not None and each.measured
        }
        windows = None
        if plan is not None and plan.batching.windowed and self.tasks:
            with suppress(WdspecError):  # it is among the faults, or the run reports it
                windows = measure_windows(spec, shards, plan, 1)
        return Facts(spec, shards, measures, plan=plan, selected=selected, samples=samples, windows=windows)

    def _count_unknown(self, source: Source, total: MeasuredSource) -> tuple[UnknownKeys, ...]:
        """Count the entries of the only list that selects the samples of a source which are the key of no sample."""
        (keys, exclude), kept = self._shards.key_lists.get(source.name, (None, None)), total.kept or 0
        others = (source.where, source.subset, source.keys_of, source.copies % 1, keys and exclude)
        if not total.is_whole or any(others):
            return ()
        for key, entries, found in (("keys", keys, kept), ("exclude", exclude, total.samples - kept)):
            if isinstance(entries, frozenset) and len(entries) > found:
                return (UnknownKeys(key, len(entries) - found, len(entries)),)
        return ()

    def _total(self, source: Source, shards: Mapping[str, MeasuredShard]) -> MeasuredSource:
        return MeasuredSource(
            tuple(source.shards or ()),
            place_of(source, self._shards.storages[source.name]),
            digest_shards(self._spec, source),
            len(set(self._shards.lists[source.name].texts())),
            len(shards),
            sum(shard.samples for shard in shards.values()),
            sum(shard.bytes for shard in shards.values()),
            _pool_fields(shard.fields for shard in shards.values()),
            _pool_fields(shard.lengths for shard in shards.values()),
            self._decoding.get(source.name, ""),
            *self._mean_cost(source.name, shards),
            *self._count_kept(source.name, shards),
            self._requesting.get(source.name, ""),
            pool_names(shard.names for shard in shards.values()),
        )

    def _count_kept(self, name: str, shards: Mapping[str, MeasuredShard]) -> tuple[int | None, str]:
        if not self._keeping[name]:
            return None, ""
        counts = (shard.samples if shard.kept is None else shard.kept[0] for shard in shards.values())
        return sum(counts), self._keeping[name]

    def _mean_cost(self, name: str, shards: Mapping[str, MeasuredShard]) -> tuple[float | None, str]:
        costs = [shard.cost for shard in shards.values() if shard.cost is not None]
        count = sum(count for _, count in costs)
        return (sum(total for total, _ in costs) / count if count else None), self._costing[
            name
        ] if count else ""


def _read_before(path: str, split: str | None) -> tuple[Measurements | None, bytes]:
    found, text = read_earlier(path, b'"stats":', "stats", Measurements.of_text)
    if found is not None and found.split != split:
        raise UsageError(
            f"`{path}` is of the split `{found.split}`, but each split needs its own file; "
            f"{advise_stats(split)}, or give another name with -o"
        )
    return found, text


def measure_shard(task: MeasureTask) -> MeasuredShard:
    """Measure one shard. It is not cached, since headers are a small part of its bytes."""
    parts = task.parts
    bare = replace(parts.open, storage=replace(parts.open.storage, cache=None))
    stat, beside = ObjectStat(), None
    # Ask before reading: a change in between is found next time. Reading reports errors, as `errors` applies there.
    with suppress(ShardError):
        stat = bare.storage.stat(task.shard)
        beside = digest_partners(task.shard, bare.storage)
    sizes = _Sizes()
    names = ClassNames(parts.transform.fields, parts.selection, {})
    budget = ErrorBudget(parts.errors, task.source).without_log()
    count = count_shard(bare, task.shard, budget, sizes.take, distance=task.distance)
    if any(parts.open.parts):
        _measure_joined(task, bare, budget, sizes)
    if task.counts_kept:
        count = KeepingCount(parts, names.look_at_selected).read(task.shard, count)
    _, objects = count_objects(parts, task.shard) if task.counts_objects else (0, {})
    lengths: Mapping[str, Spread] = {}
    if task.lengths:
        lengths, sizes_of = _measure_lengths(task)
        objects = {name: each._replace(bytes=sizes_of.get(name, 0)) for name, each in objects.items()}
    costs = None if task.planner is None else _measure_costs(task, task.planner, count.samples)
    measured = [each for each in costs.costs if each == each] if costs else ()  # not NaN
    return MeasuredShard(
        count.samples,
        sizes.total,
        stat.size,
        stat.validator,
        sizes.columns.spreads,
        lengths,
        count.marks,
        tuple(sorted(count.lost)),
        (sum(measured), len(measured)) if measured else None,
        costs if task.keeps_costs else None,
        count.kept,
        count.again,
        beside,
        _find_requested(bare, task.shard),
        objects,
        names.unknown,
    )


def _find_requested(opener: SampleReader, shard: ShardUrl) -> Requested | None:
    """Find what a run requests of a shard, if it is a table of which it reads parts; None if that is unknown."""
    if not seeks(format_of(shard.text, opener.format)) or any(opener.parts):
        return None
    ranges: list[tuple[int, int]] | None = None
    with (
        suppress(ShardError),
        closing(
            opener.samples(Piece(shard), opener.fields.field_of, lambda error: None, opener.ahead())
        ) as samples,
    ):
        ranges = samples.requested()
    if ranges is None:
        return None
    sizes = [end - start for start, end in ranges]
    return Requested(sum(sizes), len(sizes), sum(count_requests(size, SEGMENT) for size in sizes))


def _measure_joined(task: MeasureTask, opener: SampleReader, budget: ErrorBudget, sizes: _Sizes) -> None:
    """Add the sizes of the files of partners (`join`) that the samples of a shard get, and of values of tables."""
    shard, url = task.shard, task.shard.text
    joins, lookups = opener.parts

    def on_error(error: ShardError) -> None:
        budget(error, "shard", url=url)

    for options, partner in zip(joins, shard.partners, strict=True):
        of_partner = replace(opener.headers, format=options.format, may_be_empty=True, parts=((), ()))
        wanted = options.field_of(str.lower)

        def name_field(suffix: str, wanted: Callable[[str], str | None] = wanted) -> str | None:
            name = wanted(suffix)
            return None if name is None else f".{name}"

        with closing(of_partner.samples(Piece(partner), name_field, on_error, of_partner.ahead())) as samples:
            for sample in samples:
                if sample["__key__"] in sizes.keys:
                    sizes.take_fields(sample)
    if lookups:
        with closing(opener.only_tables(Piece(shard), on_error)) as samples:
            columns = {name for options in lookups for name in options.names}
            for sample in samples:
                for name in sample.keys() & columns:
                    value = sample[name]
                    size = 8 if isinstance(value, (int, float)) else _size_of(value)
                    if size is not None:
                        sizes.columns.add(name.lower(), size)


def _measure_costs(task: MeasureTask, planner: WindowPlanner, count: int) -> SampleCosts:
    """Return what each sample of a shard costs, as in training."""
    budget = ErrorBudget(task.parts.errors, task.source).without_log()
    process, lent = task.build_process(budget)
    return measure_costs(task.parts, task.shard, planner, process, budget, count, lent)


class _Columns:
    """Numbers by field."""

    def __init__(self) -> None:
        self._found: dict[str, array[int]] = {}

    def add(self, name: str, number: int) -> None:
        """Add a number. More than `MOST_FIELDS` fields are ignored."""
        if name in self._found:
            self._found[name].append(number)
        elif len(self._found) < MOST_FIELDS:
            self._found[name] = array("q", [number])

    @property
    def spreads(self) -> dict[str, Spread]:
        """The spread of each field."""
        return {name: spread_of(numbers) for name, numbers in sorted(self._found.items())}


class _Sizes:
    """The sizes of the files of a shard, by suffix."""

    def __init__(self) -> None:
        self.columns = _Columns()
        self.keys: set[str] = set()
        self.total = 0
        """Bytes of the files in the shard itself."""

    def take(self, sample: dict[str, Any]) -> None:
        """Add the sizes of one sample of the shard, which has a dot before each suffix."""
        self.keys.add(sample["__key__"])
        self.total += self.take_fields(sample)

    def take_fields(self, sample: dict[str, Any]) -> int:
        """Add the sizes of some fields, which have a dot before their names, and return their sum."""
        total = 0
        for name, value in sample.items():
            if name[0] == "." and (size := _size_of(value)) is not None:
                total += size
                self.columns.add(name[1:].lower(), size)
        return total


def _size_of(value: Any) -> int | None:
    """The bytes of a file, a text or an array; None for numbers, lists and maps."""
    if type(value) is str:  # in a record
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, (bytes, Unread)):
        return len(value)
    return value.nbytes if isinstance(value, (np.ndarray, np.generic)) else None


def _measure_lengths(task: MeasureTask) -> tuple[dict[str, Spread], Mapping[str, int]]:
    """Measure the lengths of decoded values; and the bytes of the objects that samples name, by field."""
    objects, sizes = task.parts.transform.objects, Counter[str]()

    def see(raw: dict[str, Any]) -> None:
        for each in () if objects is None else objects.fetched:
            value = raw.get(each.name)
            sizes[each.name] += sum(map(len, filter(None, value if isinstance(value, list) else [value])))

    columns, budget = _Columns(), ErrorBudget(task.parts.errors, task.source).without_log()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about data that the spec allows
        for sample in task.samples(budget, see):
            for name, value in sample.items():
                if not name.startswith("__"):
                    for part, length in lengths_of(name, value):
                        columns.add(part, length)
    return columns.spreads, sizes


def lengths_of(name: str, value: Any) -> Iterator[tuple[str, int]]:
    """Yield the lengths of a value with their names: characters of a text, entries of a list, sides of an array.

    The sides of arrays, tensors and images are `name[0]`, `name[1]`, …, height before width. The parts of a tuple, such
    as decoded sound, are `name.0`, …. Bytes, numbers and maps have no lengths; file sizes are measured anyway.
    """
    if isinstance(value, (str, list)):
        yield name, len(value)
    elif (sides := sides_of(value)) is not None:
        yield from ((f"{name}[{axis}]", side) for axis, side in enumerate(sides))
    elif isinstance(value, tuple):
        for number, part in enumerate(value):
            yield from lengths_of(f"{name}.{number}", part)


def spread_of(sizes: Sequence[int]) -> Spread:
    """The spread of some sizes; its quantiles are among the sizes."""
    values = np.asarray(sizes, np.int64)
    quantiles = np.quantile(values, LEVELS, method="inverted_cdf")
    return Spread(len(values), float(values.mean()), tuple(map(int, quantiles)))


def _pool_fields(spreads: Iterable[Mapping[str, Spread]]) -> dict[str, Spread]:
    found: dict[str, list[Spread]] = {}
    for of_shard in spreads:
        for name, spread in of_shard.items():
            found.setdefault(name, []).append(spread)
    return {name: pool(spreads) for name, spreads in sorted(found.items())}


def pool(spreads: Sequence[Spread]) -> Spread:
    """Pool several spreads into one.

    Count, mean, least and greatest are exact. A spread says which part of its sizes is between two neighbouring
    quantiles; there, sizes are assumed to be distributed evenly. So the part of all sizes below a quantile is off by
    less than the largest such part, a quarter, and exact if all spreads are the same.
    """
    if len(spreads) == 1:
        return spreads[0]
    counts = np.array([each.count for each in spreads], np.float64)
    bounds = np.array([each.quantiles for each in spreads], np.float64)
    low, high = bounds[:, :-1].ravel(), bounds[:, 1:].ravel()
    parts = (counts[:, None] * np.diff(LEVELS)).ravel()
    total = int(counts.sum())
    least, greatest = int(bounds.min()), int(bounds.max())

    def quantile(level: float) -> int:
        first, last = least, greatest
        while first < last:  # find the smallest size with at least this part of all sizes up to it
            middle = (first + last) // 2
            if _count_below(middle, low, high, parts) >= level * total - 1e-6:
                last = middle
            else:
                first = middle + 1
        return first

    inner = tuple(map(quantile, LEVELS[1:-1]))
    mean = float(sum(each.count * each.mean for each in spreads) / total)
    return Spread(total, mean, (least, *inner, greatest))


def _count_below(size: int, low: npt.NDArray[Any], high: npt.NDArray[Any], parts: npt.NDArray[Any]) -> float:
    """Number of sizes up to `size`, if those of each part are distributed evenly between its bounds."""
    width = np.maximum(high - low, 1.0)
    return float((parts * np.clip((size - low + (high == low)) / width, 0.0, 1.0)).sum())
