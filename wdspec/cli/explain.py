"""`wdspec explain`: what a spec means on a topology."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from wdspec.advice.explanation import (
    PER_UNENDING,
    TURNS,
    ExplainedSource,
    Explanation,
    ScheduledShares,
    changes_in_words,
    explain_spec,
    start_in_words,
)
from wdspec.advice.measure import KeptSamples
from wdspec.advice.object_requests import ObjectRequests, find_object_requests
from wdspec.advice.traffic import Traffic, find_traffic
from wdspec.advice.words import calls_in_words, draw_in_words
from wdspec.base.handles import FEW, MOST
from wdspec.base.redaction import redacted_urls
from wdspec.base.user_code import file_of_module
from wdspec.cli import output
from wdspec.cli.output import Block, Row, Table, Warning, one_line, show_report, table_of
from wdspec.cli.spec_options import SpecChoice, choosing, topology_options
from wdspec.planning.passes import WindowedPass
from wdspec.planning.shares import Exhaustion
from wdspec.spec.language.class_files import add_aliases, numbers_of
from wdspec.spec.language.making import Label
from wdspec.spec.spec import Spec
from wdspec.stores.http_requests import CONNECTIONS
from wdspec.stores.read_ahead import least_piece

_MOST_STEPS = 8
"""Maximum number of steps of a schedule to show."""


@click.command()
@choosing
@topology_options
@click.option("--slots", type=click.IntRange(min=0), help="Number of slots to show, with their first shards.")
def explain(choice: SpecChoice, form: str, ranks: int | None, workers: int | None, slots: int | None) -> int:
    """Explain a spec: shares, shards, samples and passes per epoch, batches, and which worker reads what.

    Globs, directories and @files are listed. To estimate (~) the number of samples, the headers of the first shard of
    each local source are read, and some samples if expressions or steps may not fit them. The command checks that local
    shards exist, and that the modules of user functions define them. It opens nothing else, and runs none of your code,
    except the command of an `@pipe:` list, which WDS_SECURE=1 forbids.

    Exit code: 1 if local shards are missing, or if modules do not define the user functions of the spec.
    """
    explanation = explain_spec(choice.load(), ranks, workers, slots)
    show_report(ExplainReport(explanation), form)
    return 1 if explanation.lacks_shards or explanation.lacks_functions else 0


@dataclass(frozen=True)
class ExplainReport:
    """What a spec means."""

    explanation: Explanation

    def blocks(self) -> Iterator[Block]:
        spec = self.explanation.spec
        chosen = [f"split {spec.split}"] if spec.split else []
        chosen += [f"environment {spec.environment}"] if spec.environment else []
        title = ", ".join([spec.name or spec.file or "spec", *chosen])
        yield Table((), list(_summary(self.explanation)), title)
        if len(self.explanation.schedule) > 1:
            yield _schedule_table(self.explanation)
        yield _sources(self.explanation)
        yield _fields(self.explanation)
        if (classes := _classes(spec)).rows:
            yield classes
        if self.explanation.plan.companions:
            yield _companions(self.explanation)
        if self.explanation.slots:
            yield _slots(self.explanation)
        yield from (Warning(one_line(each)) for each in self.explanation.advice)

    def as_json(self) -> dict[str, Any]:
        explanation, plan, run = self.explanation, self.explanation.plan, self.explanation.run
        size = plan.batching.global_size
        steps = None if plan.timeline.epoch_steps is None else plan.timeline.length(0)
        epoch = {"batches_per_rank": steps, "samples": plan.epoch_samples}
        tokens = explanation.step_tokens
        of_epoch = None if tokens is None or steps is None else round(tokens * steps)
        return {
            **explanation.heading(),
            "run": {"ranks": run.ranks, "workers": run.workers},
            "batch": {"per_rank": size // run.ranks, "global": size} if plan.batching.batched else None,
            "windows": None if explanation.windows is None else explanation.windows._asdict(),
            "epoch": None if steps is None else epoch,
            "tokens": None if tokens is None else {"per_step": round(tokens), "per_epoch": of_epoch},
            "skip": [[first, stop - 1] for first, stop in explanation.spec.skipped_steps.ranges],
            "schedule": explanation.schedule,
            "expected_of": round(explanation.expected_of),
            "sources": explanation.sources,
            **({"companions": _companions_as_json(explanation)} if plan.companions else {}),
            "slots": explanation.slots,
            "held_bytes_per_worker": explanation.held_bytes,
            "buffer_bytes_per_worker": explanation.buffer_bytes,
            "traffic": find_traffic(explanation),
            **({"objects": objects} if (objects := find_object_requests(explanation)) else {}),
            "warnings": list(map(one_line, explanation.advice)),
        }


def _summary(explanation: Explanation) -> Iterator[Row]:
    spec, plan, run = explanation.spec, explanation.plan, explanation.run
    if spec.file and spec.name:
        yield "file", spec.file
    yield "seed", str(plan.seed)
    yield "topology", run.in_words
    if (run.ranks, run.workers) != (plan.topology.ranks, plan.topology.workers):
        yield "run", run.readers_in_words
    yield "batch", _describe_batch(explanation)
    yield "epoch", _describe_epoch(explanation)
    if skipped := spec.skipped_steps:
        yield "skip", f"steps {skipped}: {output.pluralize(skipped.count, 'global batch', 'global batches')}"
    if (tokens := explanation.step_tokens) is not None:
        steps = plan.timeline.length(0) if plan.timeline.epoch_steps else None
        of_epoch = "" if steps is None else f", {output.number(round(tokens * steps))} an epoch"
        yield "tokens", f"about {output.number(round(tokens))} a step across all ranks{of_epoch}"
    in_samples = ", by shares of samples (not of tokens: `shares_in: tokens`)"
    yield "draw", draw_in_words(plan) + in_samples * _counts_samples_in_tokens(spec)
    if plan.schedule:
        yield "schedule", _describe_schedule(explanation)
    if spec.map:
        yield "map", calls_in_words(spec.map)
    if spec.map_batches is not None:
        yield (
            "map_batches",
            f"{spec.map_batches.call}, {spec.map_batches.batch:,} samples at a time, by `process`",
        )
    if spec.stage is not None:
        yield "stage", f"{spec.stage.name}, restarted every {spec.stage.every:,} samples of a slot"
    yield from _code(spec)
    if spec.fields is not None:
        yield "fields", " ".join(spec.fields)
    if spec.to_tuple is not None:
        yield "to_tuple", " ".join(spec.to_tuple)
    for gone in plan.exhausted:
        yield "max_passes", _describe_end(explanation, gone)
    for each in explanation.active:
        if each.selected is not None:
            part = f"{output.percent(each.selected.fraction)} of `{each.name}`"
            yield "selected", f"{part}, {_describe_count(each.selected)}"
    if spec.limit is not None:
        yield "limit", f"{spec.limit:,} samples"
    yield "memory", _describe_memory(explanation)
    if (traffic := find_traffic(explanation)) is not None and (traffic.sources or traffic.unknown):
        yield "reads", _describe_traffic(traffic)
    if objects := find_object_requests(explanation):
        yield "objects", _describe_objects(objects)


def _describe_end(explanation: Explanation, gone: Exhaustion) -> str:
    """When a source has been read `max_passes` times, and what that means for its samples."""
    then = {"error": "an error", "drop": "other sources only", "stop": "the end"}[gone.then]
    source = next(each for each in explanation.spec.sources if each.name == gone.source)
    passes, samples, slots = source.max_passes or 0, source.samples or 0, explanation.plan.topology.slots
    said = f"`{gone.source}` is exhausted at {start_in_words(explanation, gone.start)}: {then}; "
    said += f"`max_passes: {passes:g}` of {samples:,} samples are {passes * samples:,.0f}"
    return said + f" of all {slots} slots together, so some may come more often than others" * (slots > 1)


def _describe_objects(objects: Sequence[ObjectRequests]) -> str:
    """How many requests the objects of samples take, and of which stores."""
    whole = sum(each.per_sample for each in objects)
    parts = ", ".join(
        f"{'at least ' if each.is_least else ''}{each.per_sample:.3g} to {each.store}"
        + (f" ({each.of_headers:.3g} for the sizes of images, before batches)" if each.of_headers else "")
        for each in objects
    )
    each_second = output.number(round(1000 * whole))
    least = "at least " if any(each.is_least for each in objects) else ""
    unknown = "; a list of references is one for each item, which `wdspec stats` counts" if least else ""
    return (
        f"requests per sample: {parts}; {least}{each_second} per second at 1,000 samples per second{unknown}"
    )


def _describe_traffic(traffic: Traffic) -> str:
    """What an epoch reads from which stores, and what later epochs do."""
    later = traffic.fetched_bytes(2) - traffic.fetched_bytes(1)
    is_less = later < traffic.fetched_bytes(1)
    note = f"; {output.size(later)} in the second, which reads copies of the cache" if is_less else ""
    return traffic.describe(1, f" per {traffic.per}", note)


def _describe_batch(explanation: Explanation) -> str:
    batching, ranks = explanation.plan.batching, explanation.run.ranks
    if batching.windowed:
        return _describe_windows(explanation)
    if not batching.batched:
        return "none: yields single samples"
    per_rank = f"{output.pluralize(batching.global_size // ranks, 'sample')} per rank"
    return per_rank + (f", {batching.global_size:,} across all ranks" if ranks > 1 else "")


def _describe_epoch(explanation: Explanation) -> str:
    plan, run = explanation.plan, explanation.run
    if plan.timeline.epoch_steps is None:
        return "endless (no `epoch`)"
    length = plan.timeline.length(0)
    if plan.batching.batched:
        steps = output.pluralize(length, "batch", "batches")
    else:
        steps = output.pluralize(length * run.canonical_ranks, "sample")
    across = ", across all ranks" if run.ranks > 1 else ""
    read, about = round(explanation.epoch_samples or 0), "about " * explanation.is_epoch_estimated
    samples = f" = {about}{output.pluralize(read, 'sample')}{across}" if read else ""
    if isinstance(plan.finite, WindowedPass):
        slots = range(plan.topology.slots)
        empty = max(0, length * plan.topology.ranks - sum(map(plan.finite.batches_of, slots)))
        if empty:
            samples += f", and {output.pluralize(empty, 'empty batch', 'empty batches')} (`__mask__`)"
    elif (empty := (plan.epoch_samples or read) - read) > 0:
        samples += f", and {about}{output.pluralize(empty, 'empty place')} (`__mask__`)"
    first = " in the first epoch, other numbers in later ones" if plan.timeline.start is not None else ""
    return f"{steps} per {'canonical ' if plan.batching.windowed else ''}rank{samples}{first}"


def _describe_memory(explanation: Explanation) -> str:
    memory = f"{output.size(explanation.buffer_bytes)} in the buffers of its open shards"
    if explanation.held_bytes:
        held = output.size(explanation.held_bytes)
        memory = f"about {held} to hold and order samples for shuffling in a worker, {memory}"
    if (shards := explanation.shards_in_turn) > FEW + MOST:
        memory += (
            f" ({shards:,} are read in turn; of local files and copies, at most about {FEW + MOST} are open)"
        )
    if unknown := explanation.unmeasured:
        memory += f", excluding the samples of {output.pluralize(unknown, 'source')} of unknown size"
    if remote := explanation.shards_in_stores:
        piece = output.size(least_piece(remote))
        memory += (
            f"; stores are asked for {piece} or more at a time, over about {CONNECTIONS} connections per host"
        )
    return memory


def _describe_count(selected: KeptSamples) -> str:
    """Describe how the fraction was found."""
    looked_at = f"{selected.looked_at:,} samples in {output.pluralize(selected.shards, 'shard')}"
    by = {"sample": "estimated from", "stats": "counted by `stats` over all", "count": "counted over all"}
    stale = ", as `stats` has not counted this selection: run `wdspec stats SPEC`" * selected.is_to_measure
    return f"{by[selected.by]} {looked_at}{stale}"


def _describe_windows(explanation: Explanation) -> str:
    """How batches by cost come out in the windows that were read."""
    found, samples = explanation.windows, f"{explanation.plan.batching.per_slot:,}"
    if found is None:
        return f"planned from windows of {samples} samples of a slot"
    least, mean, most = found.sizes
    facts = [
        f"{found.batches:,.1f} from a window of {samples} samples",
        f"{least:,} to {most:,} samples (mean {mean:,.1f})",
    ]
    if found.fill is not None:
        batch = explanation.spec.batch
        limit = "`max_cost`" if batch is None else batch.limit_name
        is_packed = batch is not None and batch.pack is not None
        facts.append(f"rows {found.fill:.1%} full" if is_packed else f"{found.fill:.1%} of {limit}")
    facts.append(f"{found.useful:.1%} useful")
    if found.balance is not None:
        facts.append(f"weights of ranks {found.balance:.2f} of the largest")
    return f"{', '.join(facts)}; in {output.pluralize(found.windows, 'window')}"


def _counts_samples_in_tokens(spec: Spec) -> bool:
    """Whether shares are of samples, although batches are of tokens."""
    batch = spec.batch
    is_of_tokens = batch is not None and (batch.pack is not None or batch.max_tokens is not None)
    return is_of_tokens and spec.mix.shares_in == "samples" and len(spec.sources) > 1


def _describe_schedule(explanation: Explanation) -> str:
    steps = explanation.schedule
    if len(steps) == 1:
        return "one step"
    span = "an epoch" if explanation.plan.timeline.epoch_steps else f"{PER_UNENDING:,} samples"
    first = steps[1] if steps and not steps[1].ramp else None
    epochs = explanation.plan.timeline.epoch(first.batch) if first is not None and first.batch else 0
    after = f", {'the first ' * (len(steps) > 2)}after {output.pluralize(epochs, 'epoch')}" if epochs else ""
    changes = f"{changes_in_words(explanation)}{after}"
    if " to " in changes:
        changes += ", as each slot begins its next window (a smaller `window` makes this shorter)"
    return f"shares change at {changes}; the table of sources shows their means over {span}"


def _schedule_table(explanation: Explanation) -> Table:
    """A row for each source, a column for each of the first steps and for the last one."""
    steps = explanation.schedule
    shown = steps if len(steps) <= _MOST_STEPS else [*steps[: _MOST_STEPS - 1], steps[-1]]
    unit = explanation.spec.mix.shares_in
    columns: dict[str, Callable[[ExplainedSource], str]] = {"share": lambda each: each.name}

    def read(step: ScheduledShares) -> Callable[[ExplainedSource], str]:
        shares = step.shares if unit == "samples" else _shares_of_cost(explanation.spec, step.shares)
        return lambda each: output.percent(shares[each.name])

    for step in shown:
        gap = "… " if step is shown[-1] and len(shown) < len(steps) else ""
        heading = f"{gap}{'ramp to' if step.ramp else 'from'} {step.at:,}>"
        columns[heading] = read(step)
    title = "shares by sample" if unit == "samples" else f"shares of {unit}, by sample"
    table = table_of(explanation.active, columns, title)
    return table.of_largest([each.share for each in explanation.active])


def _code(spec: Spec) -> Iterator[Row]:
    """Where each module with user functions is imported from."""
    names = [name for named in spec.functions.values() for name in named]
    for module in dict.fromkeys(name.partition(":")[0].partition(".")[0] for name in names):
        where = file_of_module(module, spec.folder)
        if where is None:
            where = "not found next to the spec, on Python's path, or in the working directory"
        elif os.path.isabs(where) and not os.path.relpath(where).startswith(os.pardir):
            where = os.path.relpath(where)
        yield "code", f"`{module}`: {where}"


def _sources(explanation: Explanation) -> Table:
    has_epochs = explanation.epoch_samples is not None
    per = "per epoch" if has_epochs else f"per {PER_UNENDING:,}"
    is_rough = explanation.is_epoch_estimated and explanation.plan.finite is None

    def read(
        cell: Callable[[ExplainedSource], str],
    ) -> Callable[[ExplainedSource], str]:
        return lambda each: "" if each.is_off else cell(each)

    spec = explanation.spec
    in_cost = _shares_of_cost(spec, {each.name: each.share for each in explanation.active})
    unit = "samples" if spec.mix.shares_in == "samples" else spec.mix.shares_in
    columns = {
        "source": lambda each: each.indented,
        f"of {unit}>": lambda each: output.percent(in_cost[each.name]) if each.name in in_cost else "",
        "share>": lambda each: "off" if each.is_off else output.percent(each.share),
        "shards>": read(lambda each: output.number(each.shards or 0)),
        "samples>": read(lambda each: each.samples_in_words),
        f"{per}>": read(lambda each: "~" * is_rough + output.number(each.expected)),
        "passes>": read(
            lambda each: (
                "?" if each.passes is None else f"{'~' * (is_rough or each.estimated)}{each.passes:.3g}"
            )
        ),
        "buffer>": lambda each: "" if each.held is None else output.number(each.held),
        "interleave>": read(lambda each: "" if each.nested else output.number(each.interleave)),
        "order": lambda each: each.order,
    }
    if in_cost:
        columns = {key.replace("share>", "of samples>"): cell for key, cell in columns.items()}
    else:
        del columns[f"of {unit}>"]
    if not has_epochs:
        del columns["passes>"]
    if all(each.interleave == 1 for each in explanation.active):
        del columns["interleave>"]
    faint = frozenset(row for row, each in enumerate(explanation.sources) if each.is_off)
    table = table_of(explanation.sources, columns)._replace(faint=faint)
    sizes = [0 if each.nested else each.share for each in explanation.sources]
    return table.of_largest(sizes, _named_in_advice(explanation), "of samples>" if in_cost else "share>")


def _named_in_advice(explanation: Explanation) -> frozenset[str]:
    """What warnings put in backticks, such as the names of sources that they are about."""
    return frozenset(name for each in explanation.advice for name in re.findall("`([^`]+)`", each.message))


def _shares_of_cost(spec: Spec, shares: Mapping[str, float]) -> dict[str, float]:
    """The shares of the cost that shares of samples have; empty if the spec counts samples."""
    if spec.mix.shares_in == "samples":
        return {}
    means = {source.name: source.mean_cost or 0 for source in spec.sources}
    costs = {name: share * means[name] for name, share in shares.items() if name in means}
    return {name: cost / (sum(costs.values()) or 1) for name, cost in costs.items()}


def _companions(explanation: Explanation) -> Table:
    """A row for each field with companions."""
    rows: list[Row] = [
        (
            each.owner,
            each.field,
            each.stream.name,
            output.percent(each.threshold / (1 << 64)),
            output.number(each.count),
            output.number(len(each.stream.shards)),
            output.number(each.stream.delays.size),
            output.number(each.stream.interleave),
            each.stream.order.kind,
        )
        for each in explanation.plan.companions
    ]
    names = (
        "source",
        "field",
        "companions",
        "chance>",
        "count>",
        "shards>",
        "buffer>",
        "interleave>",
        "order",
    )
    return Table(names, rows)


def _companions_as_json(explanation: Explanation) -> list[dict[str, Any]]:
    """The companions of sources, for JSON."""
    return [
        {
            "source": each.owner,
            "field": each.field,
            "companions": each.stream.name,
            "chance": each.threshold / (1 << 64),
            "count": each.count,
            "shards": len(each.stream.shards),
            "buffer": each.stream.delays.size,
        }
        for each in explanation.plan.companions
    ]


def _fields(explanation: Explanation) -> Table:
    """A row for all sources with the same fields and steps."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in explanation.sources:
        if not each.nested:
            groups.setdefault((each.fields, each.steps), []).append(each.name)
    rows: list[Row] = [(output.join_names(names), fields, steps) for (fields, steps), names in groups.items()]
    if not any(steps for _, steps in groups):
        return Table(("source", "fields"), [row[:2] for row in rows])
    return Table(("source", "fields", "then"), rows)


def _classes(spec: Spec) -> Table:
    """A row for each class of each field that `label` makes, with all names that sources give it."""
    names: dict[tuple[str, int], dict[str, None]] = {}
    for source in spec.sources:
        for field, step in source.make.items():
            if isinstance(step, Label):
                numbers = add_aliases(numbers_of(step.names, step.file), step.aliases)
                for name, number in numbers.items():
                    names.setdefault((field, number), {})[name] = None
    rows: list[Row] = [
        (field, f"{number:,}" + " (no class)" * (number < 0), output.join_names([*names[field, number]], 6))
        for field, number in sorted(names)
    ]
    return Table(("field", "class", "names"), rows).of_largest([-place for place in range(len(rows))])


def _slots(explanation: Explanation) -> Table:
    total, plans = explanation.plan.topology.slots, explanation.plan.sources
    shown = len(explanation.slots) // len(plans)
    more = f" (slots {shown} of {total:,}, see --slots)" if shown < total else ""
    if len(plans) > output.MOST_ROWS:
        plans = tuple(sorted(plans, key=lambda source: -source.share))[: output.LARGEST]
        more += f", of the {output.LARGEST} largest sources"
    names = {source.name for source in plans}
    in_full = {  # sources whose shards have the same file name
        source.name
        for source in plans
        if len(source.shards) > 1 and _file_name(source.shards[0].text) == _file_name(source.shards[-1].text)
    }
    rows: list[Row | None] = []
    for place, each in enumerate(slot for slot in explanation.slots if slot.source in names):
        first = place % len(plans) == 0
        if first and place and len(plans) > 1:
            rows.append(None)
        turns = []
        for turn in each.first:
            name = turn.url if each.source in in_full else _file_name(turn.url)
            turns.append(name if turn.parts == 1 else f"{name} [{turn.part + 1}/{turn.parts}]")
        rank, worker = (str(each.rank), str(each.worker)) if first else ("", "")
        rows.append((rank, worker, each.source, ", ".join(turns)))
    return Table(("rank", "worker", "source", f"first {TURNS} shards{more}"), rows)


def _file_name(url: str) -> str:
    """The last part of a URL. The URL is redacted first, because secrets cannot be recognized in a part of it."""
    return redacted_urls(url).rstrip("/").rpartition("/")[2]
