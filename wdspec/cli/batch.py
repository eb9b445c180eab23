"""`wdspec batch`: the samples of a step of a run, past or future.

To find the samples, the reader runs on headers alone. Only sources that drop samples because of their content are
decoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import click

from wdspec.base.errors import ShardError, UsageError
from wdspec.base.progress import progress
from wdspec.cli.report import Block, Table, Warning, pluralize, show_report
from wdspec.cli.samples import HEADINGS, FieldValue, describe_fields, log_skipped_errors
from wdspec.cli.spec_options import SpecChoice, choosing, topology_options
from wdspec.cli.state import read_state
from wdspec.planning.past import Changes
from wdspec.planning.topology import Seat, Topology
from wdspec.read.budget import Budget
from wdspec.read.pass_count import with_counts
from wdspec.read.reader import Reader
from wdspec.read.shard import Piece, ShardOpener
from wdspec.read.transform import Process, SourceParts, Transform, UserFunctions
from wdspec.run.position import Position
from wdspec.run.run import Run, make_run
from wdspec.run.state import check_undamaged
from wdspec.shards.shards import list_readable_shards, plan_shards
from wdspec.spec.language.options import Elastic
from wdspec.spec.language.values import MASK
from wdspec.spec.spec import Source, Spec
from wdspec.urls.urls import ShardUrl

_ORIGIN = {"__source__", "__url__", "__key__"}


@click.command()
@choosing
@click.option("--step", type=click.IntRange(min=0), required=True, help="Number of the global batch, from 0.")
@click.option(
    "--epoch", type=click.IntRange(min=0), help="Count the step from the start of this epoch (from 0)."
)
@topology_options
@click.option("--rank", type=click.IntRange(min=0), help="Show only the samples of this rank.")
@click.option(
    "--state", "saved", metavar="FILE", help="Start from this saved state, with the topology of its run."
)
@click.option("--samples", "decoded", is_flag=True, help="Decode the samples, and show their fields.")
def batch(
    choice: SpecChoice,
    form: str,
    step: int,
    epoch: int | None,
    ranks: int | None,
    workers: int | None,
    rank: int | None,
    saved: str | None,
    decoded: bool,
) -> None:
    """Show the samples of any step of a run: source, key, shard, index and byte offset.

    The samples of a step depend on the topology of the run, which comes from `elastic`, from --state, or from --ranks
    and --workers. If none of these is given, the command prints a warning.

    To find the samples, the command reads the headers of all earlier samples of the same slots (none with `epoch:
    pass`). If a source drops samples because of their content (`select`, `missing: skip`, `errors: skip`), it also
    decodes these samples. It has less to read if you pass a --state that was saved shortly before the step.
    """
    log_skipped_errors()
    state = None if saved is None else read_state(saved)
    trace = trace_step(
        choice.load(), step, epoch=epoch, ranks=ranks, workers=workers, state=state, decoded=decoded
    )
    samples = [sample for sample in trace.samples if rank is None or sample.rank == rank]
    if not samples:
        raise click.UsageError(f"unknown rank {rank}; the number of ranks is {trace.samples[-1].rank + 1}")
    show_report(StepReport(trace._replace(samples=samples), decoded), form)


@dataclass(frozen=True)
class _Unchanged(Transform):
    """Yields samples unchanged."""

    def build(
        self,
        budget: Budget,
        seed: int,
        slot: int,
        functions: UserFunctions,
        shards: ShardOpener | None = None,
    ) -> Process:
        def process(raw: dict[str, Any], ordinal: int) -> dict[str, Any]:
            budget.delivered += 1
            return raw

        return process


def needs_samples(spec: Spec, source: Source) -> bool:
    """Whether samples must be read and decoded to know which of them are dropped."""
    batch = spec.batch
    is_by_function = batch is not None and batch.is_by_function
    is_after_map = bool(spec.fields_after_map(source))
    return spec.stage is not None or is_by_function or is_after_map or source.drops_samples


class TracedSample(NamedTuple):
    """A sample of a global batch."""

    rank: int
    """The rank that gets it."""
    place: int
    """Its index in the rank's part of the batch."""
    source: str
    """Source, key and URL are empty for a sample that a `stage` created."""
    key: str
    url: str
    number: int | None
    """Its index in the shard. This and `offset` are None if the shard no longer has the sample."""
    offset: int | None
    """Its byte offset in the uncompressed shard."""
    is_padding: bool
    """Whether it is padding that fills the last batch of a pass."""
    sample: dict[str, Any]
    """The decoded sample, if requested; otherwise what its headers say."""


class Trace(NamedTuple):
    """A step and its samples."""

    batch: int
    """J of the global batch, counted from the start of the run."""
    epoch: int
    samples: list[TracedSample]
    is_skipped: bool
    """Whether the run skips the step."""
    topology: Topology
    """The canonical topology, on which the samples of a step depend."""
    assumed: tuple[str, ...] = ()
    """Which of `ranks` and `workers` are assumed, because nothing specifies them. The run may have other numbers."""


def trace_step(
    spec: Spec,
    step: int,
    *,
    epoch: int | None = None,
    ranks: int | None = None,
    workers: int | None = None,
    state: Mapping[str, Any] | None = None,
    decoded: bool = False,
) -> Trace:
    """Find the samples of a global batch, of all ranks.

    Args:
        spec: the spec.
        step: number of the global batch, from 0, in the run or in `epoch`.
        epoch: from 0.
        ranks: number of ranks. Defaults to the ranks of the state or of `elastic`, otherwise 1.
        workers: workers per rank. Defaults to the workers of the state or of `elastic`, otherwise the spec's.
        state: a state of the run, saved before or after the step.
        decoded: whether to decode the samples.

    Raises:
        UsageError: the epoch does not have this step, the spec has no epochs, or topology or state do not match it.
        WdspecError: shards cannot be listed or read.
    """
    stated = {"ranks": ranks, "workers": workers}
    is_known = spec.elastic is not None or state is not None
    assumed = () if is_known else tuple(name for name, number in stated.items() if number is None)
    run_ranks, spec = _canonical(spec, ranks, workers, state)
    shards = list_readable_shards(spec)
    shards = with_counts(spec, shards) if spec.is_pass else shards
    run = make_run(plan_shards(spec, shards, 1, 1), spec, shards, Seat())
    number = _number(run, step, epoch)
    position = Position() if state is None else Position.from_state(state, run)
    is_skipped = number in position.skipped | spec.skipped_steps.within(position.step)
    if position.step > number:  # read from the start, with the shares that were set at run time
        position = Position(shares=position.shares)
    changes = Changes(run.segments(position.shares), position.past)
    scouting = dict(run.parts)
    for source in spec.sources:
        if not needs_samples(spec, source):
            each = run.parts[source.name]
            reading = _Unchanged(each.transform.fields, tags=each.transform.tags)
            open = each.open if run.plan.batching.windowed else each.open.headers
            scouting[source.name] = replace(each, open=open, transform=reading)
    reader = replace(run, parts=scouting).reader()
    try:
        reader.draw_by(changes)
        reader.restore(position.slot_states)
        _read_up_to(number, reader, run, position.step)
        if decoded:
            reader, scout = run.reader(), reader
            reader.draw_by(changes)
            reader.restore(scout.table())
            scout.close()
        parts = reader.micro_batches(number)
    finally:
        reader.close()
    seat = Seat(0, run_ranks)
    seat.places(run.plan.topology, run.plan.batching.shared)
    topology, placed = run.plan.topology, list(_place(parts, run_ranks, run))
    return Trace(number, run.plan.timeline.epoch(number), placed, is_skipped, topology, assumed)


def _canonical(
    spec: Spec, ranks: int | None, workers: int | None, state: Mapping[str, Any] | None
) -> tuple[int, Spec]:
    """The ranks of the run, and the spec with the canonical topology of its order."""
    elastic = spec.elastic
    if state is not None:
        check_undamaged(state)
        saved = json.loads(state["order"])["elastic"]
        elastic = elastic or Elastic(ranks=saved["ranks"], workers=saved["workers"])
    if elastic is None:
        elastic = Elastic(
            ranks=ranks or 1, workers=max(1, spec.loader.workers if workers is None else workers)
        )
    topology = Topology(elastic.ranks, elastic.workers)
    if workers is not None:
        topology.check_workers(workers)
    return ranks or topology.ranks, spec.model_copy(update={"elastic": elastic})


def _number(run: Run, step: int, epoch: int | None) -> int:
    timeline, number = run.plan.timeline, step
    if epoch is not None:
        length = timeline.epoch_steps
        if length is None:
            raise UsageError("the spec has no `epoch`, so steps are counted from its start: omit --epoch")
        if step >= length:
            raise UsageError(
                f"an epoch has {length:,} steps, from 0 to {length - 1:,}; step {step:,} is not one of them"
            )
        number += epoch * length
    if timeline.is_over(number):
        raise UsageError(
            f"`on_exhausted: stop` ends the run before step {timeline.stop:,}; step {number:,} is not in it"
        )
    return number


def _read_up_to(number: int, reader: Reader, run: Run, start: int) -> None:
    """Read the earlier batches of the same slots; a pass needs none of them."""
    if run.plan.finite is not None:
        return
    workers = run.plan.topology.workers
    before = range(start + (number - start) % workers, number, workers)
    with progress("steps before", len(before), drawn=len(before) > 100) as bar:
        for each in before:
            reader.batch(each)
            bar.advance()


def _place(parts: Sequence[Sequence[dict[str, Any]]], ranks: int, run: Run) -> Iterable[TracedSample]:
    """Find where the samples of the canonical ranks are, and which ranks get them."""
    samples = [sample for part in parts for sample in part]
    if run.plan.batching.windowed:  # of any size
        each = len(parts) // ranks
        seats = [(c // each, place) for c, part in enumerate(parts) for place, _ in enumerate(part)]
    else:
        seats = [divmod(number, len(samples) // ranks) for number in range(len(samples))]
    keys: dict[tuple[str, str], set[str]] = {}
    for sample in samples:
        if sample.keys() >= _ORIGIN:
            keys.setdefault((sample["__source__"], sample["__url__"]), set()).add(sample["__key__"])
    places = {}
    for (source, url), of_shard in keys.items():
        shard = next(shard for shard in run.shards.lists[source] if shard.text == url)
        places[source, url] = _find_offsets(run.parts[source], shard, of_shard)
    for seat, sample in zip(seats, samples, strict=True):
        source, url, key = (str(sample.get(name, "")) for name in ("__source__", "__url__", "__key__"))
        index, offset = places.get((source, url), {}).get(key, (None, None))
        is_padding = sample.get(MASK) is False
        yield TracedSample(*seat, source, key, url, index, offset, is_padding, sample)


def _find_offsets(parts: SourceParts, shard: ShardUrl, keys: set[str]) -> dict[str, tuple[int, int]]:
    """Index and offset of the samples with these keys."""
    places: dict[str, tuple[int, int]] = {}
    # Damage was reported when the batch was read.
    with (
        suppress(ShardError),
        closing(parts.open.headers(Piece(shard), on_error=lambda error: None)) as headers,
    ):
        offset = 0
        for sample in headers:
            if sample["__key__"] in keys:
                places.setdefault(sample["__key__"], (headers.next_index - 1, offset))
                if len(places) == len(keys):
                    break
            offset = headers.next_offset
    return places


@dataclass(frozen=True)
class StepReport:
    """The samples of a step."""

    trace: Trace
    decoded: bool
    """Whether to show their fields."""

    def blocks(self) -> Iterator[Block]:
        trace = self.trace
        rows = [
            (
                str(each.rank),
                str(each.place),
                each.source,
                each.key,
                each.url or "created by `stage`",
                _text(each, each.number),
                _text(each, each.offset),
            )
            for each in trace.samples
        ]
        headings = ("rank>", "#>", "source", "key", "shard", "index>", "byte>")
        topology = (
            f"{pluralize(trace.topology.ranks, 'rank')} x {pluralize(trace.topology.workers, 'worker')}"
        )
        yield Table(headings, rows, title=f"step {trace.batch:,}, epoch {trace.epoch:,}, {topology}")
        if trace.assumed:
            options = " and ".join(f"--{name}" for name in trace.assumed)
            yield Warning(
                f"assuming {topology}, because the spec has no `elastic`: with other "
                f"{' or '.join(trace.assumed)}, this step has other samples; pass {options}, or a --state of the run"
            )
        if trace.is_skipped:
            yield "this step is skipped (`skip`): no rank gets these samples"
        padding = sum(each.is_padding for each in trace.samples)
        if padding:
            yield f"{padding:,} of these are padding (`__mask__` is false)"
        if self.decoded:
            fields = [
                (str(each.rank), str(each.place), *field.row)
                for each in trace.samples
                for field in _fields(each)
            ]
            yield Table(("rank>", "#>", *HEADINGS), fields)

    def as_json(self) -> dict[str, Any]:
        samples = [
            {
                "rank": each.rank,
                "place": each.place,
                "source": each.source,
                "key": each.key,
                "shard": each.url,
                "index": each.number,
                "offset": each.offset,
                "padding": each.is_padding,
                **({"fields": _fields(each)} if self.decoded else {}),
            }
            for each in self.trace.samples
        ]
        trace = self.trace
        topology = {
            "ranks": trace.topology.ranks,
            "workers": trace.topology.workers,
            "assumed": trace.assumed,
        }
        return {
            "step": trace.batch,
            "epoch": trace.epoch,
            "topology": topology,
            "skipped": trace.is_skipped,
            "samples": samples,
        }


def _fields(sample: TracedSample) -> list[FieldValue]:
    return describe_fields(
        (name, value) for name, value in sample.sample.items() if not name.startswith("__")
    )


def _text(sample: TracedSample, number: int | None) -> str:
    if number is not None:
        return f"{number:,}"
    return "gone" if sample.url else ""
