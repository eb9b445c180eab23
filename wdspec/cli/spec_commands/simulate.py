"""`wdspec simulate`: what a run draws, counted by drawing it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from wdspec.cli.explain.survey_spec import meaning_of
from wdspec.cli.simulate.json_report import as_json
from wdspec.cli.simulate.results import ENDLESS, MOST, Outcome, SourceOutcome, hints_of, outcome_of
from wdspec.cli.support.json_output import print_json
from wdspec.cli.support.spec_options import SpecChoice, choosing, topology_options
from wdspec.cli.support.tables import Part, Row, Table, Warning, counted, listed, number, percent, show, size

SUMMARY = "Show what a run draws: shares, passes, coverage, legal runs."
MOST_COLUMNS = 6
"""Numbers of workers that have a column of their own."""


@click.command()
@choosing
@topology_options
@click.option("--epochs", type=click.IntRange(min=1), help="Epochs to draw (default: 1).")
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    help=f"Global batches to draw (default: an epoch of at most {MOST // 10**6} million samples; "
    f"{ENDLESS:,} batches of an endless spec).",
)
@click.option(
    "--probe", is_flag=True, help="Read the headers of the first shard of each local source, for sizes."
)
def simulate(
    choice: SpecChoice,
    form: str,
    ranks: int | None,
    workers: int | None,
    epochs: int | None,
    batches: int | None,
    probe: bool,
) -> None:
    """Show what a run draws: shares per batch, epoch and slot, passes, coverage, open shards, memory, legal runs.

    Draws as training would, but reads no data: sizes come from `samples:` in the spec, or from --probe.
    """
    if epochs is not None and batches is not None:
        raise click.UsageError("--epochs and --batches say the same thing; give one")
    meaning = meaning_of(choice.load(), ranks, workers, 0, probe=probe)
    if epochs is not None and meaning.plan.epoch_batches is None:
        raise click.UsageError("the spec is endless (no `epoch`), so --epochs means nothing; give --batches")
    outcome = outcome_of(meaning, epochs, batches)
    if form == "json":
        print_json(as_json(outcome))
    else:
        show(*parts_of(outcome))


def parts_of(outcome: Outcome) -> Iterator[Part]:
    """The report."""
    title = ", ".join(filter(None, (outcome.spec.name or outcome.spec.file or "spec", outcome.spec.split)))
    yield Table((), list(_summary(outcome)), title=title)
    if outcome.plan.finite is None:
        yield _batches(outcome)
        yield _totals(outcome)
        if outcome.simulation.epochs > 1:
            yield _epochs(outcome)
        yield _slots(outcome)
    if any(each.coverage for each in outcome.sources):
        yield _coverage(outcome)
    yield _runs(outcome)
    yield from map(Warning, hints_of(outcome))


def _summary(outcome: Outcome) -> Iterator[Row]:
    plan, run, simulation = outcome.plan, outcome.run, outcome.simulation
    topology = plan.topology
    yield (
        "topology",
        f"{counted(topology.ranks, 'rank')} x {counted(topology.workers, 'worker')} = "
        f"{counted(topology.slots, 'slot')} ({run.why})",
    )
    yield (
        "run",
        f"{counted(run.ranks, 'rank')} x {counted(run.workers, 'worker')}, "
        f"{counted(run.slots_per_worker, 'slot')} a worker",
    )
    yield "draw", plan.draw + (", one source a batch" if plan.unit == "batch" else "") + f", seed {plan.seed}"
    if len(plan.schedule) > 1:
        starts = [f"{segment.start:,}" for segment in plan.schedule[1:]]
        yield (
            "schedule",
            f"shares change at batch {listed(starts)}; expected numbers are those of all that is drawn",
        )
    of = "batches" if plan.batching.batched else "steps"
    drawn = (
        f"{simulation.batches:,} {of} x {simulation.global_size:,} = {counted(simulation.samples, 'sample')}"
    )
    if simulation.padding:
        drawn += f", {simulation.padding:,} of them padding"
    yield "drawn", f"{drawn} ({_extent(outcome)})"
    if plan.finite is not None:
        slots = [
            sum(own)
            for own in zip(*(each.by_slot for each in outcome.sources if not each.nested), strict=True)
        ]
        yield "slots", f"{_range(min(slots), max(slots))} samples each"
    held = f"{number(round(outcome.window_samples))} samples in the windows of a worker"
    known = f", about {size(outcome.window_bytes)}" if outcome.window_bytes is not None else ""
    buffers = f"{size(outcome.buffer_bytes)} in the buffers of its open shards"
    yield "memory", (f"{held}{known}, and " if outcome.window_samples else "") + buffers
    opened, distinct = outcome.open_shards
    yield (
        "open",
        f"{counted(opened, 'shard')} at a time in a worker"
        + (f", of them {distinct:,} different files" if distinct < opened else ""),
    )


def _extent(outcome: Outcome) -> str:
    length, batches = outcome.plan.epoch_batches, outcome.simulation.batches
    if length is None:
        return "endless"
    if batches % length:
        return f"{batches / length:.3g} of an epoch" if batches < length else f"{batches / length:.3g} epochs"
    return counted(batches // length, "epoch")


def _batches(outcome: Outcome) -> Table:
    rows: list[Row] = [
        (
            _name(each),
            percent(each.share),
            number(each.share * outcome.simulation.global_size),
            number(each.batch_least),
            number(each.drawn / outcome.simulation.batches),
            number(each.batch_most),
        )
        for each in outcome.sources
    ]
    step = "global batch" if outcome.plan.batching.batched else "global step"
    return Table(
        ("source", "share>", "expected>", "min>", "mean>", "max>"), rows, title=f"samples in a {step}"
    )


def _totals(outcome: Outcome) -> Table:
    rows: list[Row] = [
        (
            _name(each),
            number(each.expected),
            number(each.drawn),
            f"{round(each.drawn - each.expected, 1) + 0.0:+.1f}",
            f"{each.furthest:.1f}",
        )
        for each in outcome.sources
    ]
    headings = ("source", "expected>", "drawn>", "off>", "furthest off>")
    return Table(headings, rows, title="samples in all ranks together")


def _epochs(outcome: Outcome) -> Table:
    plan, simulation = outcome.plan, outcome.simulation
    whole = simulation.batches // (plan.epoch_batches or simulation.batches)
    rows: list[Row] = []
    for each in outcome.sources:
        counts = each.by_epoch[:whole]
        rows.append(
            (
                _name(each),
                number(each.share * (plan.epoch_samples or 0)),
                number(min(counts)),
                number(sum(counts) / whole),
                number(max(counts)),
            )
        )
    return Table(("source", "expected>", "min>", "mean>", "max>"), rows, title="samples in an epoch")


def _slots(outcome: Outcome) -> Table:
    slots = outcome.plan.topology.slots
    rows: list[Row] = []
    for each in outcome.sources:
        turns, passes = each.slot_turns, each.slot_passes
        unknown = "?" if each.samples is None else ""
        rows.append(
            (
                _name(each),
                number(each.expected / slots),
                number(min(each.by_slot)),
                number(max(each.by_slot)),
                unknown if turns is None else _range(*turns),
                unknown if passes is None else _range(passes[0] + 1, passes[1] + 1),
            )
        )
    headings = ("source", "expected>", "min>", "max>", "shards>", "in pass>")
    return Table(
        headings, rows, title=f"samples of {'the slot' if slots == 1 else f'each of the {slots:,} slots'}"
    )


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _coverage(outcome: Outcome) -> Table:
    several = outcome.simulation.epochs > 1
    rows: list[Row] = []
    for each in outcome.sources:
        found = each.coverage
        row = [_name(each), _samples(each)]
        if found is None:
            rows.append((*row, *["?"] * (4 + several)))
            continue
        row += [f"{found.passes:.3g}"]
        row += [_fraction(found.first_seen)] if several else []
        row += [_fraction(found.seen), number(round(found.repeats))]
        row += [f"{round(found.shards_touched):,} of {each.shards or 0:,}"]
        rows.append(tuple(row))
    headings = (
        "source",
        "samples>",
        "passes>",
        *(("epoch 1>",) if several else ()),
        "seen>",
        "repeats>",
        "shards>",
    )
    return Table(headings, rows, title="how much of each source that is")


def _samples(source: SourceOutcome) -> str:
    if source.samples is None:
        return "?"
    return f"{'~' if source.estimated else ''}{round(source.samples):,}"


def _fraction(fraction: float) -> str:
    """Rounded down, so that what is not all is not called 100 %."""
    return f"{int(fraction * 1000 + 1e-6) / 10:.1f} %"


def _runs(outcome: Outcome) -> Table:
    topology, all_workers = outcome.plan.topology, outcome.legal_workers
    shown = (
        all_workers
        if len(all_workers) <= MOST_COLUMNS
        else [*all_workers[: MOST_COLUMNS - 1], all_workers[-1]]
    )
    rows: list[Row] = []
    for ranks in outcome.legal_ranks:
        own = topology.ranks // ranks
        rows.append(
            (
                number(ranks),
                number(own * outcome.plan.batching.per_slot),
                *(number(own * topology.workers // workers) for workers in shown),
            )
        )
    others = f" (or {', '.join(map(str, all_workers))})" if shown != all_workers else ""
    title = f"legal runs: samples a rank and step, and slots a worker with so many workers{others}"
    columns = [f"{workers}>" for workers in shown]
    columns[0] = f"0, {columns[0]}"
    return Table(("ranks>", "samples>", *columns), rows, title=title)


def _name(source: SourceOutcome) -> str:
    return "  " * len(source.path) + source.name
