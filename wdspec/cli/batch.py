"""`wdspec batch`: the samples of steps of a run, past or future.

To find the samples, the reader runs on headers alone. Only sources that drop samples because of their content are
decoded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import click

from wdspec.base.errors import ShardError, UsageError
from wdspec.base.progress import progress
from wdspec.cli.output import Block, Row, Table, Warning, pluralize, print_json, show
from wdspec.cli.samples import HEADINGS, FieldValue, describe_fields, describe_value, log_skipped_errors
from wdspec.cli.spec_options import SpecChoice, choosing_spec, format_option, parse_value, topology_options
from wdspec.cli.state import read_state
from wdspec.fields.samples import COMPANIONS
from wdspec.planning.past import Changes
from wdspec.planning.timeline import Timeline
from wdspec.planning.topology import Seat, Topology
from wdspec.read.counts import count_tokens, token_fields
from wdspec.read.error_budget import ErrorBudget
from wdspec.read.pass_count import with_counts
from wdspec.read.reader import Reader
from wdspec.read.shard import Piece
from wdspec.read.transform import Process, SourceParts, Transform
from wdspec.run.position import Position
from wdspec.run.run import Run, make_run
from wdspec.run.state import check_undamaged
from wdspec.shards.shards import list_readable_shards, plan_shards
from wdspec.spec.language.making import Chat, MaskTokens, Tokenize
from wdspec.spec.language.options import Elastic
from wdspec.spec.language.steps import read_step_range
from wdspec.spec.language.values import MASK
from wdspec.spec.spec import Source, Spec
from wdspec.steps.tokenize import load_tokenizer
from wdspec.urls.urls import ShardUrl

_ORIGIN = {"__source__", "__url__", "__key__"}
_MOST_TOKENS = 64
"""The number of tokens of a field to show as text."""


@click.command()
@choosing_spec
@format_option(
    "text",
    "json",
    "jsonl",
    help="Output format; `jsonl` prints one line for each sample, as soon as its step is read.",
)
@click.option(
    "--steps",
    "--step",
    required=True,
    callback=lambda context, option, text: parse_value(read_step_range, text),
    metavar="STEPS",
    help="A global batch, `1000`, or several, `1000..1010`, which are 11.",
)
@click.option(
    "--epoch", type=click.IntRange(min=0), help="Count the steps from the start of this epoch (from 0)."
)
@topology_options
@click.option("--rank", type=click.IntRange(min=0), help="Show only the samples of this rank.")
@click.option(
    "--state", "saved", metavar="FILE", help="Start from this saved state, with the topology of its run."
)
@click.option(
    "--samples", "decoded", is_flag=True, help="Decode the samples, and show their fields: token ids as text."
)
def batch(
    choice: SpecChoice,
    form: str,
    steps: dict[str, int],
    epoch: int | None,
    ranks: int | None,
    workers: int | None,
    rank: int | None,
    saved: str | None,
    decoded: bool,
) -> None:
    """Show the samples of any steps of a run: source, key, shard, index and byte offset.

    The samples of a step depend on the topology of the run, which comes from `elastic`, from --state, or from --ranks
    and --workers. If none of these is given, the command prints a warning.

    To find the samples, the command reads the headers of all earlier samples of the same slots (none with `epoch:
    pass`). If a source drops samples because of their content (`select`, `missing: skip`, `errors: skip`), it also
    decodes these samples. It has less to read if you pass a --state that was saved shortly before the step. Several
    steps are read in one pass, and each is printed when it is read.
    """
    log_skipped_errors()
    state = None if saved is None else read_state(saved)
    numbers = range(steps["first"], steps["last"] + 1)
    spec = choice.load()
    traces = trace_steps(
        spec, numbers, epoch=epoch, ranks=ranks, workers=workers, state=state, decoded=decoded
    )
    reports = (_report(trace, rank, _find_tokenizers(spec) if decoded else None) for trace in traces)
    if form == "json":
        found = [report.as_json() for report in reports]
        print_json(found[0] if len(numbers) == 1 else found)
        return
    for report in reports:
        if form == "jsonl":
            for line in report.lines():
                click.echo(json.dumps(line))
        else:
            show(*report.blocks())


Tokenizers = Mapping[str, Mapping[str, str]]
"""By source, the fields of token ids that `make` makes, and the files of their tokenizers."""


def _find_tokenizers(spec: Spec) -> Tokenizers:
    return {
        source.name: {
            field: recipe.file
            for name, recipe in source.make.items()
            if isinstance(recipe, (Chat, MaskTokens, Tokenize))
            for field in (name, *recipe.results)
            if field != getattr(recipe, "type_ids", None)
        }
        for source in spec.sources
    }


def _report(trace: Trace, rank: int | None, tokenizers: Tokenizers | None) -> StepReport:
    """Return the report of a step, of one rank or of all."""
    samples = [sample for sample in trace.samples if rank is None or sample.rank == rank]
    if not samples:
        raise click.UsageError(f"unknown rank {rank}; the number of ranks is {trace.samples[-1].rank + 1}")
    return StepReport(trace._replace(samples=samples), tokenizers)


@dataclass(frozen=True)
class _Unchanged(Transform):
    """Yields samples unchanged."""

    def build(self, budget: ErrorBudget, *_: Any, **__: Any) -> Process:
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
    tokens: int | None
    """The number of its tokens; None if it has none, or if they are only known once it is decoded."""
    sample: dict[str, Any]
    """The decoded sample, if requested; otherwise what its headers say."""
    companions: dict[str, list[str]]
    """The keys of its companions by field, unless it was decoded."""


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


def trace_steps(
    spec: Spec,
    steps: range,
    *,
    epoch: int | None = None,
    ranks: int | None = None,
    workers: int | None = None,
    state: Mapping[str, Any] | None = None,
    decoded: bool = False,
) -> Iterator[Trace]:
    """Find the samples of consecutive global batches, of all ranks, in one pass over the shards.

    Args:
        spec: the spec.
        steps: numbers of the global batches, from 0, in the run or in `epoch`.
        epoch: from 0.
        ranks: number of ranks. Defaults to the ranks of the state or of `elastic`, otherwise 1.
        workers: workers per rank. Defaults to the workers of the state or of `elastic`, otherwise the spec's.
        state: a state of the run, saved before or after the steps.
        decoded: whether to decode the samples.

    Raises:
        UsageError: the epoch does not have these steps, the spec has no epochs, or topology or state do not match it.
        WdspecError: shards cannot be listed or read.
    """
    stated = {"ranks": ranks, "workers": workers}
    is_known = spec.elastic is not None or state is not None
    assumed = () if is_known else tuple(name for name, number in stated.items() if number is None)
    run_ranks, spec = _canonical(spec, ranks, workers, state)
    shards = list_readable_shards(spec)
    shards = with_counts(spec, shards) if spec.is_pass else shards
    run = make_run(plan_shards(spec, shards, 1, 1), spec, shards, Seat())
    position = Position() if state is None else Position.from_state(state, run)
    timeline = position.timeline or run.plan.timeline
    first, last = (_number(timeline, step, epoch) for step in (steps[0], steps[-1]))
    skipped = position.skipped | spec.skipped_steps.within(position.step)
    if position.step > first:  # read from the start, with the shares that were set at run time
        position = Position(shares=position.shares)
    start = None if timeline.start is None else timeline.span(first)
    changes = Changes(run.segments(position.shares), position.past, start)
    scouting = dict(run.parts)
    for source in spec.collections:
        if not needs_samples(spec, source):
            each = run.parts[source.name]
            reading = _Unchanged(each.transform.fields, tags=each.transform.tags)
            open = each.open if run.plan.batching.windowed else each.open.headers
            scouting[source.name] = replace(each, open=open, transform=reading)
    reader = replace(run, parts=scouting).reader()
    try:
        reader.draw_by(changes)
        reader.restore(position.slot_states)
        seat = Seat(0, run_ranks)
        seat.places(run.plan.topology, run.plan.batching.shared)
        _read_up_to(first, len(steps), reader, run, position.step)
        if decoded:
            reader, scout = run.reader(), reader
            reader.draw_by(changes)
            reader.restore(scout.table())
            scout.close()
        find_offsets = _offset_finder(run, len(steps))
        for number in range(first, last + 1):
            placed = list(_place(reader.micro_batches(number), run_ranks, run, find_offsets))
            yield Trace(
                number,
                timeline.epoch(number),
                placed,
                number in skipped,
                run.plan.topology,
                assumed,
            )
    finally:
        reader.close()


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


def _number(timeline: Timeline, step: int, epoch: int | None) -> int:
    number = step
    if epoch is not None:
        if timeline.epoch_steps is None:
            raise UsageError("the spec has no `epoch`, so steps are counted from its start: omit --epoch")
        _, first, end = timeline.span(timeline.first_step(epoch))
        length = end - first
        if step >= length:
            raise UsageError(
                f"an epoch has {length:,} steps, from 0 to {length - 1:,}; step {step:,} is not one of them"
            )
        number += first
    if timeline.is_over(number):
        raise UsageError(
            f"`on_exhausted: stop` ends the run before step {timeline.stop:,}; step {number:,} is not in it"
        )
    return number


def _read_up_to(first: int, steps: int, reader: Reader, run: Run, start: int) -> None:
    """Read the batches before the first step, of the slots of all steps; a pass needs none of them."""
    if run.plan.finite is not None:
        return
    workers = run.plan.topology.workers
    before = [each for each in range(start, first) if (each - first) % workers < steps]
    with progress("steps before", len(before), drawn=len(before) > 100) as bar:
        for each in before:
            reader.batch(each)
            bar.advance()


def _place(
    parts: Sequence[Sequence[dict[str, Any]]], ranks: int, run: Run, find_offsets: FindOffsets
) -> Iterable[TracedSample]:
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
    places, fields, tokenizers = {}, token_fields(run.spec), _find_tokenizers(run.spec)
    for (source, url), of_shard in keys.items():
        shard = next(shard for shard in run.shards.lists[source] if shard.text == url)
        places[source, url] = find_offsets(source, shard, frozenset(of_shard))
    for seat, sample in zip(seats, samples, strict=True):
        source, url, key = (str(sample.get(name, "")) for name in ("__source__", "__url__", "__key__"))
        index, offset = places.get((source, url), {}).get(key, (None, None))
        is_padding = sample.get(MASK) is False
        counted = fields.get(source) or dict.fromkeys([*tokenizers.get(source, ())][:1])
        tokens = count_tokens(sample, counted)
        companions = {name: _keys(each) for name, each in sample.pop(COMPANIONS, {}).items()}
        yield TracedSample(*seat, source, key, url, index, offset, is_padding, tokens, sample, companions)


def _keys(companions: Any) -> list[str]:
    """Return the keys of companions."""
    found = companions if isinstance(companions, list) else [companions]
    return [str(each["__key__"]) for each in found if each is not None]


FindOffsets = Callable[[str, ShardUrl, "frozenset[str]"], dict[str, tuple[int, int]]]
"""(source, shard, keys) → index and offset of the samples with these keys, and perhaps of others."""


def _offset_finder(run: Run, steps: int) -> FindOffsets:
    """Return the function that finds samples in shards. For several steps, it reads a shard once and remembers it."""
    if steps == 1:
        return lambda source, shard, keys: _find_offsets(run.parts[source], shard, keys)
    whole = lru_cache(256)(lambda source, shard: _find_offsets(run.parts[source], shard))
    return lambda source, shard, keys: whole(source, shard)


def _find_offsets(
    parts: SourceParts, shard: ShardUrl, keys: frozenset[str] | None = None
) -> dict[str, tuple[int, int]]:
    """Index and offset of the samples with these keys; by default of all."""
    places: dict[str, tuple[int, int]] = {}
    # Damage was reported when the batch was read.
    with (
        suppress(ShardError),
        closing(parts.open.headers(Piece(shard), on_error=lambda error: None)) as headers,
    ):
        offset = 0
        for sample in headers:
            if keys is None or sample["__key__"] in keys:
                places.setdefault(sample["__key__"], (headers.next_index - 1, offset))
                if keys is not None and len(places) == len(keys):
                    break
            offset = headers.next_offset
    return places


@dataclass(frozen=True)
class StepReport:
    """The samples of a step."""

    trace: Trace
    tokenizers: Tokenizers | None
    """For token ids as text; None if the fields of samples are not shown."""

    def blocks(self) -> Iterator[Block]:
        trace = self.trace
        rows: list[Row] = [
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
        headings: Row = ("rank>", "#>", "source", "key", "shard", "index>", "byte>")
        if any(each.tokens is not None for each in trace.samples):
            headings = (*headings, "tokens>")
            counts = (each.tokens for each in trace.samples)
            rows = [
                (*row, "" if count is None else f"{count:,}") for row, count in zip(rows, counts, strict=True)
            ]
        if any(each.companions for each in trace.samples):
            headings = (*headings, "companions")
            rows = [
                (*row, ", ".join(f"{name} {key}" for name, keys in each.companions.items() for key in keys))
                for row, each in zip(rows, trace.samples, strict=True)
            ]
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
        if self.tokenizers is not None:
            fields = [
                (str(each.rank), str(each.place), *field.row)
                for each in trace.samples
                for field in _fields(each, self.tokenizers)
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
                **({} if each.tokens is None else {"tokens": each.tokens}),
                **({"companions": each.companions} if each.companions else {}),
                **(
                    {}
                    if self.tokenizers is None
                    else {"fields": [field.as_json() for field in _fields(each, self.tokenizers)]}
                ),
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

    def lines(self) -> Iterator[dict[str, Any]]:
        """What JSON Lines have of each sample."""
        whole = self.as_json()
        for sample in whole["samples"]:
            yield {**{key: whole[key] for key in ("step", "epoch", "skipped")}, **sample}


def _fields(sample: TracedSample, tokenizers: Tokenizers) -> list[FieldValue]:
    """Describe the fields of a sample, with the start of the text of token ids in place of their range."""
    values = {name: value for name, value in sample.sample.items() if not name.startswith("__")}
    files = tokenizers.get(sample.source, {})
    texts = {name: _text_of(values[name], file) for name, file in files.items() if name in values}
    return [
        each
        if (text := texts.get(each.name)) is None
        else each._replace(preview=describe_value(text).preview)
        for each in describe_fields(values.items())
    ]


def _text_of(ids: Any, file: str) -> str | None:
    """Return the start of the text of some token ids, without labels below 0; None for other values."""
    values = ids.tolist() if hasattr(ids, "tolist") else ids
    if not isinstance(values, list) or not values or any(type(each) is not int for each in values):
        return None
    known = [each for each in values if each >= 0][:_MOST_TOKENS]
    try:
        text: str = load_tokenizer(file).decode(known, skip_special_tokens=False)
    except OverflowError:  # `map` has made something else of them
        return None
    return text


def _text(sample: TracedSample, number: int | None) -> str:
    if number is not None:
        return f"{number:,}"
    return "gone" if sample.url else ""
