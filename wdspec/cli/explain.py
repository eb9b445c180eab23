"""`wdspec explain`: what a spec means, on the topology that reads it.

An explanation of a spec as tables and lines, for a terminal or a pipe.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import click

from wdspec.base.redaction import redacted_urls
from wdspec.base.user_code import file_of_module
from wdspec.cli.explain_facts import (
    PER_UNENDING,
    TURNS,
    ExplainedSource,
    Explanation,
    Turn,
    as_json,
    calls_in_words,
    explain_spec,
    warnings_of,
)
from wdspec.cli.report import (
    Part,
    Row,
    Table,
    Warning,
    counted,
    listed,
    number,
    percent,
    print_json,
    show,
    size,
    table_of,
)
from wdspec.cli.spec_options import SpecChoice, choosing, topology_options
from wdspec.planning.plan import Plan
from wdspec.shards.shards import functions_of
from wdspec.spec.language.steps import steps_in
from wdspec.spec.spec import Spec
from wdspec.urls.urls import ShardUrl


def parts_of(explanation: Explanation) -> Iterator[Part]:
    """The report."""
    yield Table((), list(_summary(explanation)), title=_title(explanation))
    yield _sources(explanation)
    yield _fields(explanation)
    if explanation.slots:
        yield _slots(explanation)
    yield from map(Warning, warnings_of(explanation))


def _title(explanation: Explanation) -> str:
    spec = explanation.spec
    chosen = [f"split {spec.split}"] if spec.split else []
    chosen += [f"environment {spec.environment}"] if spec.environment else []
    return ", ".join([spec.name or spec.file or "spec", *chosen])


def _summary(explanation: Explanation) -> Iterator[Row]:
    spec, plan, run = explanation.spec, explanation.plan, explanation.run
    batching = plan.batching
    if spec.file and spec.name:
        yield "file", spec.file
    yield "seed", str(plan.seed)
    yield "topology", run.in_words
    if (run.ranks, run.workers) != (plan.topology.ranks, plan.topology.workers):
        yield "run", run.readers_in_words
    if batching.batched:
        per_rank = f"{counted(batching.global_size // run.ranks, 'sample')} a rank"
        yield "batch", per_rank + (f", {batching.global_size:,} over all ranks" if run.ranks > 1 else "")
    else:
        yield "batch", "none: yields single samples"
    yield "epoch", _epoch(explanation)
    if spec.skip:
        skipped = steps_in(spec.skip)
        yield "skip", f"steps {skipped}: {counted(skipped.count, 'global batch', 'global batches')}"
    yield "draw", draw_in_words(plan)
    if plan.schedule:
        yield "schedule", _schedule(explanation)
    if spec.map:
        yield "map", calls_in_words(spec.map)
    if spec.stage is not None:
        yield (
            "stage",
            f"{spec.stage.call}, begun anew every {spec.stage.every:,} samples of a slot",
        )
    yield from _code(spec)
    if spec.fields is not None:
        yield "fields", " ".join(spec.fields)
    if spec.to_tuple is not None:
        yield "to_tuple", " ".join(spec.to_tuple)
    if spec.limit is not None:
        yield "limit", f"{spec.limit:,} samples"
    unknown = explanation.unmeasured
    held = f"about {size(explanation.held_bytes)} of samples held for shuffling in a worker, "
    besides = f", besides the samples of {counted(unknown, 'source')} not measured" if unknown else ""
    buffers = f"{size(explanation.buffer_bytes)} in the buffers of its open shards"
    yield "memory", (held if explanation.held_bytes else "") + buffers + besides


def _code(spec: Spec) -> Iterator[tuple[str, str]]:
    """Where each module of the user's own would be imported from."""
    names = [name for named in functions_of(spec).values() for name in named]
    for module in dict.fromkeys(name.partition(":")[0].partition(".")[0] for name in names):
        file = file_of_module(module, spec.folder)
        where = "found neither beside the spec, nor on Python's path, nor in the working directory"
        yield (
            "code",
            f"`{module}`: {where if file is None else os.path.relpath(file) if _near(file) else file}",
        )


def _near(file: str) -> bool:
    return os.path.isabs(file) and not os.path.relpath(file).startswith(os.pardir)


def _epoch(explanation: Explanation) -> str:
    plan = explanation.plan
    if plan.epoch_batches is None:
        return "endless (no `epoch`)"
    steps = (
        counted(plan.epoch_batches, "batch", "batches")
        if plan.batching.batched
        else counted(plan.epoch_batches * explanation.run.canonical_ranks, "sample")
    )
    over_all = ", over all ranks" if explanation.run.ranks > 1 else ""
    return f"{steps} a rank = {counted(plan.epoch_samples or 0, 'sample')}{over_all}"


def _schedule(explanation: Explanation) -> str:
    """When shares change; the table of sources has their means."""
    size, starts = explanation.plan.batching.global_size, [s.start for s in explanation.plan.schedule[1:]]
    if not starts:
        return "one step"
    shown = ", ".join(f"{start * size:,} (batch {start:,})" for start in starts[:3])
    more = f" and {len(starts) - 3} more" if len(starts) > 3 else ""
    span = "an epoch" if explanation.plan.epoch_batches else f"{PER_UNENDING:,} samples"
    return f"shares change at sample {shown}{more}; below, their means over {span}"


def draw_in_words(plan: Plan) -> str:
    """`even, one source a batch`."""
    return plan.draw + (", one source a batch" if plan.unit == "batch" else "")


def _sources(explanation: Explanation) -> Table:
    per = "per epoch" if explanation.plan.epoch_samples else f"per {PER_UNENDING:,}"

    def read(cell: Callable[[ExplainedSource], str]) -> Callable[[ExplainedSource], str]:
        return lambda each: "" if _is_off(each) else cell(each)

    columns = {
        "source": name_of,
        "share>": lambda each: "off" if _is_off(each) else percent(each.share),
        "shards>": read(lambda each: number(each.shards or 0)),
        "samples>": read(samples_of),
        f"{per}>": read(lambda each: number(each.expected)),
        "passes>": read(_passes),
        "held>": lambda each: "" if each.held is None else number(each.held),
        "in turn>": read(lambda each: "" if each.nested else number(each.interleave)),
        "order": lambda each: each.order,
    }
    if not explanation.plan.epoch_samples:
        del columns["passes>"]
    if all(each.interleave == 1 for each in explanation.active):
        del columns["in turn>"]
    faint = frozenset(row for row, each in enumerate(explanation.sources) if _is_off(each))
    return replace(table_of(explanation.sources, columns), faint=faint)


def _is_off(source: ExplainedSource) -> bool:
    return not source.share and source.held is None


def name_of(source: ExplainedSource) -> str:
    """The name of a source, further in the deeper it is nested."""
    return "  " * len(source.path) + source.name


def samples_of(source: ExplainedSource) -> str:
    """Its samples: `1,797`, `~800` of an estimate, `?` where they are not known."""
    if source.samples is None:
        return "?"
    return f"{'~' if source.estimated else ''}{round(source.samples):,}"


def _passes(source: ExplainedSource) -> str:
    if source.passes is None:
        return "?"
    return f"{'~' if source.estimated else ''}{source.passes:.3g}"


def _fields(explanation: Explanation) -> Table:
    """Sources with the same fields and steps share a row."""
    alike: dict[tuple[str, str], list[str]] = {}
    for each in explanation.sources:
        if not each.nested:
            alike.setdefault((each.fields, each.steps), []).append(each.name)
    rows: list[Row] = [(listed(names), fields, steps) for (fields, steps), names in alike.items()]
    if not any(steps for _, steps in alike):
        return Table(("source", "fields"), [row[:2] for row in rows])
    return Table(("source", "fields", "then"), rows)


def _slots(explanation: Explanation) -> Table:
    total, sources = explanation.plan.topology.slots, len(explanation.plan.sources)
    shown = len(explanation.slots) // sources
    more = f" (slots {shown} of {total:,}, see --slots)" if shown < total else ""
    in_full = {
        source.name for source in explanation.plan.sources if len(source.shards) > 1 and _alike(source.shards)
    }
    rows: list[Row | None] = []
    for place, each in enumerate(explanation.slots):
        first = place % sources == 0
        if first and place and sources > 1:
            rows.append(None)
        turns = ", ".join(_turn(turn, each.source in in_full) for turn in each.first)
        rank, worker = (str(each.rank), str(each.worker)) if first else ("", "")
        rows.append((rank, worker, each.source, turns))
    return Table(("rank", "worker", "source", f"first {TURNS} shards{more}"), rows)


def _alike(shards: Sequence[ShardUrl]) -> bool:
    """Whether the last parts of the URLs do not tell the shards apart."""
    return _file_name(shards[0].text) == _file_name(shards[-1].text)


def _file_name(url: str) -> str:
    """The last part of what may be shown of a URL: cut first, a secret would no longer be told."""
    return redacted_urls(url).rstrip("/").rpartition("/")[2]


def _turn(turn: Turn, in_full: bool) -> str:
    name = turn.url if in_full else _file_name(turn.url)
    return name if turn.parts == 1 else f"{name} [{turn.part + 1}/{turn.parts}]"


@click.command()
@choosing
@topology_options
@click.option("--slots", type=click.IntRange(min=0), help="Slots whose first shards are shown.")
def explain(choice: SpecChoice, form: str, ranks: int | None, workers: int | None, slots: int | None) -> int:
    """Show what a spec means: shares, shards, samples and passes per epoch, batches, who reads what.

    Lists globs, directories and @files, and reads the headers of the first shard of each source if it is local, to
    estimate (~) how many samples there are, and looks whether local shards exist. Opens nothing else and runs no code
    of yours, but for the command of an `@pipe:` list, which WDS_SECURE=1 forbids. Exit code: 1 if local shards are
    missing.
    """
    explanation = explain_spec(choice.load(), ranks, workers, slots)
    if form == "json":
        print_json(as_json(explanation))
    else:
        show(*parts_of(explanation))
    return 1 if explanation.lacks_shards else 0
