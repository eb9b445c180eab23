"""`wdspec process`: process shards with the steps of a spec into new shards, in parallel and with retries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import click

from wdspec.base.amounts import pluralize
from wdspec.cli.output import Block, Row, Table, print_json, show, show_report
from wdspec.cli.samples import log_skipped_errors
from wdspec.cli.spec_options import SpecChoice, choosing, choosing_engine
from wdspec.jobs.dedup import read_drops
from wdspec.jobs.engine import Engine
from wdspec.jobs.process import ProcessJob, ProcessTask

MOST_LISTED = 20
"""Number of failed shards in the text report; the JSON report lists all of them."""

_COUNTED = ("shards", "written", "dropped", "skipped")


@click.command()
@choosing
@click.option("--output", metavar="DIR", help="Folder to write to; the same as --set output=DIR.")
@choosing_engine()
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Number of retries for a failed shard.",
)
@click.option("--force", is_flag=True, help="Also process shards whose output already exists.")
@click.option(
    "--changed",
    type=click.Choice(["refuse", "redo", "keep"]),
    default="refuse",
    show_default=True,
    help="What to do with existing shards if the job, its code or their input has changed since they were written: "
    "refuse to start, write them again, or keep them.",
)
@click.option(
    "--drop", metavar="FILE", help="Leave out the samples in FILE, the `drop.tsv` of `wdspec dedup`."
)
@click.option("--dry-run", is_flag=True, help="Only list what would be read and written.")
def process(
    choice: SpecChoice,
    form: str,
    output: str | None,
    start_engine: Callable[[], Engine],
    retries: int,
    force: bool,
    changed: Literal["refuse", "redo", "keep"],
    drop: str | None,
    dry_run: bool,
) -> None:
    """Process the samples of each shard with the decoders, filters and maps of a spec, and write them to a new shard.

    The new shards are written to `output:` of the spec, or to --output. Shares, shuffling and batches have no effect:
    every shard is read once, in order. `limit` is the maximum number of samples of each new shard. Shards appear only
    when they are complete, and existing shards are skipped, so you can repeat the command to resume after an
    interruption. Records in the folder `.wdspec` next to the shards say what each one was made from; see --changed.

    Exit code: 1 if a shard failed, or no sample was written.
    """
    if output is not None:
        choice = replace(choice, overrides=(*choice.overrides, f"output={output}"))
    log_skipped_errors()
    job = ProcessJob.of(choice.load(), None if drop is None else read_drops(drop))
    if dry_run:
        if form == "json":
            print_json({"tasks": [_describe(task) for task in job.tasks]})
        else:
            rows = [(task.source, task.shard.text, task.output) for task in job.tasks]
            show(Table(("source", "shard", "output"), rows))
        return
    job.force, job.changed = force, changed
    job.run(start_engine(), retries)
    show_report(ProcessReport(job), form)
    if job.failed or job.is_empty:
        click.get_current_context().exit(1)


@dataclass(frozen=True)
class ProcessReport:
    """The results of a job."""

    job: ProcessJob

    def blocks(self) -> Iterator[Block]:
        job = self.job
        totals = self.totals()
        rows: list[Row] = [
            (name, *(f"{row[key]:,}" for key in _COUNTED), f"{row['size'] / 1e6:,.1f}", f"{row['failed']:,}")
            for name, row in totals.items()
        ]
        if rows:
            headings = ("source", "shards>", "samples>", "dropped>", "skipped>", "MB>", "failed>")
            yield Table(headings, rows)
        if job.there:
            yield f"{len(job.there):,} shards already existed and were skipped (--force processes them again)"
        if unknown := sum(done is None for _, done in job.there):
            yield f"the counts of {unknown:,} of these are not known, and not in the table"
        if job.is_empty:
            yield f"no sample was written: {self._why_empty()}"
        elif empty := sum(not done.written for _, done in job.results):
            yield f"no samples in {pluralize(empty, 'shard')}; to read them, set `empty: allow` for their source"
        if job.failed:
            failures: list[Row] = [
                (task.shard.text, failed.cause) for task, failed in job.failed[:MOST_LISTED]
            ]
            yield Table(("shard", "cause"), failures, title=f"failed: {len(job.failed):,}")
            details = [failed.detail for _, failed in job.failed if failed.detail]
            if details:
                yield details[0].rstrip()
            if job.stopped:
                yield "stopped, as all shards would fail like this; correct it and repeat the command"
            else:
                yield "repeat the command to retry these shards; the others are skipped"

    def totals(self) -> dict[str, Counter[str]]:
        """Sums over the shards of each source, also those of earlier runs."""
        job, sources = self.job, dict[str, Counter[str]]()
        for task, done in job.results:
            row = sources.setdefault(task.source, Counter())
            row.update(shards=1, **{key: getattr(done, key) for key in (*_COUNTED[1:], "size")})
        for task, _ in job.failed:
            sources.setdefault(task.source, Counter()).update(failed=1)
        return sources

    def _why_empty(self) -> str:
        causes = sum((Counter(done.causes) for _, done in self.job.results), Counter[str]())
        skipped = sum(done.skipped for _, done in self.job.results)
        said = [f"{count:,} dropped by `{cause}`" for cause, count in causes.most_common()]
        said += [f"{skipped:,} skipped because of errors"] if skipped else []
        return ", ".join(said) or "the shards have none"

    def as_json(self) -> dict[str, Any]:
        job = self.job
        return {
            "done": [_describe(task) | done._asdict() for task, done in job.done],
            "there": [_describe(task) | ({} if done is None else done._asdict()) for task, done in job.there],
            "totals": {
                name: {key: row[key] for key in (*_COUNTED, "size", "failed")}
                for name, row in self.totals().items()
            },
            "failed": [_describe(task) | failed._asdict() for task, failed in job.failed],
        }


def _describe(task: ProcessTask) -> dict[str, str]:
    return {"source": task.source, "url": task.shard.text, "output": task.output}
