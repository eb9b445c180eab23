"""`wdspec stats`: measure the shards of a spec (samples, bytes, sizes of fields), and save the result in a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import click

from wdspec.advice import advise
from wdspec.cli import output
from wdspec.cli.output import Block, Table, Warning, one_line, print_json, show
from wdspec.cli.spec_options import SpecChoice, choosing, choosing_engine
from wdspec.jobs.engine import Engine
from wdspec.jobs.stats import StatsJob
from wdspec.shards.lock import beside_spec
from wdspec.spec.measurements import LEVELS, MeasuredSource, Measurements
from wdspec.spec.problems import advise_stats
from wdspec.spec.spec import Spec

SUFFIX = ".stats.json"
MOST_SHOWN = 20
"""Shards that could not be measured are listed up to this number."""


@click.command()
@choosing
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    help="File to write (default: `stats:` of the spec, otherwise SPEC.stats.json next to the spec).",
)
@click.option(
    "--lengths",
    is_flag=True,
    help="Also decode all samples, to measure the lengths of texts and lists and the sides of images.",
)
@click.option("--update", is_flag=True, help="Read all shards again, not only those that changed.")
@click.option(
    "--check",
    is_flag=True,
    help="Only compare with the stores; exit with 1 if shards differ from the measurements.",
)
@choosing_engine()
def stats(
    choice: SpecChoice,
    form: str,
    output: str | None,
    lengths: bool,
    update: bool,
    check: bool,
    start_engine: Callable[[], Engine],
) -> int:
    """Measure the shards of a spec from their headers: samples and bytes of each shard, sizes of its fields.

    If you add `stats: FILE` to the spec, shares by samples or bytes (`mix: {by: samples}`), `explain` and `epoch:
    pass` use the file. The command also counts the samples that `where`, `subset`, `keys` and `exclude` keep; for this,
    it reads the files that they need. If FILE exists, only shards whose size, ETag or time has changed are read.
    Without --split, each split gets its own file.

    Exit code: 1 if shards could not be measured; the measurements of the others are saved.
    """
    if check and update:
        raise click.UsageError(
            "--check reads no shards, and --update reads all of them; pass only one of them"
        )
    specs: dict[str, Spec] = {}
    for split, spec in choice.load_splits(output, "file"):
        path = (
            output or (spec.stats and os.path.relpath(spec.stats)) or beside_spec(choice.file, split, SUFFIX)
        )
        if path in specs:
            raise click.UsageError(
                f"the splits `{specs[path].split}` and `{split}` have the same `stats:` file, but each split needs its "
                f"own; {advise_stats(split)}, and so for each split"
            )
        specs[path] = spec
    reports: list[StatsReport] = []
    for path, spec in specs.items():
        job = StatsJob(spec, path, update=update, lengths=lengths, requests=not check)
        if not check:
            job.run(start_engine())
        reports.append(StatsReport(path, job, None if check else job.measurements()))
        if form == "text":
            show(*reports[-1].blocks())
    if form == "json":
        print_json({"files": reports})
    return int(any(each.lacks_shards for each in reports))


@dataclass(frozen=True)
class StatsReport:
    """The measurements of a spec."""

    path: str
    """Path of the file."""
    job: StatsJob
    found: Measurements | None
    """None if shards were only compared."""

    @property
    def lacks_shards(self) -> bool:
        """Whether shards are not measured, or not as measured."""
        job = self.job
        return bool(job.tasks or job.gone) if self.found is None else bool(job.faults)

    def blocks(self) -> Iterator[Block]:
        job = self.job
        if self.found is None:
            rows = [
                *((task.source, task.shard.text, "not as measured, or new") for task in job.tasks),
                *((source, url, "gone") for source, url in job.gone),
            ]
            if rows:
                yield Table(("source", "shard", "what"), rows)
            changed = f"{output.pluralize(len(rows), 'shard')} not as measured" if rows else "as measured"
            yield f"{self.path}: {changed}"
            return
        yield _sources(self.found)
        yield _spreads(self.found, "field", output.size)
        if any(source.lengths for source in self.found.sources.values()):
            yield _spreads(self.found, "length of", output.number)
        if job.faults:
            shown = [tuple(fault) for fault in job.faults[:MOST_SHOWN]]
            yield Table(("source", "shard", "why"), shown, title=f"not measured: {len(job.faults):,}")
        yield f"{self.path}: {output.pluralize(self._read, 'shard')} read, {job.unchanged:,} unchanged"
        if job.faults:
            names = sorted({fault.source for fault in job.faults})
            yield Warning(
                f"the numbers of {output.join_names(names)} are not used until all of their shards are measured"
            )
        yield from map(Warning, self._advice)

    @cached_property
    def _advice(self) -> list[str]:
        return list(map(one_line, advise(self.job.facts())))

    @property
    def _read(self) -> int:
        return len(self.job.tasks) - len(self.job.faults)

    def as_json(self) -> dict[str, Any]:
        job = self.job
        if self.found is None:
            return {
                "file": self.path,
                "outdated": [{"source": task.source, "shard": task.shard.text} for task in job.tasks],
                "gone": [{"source": source, "shard": url} for source, url in job.gone],
            }
        return {
            "file": self.path,
            "read": self._read,
            "unchanged": job.unchanged,
            "levels": LEVELS,
            "sources": self.found.sources,
            "faults": job.faults,
            "warnings": self._advice,
        }


def _sources(found: Measurements) -> Table:
    selects = any(source.kept is not None for source in found.sources.values())

    def row(name: str, source: MeasuredSource) -> tuple[str, ...]:
        shards = found.shards[name].values()
        counts = [shard.samples for shard in shards]
        return (
            name,
            f"{source.measured:,}",
            f"{source.samples:,}",
            *((f"{source.samples if source.kept is None else source.kept:,}",) if selects else ()),
            f"{sum(len(shard.lost) for shard in shards):,}",
            output.size(source.bytes),
            f"{output.number_range(min(counts), max(counts))} samples" if counts else "",
        )

    headings = (
        "source",
        "shards>",
        "samples>",
        *(("kept>",) if selects else ()),
        "damaged>",
        "bytes>",
        "a shard>",
    )
    damaged = [name for name in found.sources if any(shard.lost for shard in found.shards[name].values())]
    table = Table(headings, [row(*each) for each in found.sources.items()])
    return table.of_largest([source.samples for source in found.sources.values()], damaged)


def _spreads(found: Measurements, what: str, shown: Callable[[float], str]) -> Table:
    spreads = [
        (name, field, spread)
        for name, source in found.sources.items()
        for field, spread in (source.fields if what == "field" else source.lengths).items()
    ]
    headings = ("source", what, "values>", "mean>", "least>", "5%>", "50%>", "95%>", "greatest>")
    rows = [
        (
            name,
            field,
            f"{spread.count:,}",
            shown(spread.mean),
            *(shown(spread.quantiles[at]) for at in (0, 2, 4, 6, 8)),
        )
        for name, field, spread in spreads
    ]
    return Table(headings, rows).of_largest([spread.count for _, _, spread in spreads])
