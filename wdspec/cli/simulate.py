"""`wdspec simulate`: what a run draws, counted by drawing it without reading data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from wdspec.advice.explanation import PER_UNENDING, changes_in_words, explain_spec
from wdspec.advice.traffic import Traffic, find_traffic
from wdspec.advice.words import draw_in_words
from wdspec.cli import output, simulate_facts
from wdspec.cli.output import Block, Row, Table, Warning, show_report, table_of
from wdspec.cli.spec_options import SpecChoice, choosing, topology_options

MOST_COLUMNS = 6
"""Numbers of workers that get a column."""
Columns = dict[str, Callable[[simulate_facts.SimulatedSource], str]]
"""Heading → the cell of a source."""


@click.command()
@choosing
@topology_options
@click.option("--epochs", type=click.IntRange(min=1), help="Number of epochs to draw (default: 1).")
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    help=f"Number of global batches to draw (default: an epoch, up to {simulate_facts.MOST // 10**6} million samples; "
    f"{simulate_facts.ENDLESS:,} batches of an endless spec).",
)
@click.option(
    "--probe",
    is_flag=True,
    help="To estimate sizes, read the headers of the first shard of each local source.",
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
    """Simulate a run: shares per batch, epoch and slot, passes, coverage, open shards, memory, legal topologies.

    Samples are drawn as in training, but no data is read: sizes come from `samples:` in the spec, or from --probe.
    With a file of `wdspec stats` or a lock, it also says how many bytes and requests this takes.
    Globs, directories and @files are listed, which runs the command of an `@pipe:` list; WDS_SECURE=1 forbids that.
    """
    if epochs is not None and batches is not None:
        raise click.UsageError("--epochs and --batches both set the length; pass only one of them")
    explanation = explain_spec(choice.load(), ranks, workers, 0, probe=probe)
    if epochs is not None and explanation.plan.timeline.epoch_steps is None:
        raise click.UsageError("the spec is endless (no `epoch`), so --epochs has no meaning; pass --batches")
    result = simulate_facts.simulation_result(explanation, epochs, batches)
    show_report(SimulateReport(result, find_traffic(explanation)), form)


@dataclass(frozen=True)
class SimulateReport:
    """What a run draws."""

    result: simulate_facts.SimulationResult
    traffic: Traffic | None
    """What an epoch reads, if the sizes of shards are known."""

    def blocks(self) -> Iterator[Block]:
        result, spec = self.result, self.result.explanation.spec
        title = ", ".join(filter(None, (spec.name or spec.file or "spec", spec.split)))
        yield Table((), [*_summary(result), *self._reads()], title)
        if not result.explanation.plan.timeline.is_pass:
            yield _batches(result)
            yield _totals(result)
            if result.simulation.epochs > 1:
                yield _epochs(result)
            yield _slots(result)
        if any(each.coverage for each in result.sources):
            yield _coverage(result)
        yield _runs(result)
        yield from map(Warning, result.warnings())

    def as_json(self) -> dict[str, Any]:
        result, explanation, simulation = self.result, self.result.explanation, self.result.simulation
        plan, run = explanation.plan, explanation.run
        epoch = {"batches": plan.timeline.epoch_steps, "samples": plan.epoch_samples}
        opened, different = result.open_shards
        return {
            **explanation.heading(unit=plan.unit),
            "run": {"ranks": run.ranks, "workers": run.workers, "slots_per_worker": run.slots_per_worker},
            "batch": {
                "batched": plan.batching.batched,
                "per_slot": plan.batching.per_slot,
                "per_rank": plan.batching.global_size // run.ranks,
                "global": plan.batching.global_size,
            },
            "epoch": None if plan.timeline.epoch_steps is None else epoch,
            "drawn": {
                name: getattr(simulation, name) for name in ("batches", "samples", "padding", "epochs")
            },
            "sources": result.sources,
            "held_per_worker": {"samples": result.held_samples, "bytes": result.held_bytes},
            "open_per_worker": {
                "shards": opened,
                "different": different,
                "buffer_bytes": explanation.buffer_bytes,
            },
            "legal": {"ranks": result.legal_ranks, "workers": result.legal_workers},
            "traffic": None if self.traffic is None else self.traffic.as_json(self._drawn_epochs),
            "warnings": list(result.warnings()),
        }

    @property
    def _drawn_epochs(self) -> float:
        """How much was drawn, in what traffic is counted per."""
        result, per = self.result, "" if self.traffic is None else self.traffic.per
        if per == "epoch" and result.epoch:
            return result.simulation.batches / result.epoch
        return result.simulation.samples / (result.explanation.plan.epoch_samples or PER_UNENDING)

    def _reads(self) -> Iterator[Row]:
        """What was drawn reads of which stores."""
        traffic, epochs = self.traffic, self._drawn_epochs
        if traffic is None or not (traffic.sources or traffic.unknown):
            return
        cached, whole = traffic.cached_part(epochs), output.size(traffic.bytes(epochs))
        note = f"; {cached:.1%} of the {whole} that are read come from the cache" if cached else ""
        yield "reads", traffic.describe(epochs, "", note)


def _summary(result: simulate_facts.SimulationResult) -> Iterator[Row]:
    explanation, simulation = result.explanation, result.simulation
    plan, run = explanation.plan, explanation.run
    yield "topology", run.in_words
    yield "run", run.readers_in_words
    yield "draw", f"{draw_in_words(plan)}, seed {plan.seed}"
    if len(plan.schedule) > 1:
        at = changes_in_words(explanation)
        yield "schedule", f"shares change at {at}; expected numbers are for the whole simulation"
    many = "windows" if plan.batching.windowed else "batches" if plan.batching.batched else "steps"
    of = output.pluralize(simulation.batches, {"batches": "batch"}.get(many, many[:-1]), many)
    samples = output.pluralize(simulation.samples, "sample")
    drawn = f"{of} x {simulation.global_size:,} = {samples}"
    if simulation.padding:
        drawn += f", {simulation.padding:,} of them padding"
    yield "drawn", f"{drawn} ({_extent(result)})"
    if plan.timeline.is_pass:
        slots = [sum(own) for own in zip(*(each.by_slot for each in result.leaves), strict=True)]
        yield "slots", f"{output.number_range(min(slots), max(slots))} samples each"
    held = f"{output.number(round(result.held_samples))} samples held for shuffling in a worker"
    known = f", about {output.size(result.held_bytes)}" if result.held_bytes is not None else ""
    buffers = f"{output.size(explanation.buffer_bytes)} in the buffers of its open shards"
    yield "memory", (f"{held}{known}, and " if result.held_samples else "") + buffers
    opened, distinct = result.open_shards
    different = f" ({distinct:,} different files)" if distinct < opened else ""
    yield "open", f"{output.pluralize(opened, 'shard')} at a time in a worker{different}"


def _extent(result: simulate_facts.SimulationResult) -> str:
    length, batches = result.epoch, result.simulation.batches
    if length is None:
        return "endless" if result.explanation.plan.timeline.epoch_steps is None else "a part of an epoch"
    if batches % length:
        return f"{batches / length:.3g} of an epoch" if batches < length else f"{batches / length:.3g} epochs"
    return output.pluralize(batches // length, "epoch")


def _by_source(result: simulate_facts.SimulationResult, columns: Columns, title: str) -> Table:
    source: Columns = {"source": lambda each: each.explanation.indented}
    return table_of(result.sources, source | columns, title).of_largest(
        [0 if each.explanation.nested else each.share for each in result.sources], part="share>"
    )


def _batches(result: simulate_facts.SimulationResult) -> Table:
    columns: Columns = {
        "share>": lambda each: output.percent(each.share),
        "expected>": lambda each: output.number(each.per_batch.expected),
        "min>": lambda each: output.number(each.per_batch.min),
        "mean>": lambda each: output.number(each.per_batch.mean),
        "max>": lambda each: output.number(each.per_batch.max),
    }
    batching = result.explanation.plan.batching
    step = "global batch" if batching.batched else "global step"
    if batching.windowed:
        step = "window of each canonical rank, of all ranks together"
    return _by_source(result, columns, f"samples in a {step}")


def _totals(result: simulate_facts.SimulationResult) -> Table:
    columns: Columns = {
        "expected>": lambda each: output.number(each.total.expected),
        "drawn>": lambda each: output.number(each.total.drawn),
        "off>": lambda each: f"{round(each.total.drawn - each.total.expected, 1) + 0.0:+.1f}",
        "max off>": lambda each: f"{each.total.furthest_off:.1f}",
    }
    return _by_source(result, columns, "samples across all ranks")


def _epochs(result: simulate_facts.SimulationResult) -> Table:
    plan, simulation = result.explanation.plan, result.simulation
    length = result.epoch or simulation.batches
    complete = simulation.batches // length
    samples = plan.epoch_samples or length * simulation.global_size
    samples = samples if plan.finite is None else min(samples, plan.finite.samples)
    columns: Columns = {
        "expected>": lambda each: output.number(each.share * samples),
        "min>": lambda each: output.number(min(each.by_epoch[:complete])),
        "mean>": lambda each: output.number(sum(each.by_epoch[:complete]) / complete),
        "max>": lambda each: output.number(max(each.by_epoch[:complete])),
    }
    return _by_source(result, columns, "samples in an epoch")


def _slots(result: simulate_facts.SimulationResult) -> Table:
    slots = result.explanation.plan.topology.slots

    def cell(each: simulate_facts.SimulatedSource, ends: simulate_facts.Ends | None, first: int) -> str:
        if ends is None:
            return "?" if each.explanation.samples is None else ""
        return output.number_range(ends.min + first, ends.max + first)

    columns: Columns = {
        "expected>": lambda each: output.number(each.per_slot.expected),
        "min>": lambda each: output.number(each.per_slot.min),
        "max>": lambda each: output.number(each.per_slot.max),
        "shards>": lambda each: cell(each, each.per_slot.shards, 0),
        "in pass>": lambda each: cell(each, each.per_slot.passes_behind, 1),
    }
    which = "the slot" if slots == 1 else f"each of the {slots:,} slots"
    return _by_source(result, columns, f"samples of {which}")


def _coverage(result: simulate_facts.SimulationResult) -> Table:
    def known(
        cell: Callable[[simulate_facts.Covered], str],
    ) -> Callable[[simulate_facts.SimulatedSource], str]:
        return lambda each: "?" if each.coverage is None else cell(each.coverage)

    columns: Columns = {
        "samples>": lambda each: each.explanation.samples_in_words,
        "passes>": known(lambda found: f"{found.passes:.3g}"),
        "epoch 1>": known(lambda found: _fraction(found.first_seen)),
        "seen>": known(lambda found: _fraction(found.seen)),
        "repeats>": known(lambda found: output.number(round(found.repeats))),
        "shards>": lambda each: known(
            lambda found: f"{round(found.shards_touched):,} of {each.explanation.shards or 0:,}"
        )(each),
    }
    if result.simulation.epochs == 1:
        del columns["epoch 1>"]
    return _by_source(result, columns, "coverage of each source")


def _fraction(fraction: float) -> str:
    """Format a fraction, rounded down, so that only all of it is 100%."""
    return f"{int(fraction * 1000 + 1e-6) / 10:.1f}%"


def _runs(result: simulate_facts.SimulationResult) -> Table:
    plan, all_workers = result.explanation.plan, result.legal_workers
    shown = list(all_workers)
    if len(shown) > MOST_COLUMNS:
        shown[MOST_COLUMNS - 1 :] = shown[-1:]
    rows: list[Row] = []
    some = [ranks for ranks in result.legal_ranks if ranks <= 2 * plan.topology.ranks]
    for ranks in some:
        own = plan.topology.most_read(ranks, plan.batching.shared)
        slots = (output.number(own * plan.topology.workers // workers) for workers in shown)
        rows.append((output.number(ranks), output.number(plan.batching.global_size // ranks), *slots))
    others = f" (or {', '.join(map(str, all_workers))})" if shown != all_workers else ""
    more = f"; up to {result.legal_ranks[-1]:,} ranks" if len(some) < len(result.legal_ranks) else ""
    per = "window" if plan.batching.windowed else "step"
    title = f"legal runs: samples per rank and {per}, and slots per worker by number of workers{others}{more}"
    columns = [f"{workers}>" for workers in shown]
    columns[0] = f"0, {columns[0]}"
    return Table(("ranks>", "samples>", *columns), rows, title)
