"""`wdspec process`: process shards with the steps of a spec into new shards, in parallel and with retries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import click

from wdspec.cli.report import Block, Row, Table, print_json, show, show_report
from wdspec.cli.samples import log_skipped_errors
from wdspec.cli.spec_options import SpecChoice, choosing, choosing_engine
from wdspec.jobs.engine import Engine
from wdspec.jobs.process import ProcessJob, ProcessTask

MOST_LISTED = 20
"""Number of failed shards in the text report; the JSON report lists all of them."""


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
@click.option("--dry-run", is_flag=True, help="Only list what would be read and written.")
def process(
    choice: SpecChoice,
    form: str,
    output: str | None,
    start_engine: Callable[[], Engine],
    retries: int,
    force: bool,
    dry_run: bool,
) -> None:
    """Process the samples of each shard with the decoders, filters and maps of a spec, and write them to a new shard.

    The new shards are written to `output:` of the spec, or to --output. Shares, shuffling and batches have no effect:
    every shard is read once, in order. `limit` is the maximum number of samples of each new shard. Shards appear only
    when they are complete, and existing shards are skipped, so you can repeat the command to resume after an
    interruption.

    Exit code: 1 if a shard failed.
    """
    if output is not None:
        choice = replace(choice, overrides=(*choice.overrides, f"output={output}"))
    log_skipped_errors()
    job = ProcessJob.of(choice.load())
    if dry_run:
        if form == "json":
            print_json({"tasks": [_describe(task) for task in job.tasks]})
        else:
            rows = [(task.source, task.shard.text, task.output) for task in job.tasks]
            show(Table(("source", "shard", "output"), rows))
        return
    job.force = force
    job.run(start_engine(), retries)
    show_report(ProcessReport(job), form)
    if job.failed:
        click.get_current_context().exit(1)


@dataclass(frozen=True)
class ProcessReport:
    """The results of a job."""

    job: ProcessJob

    def blocks(self) -> Iterator[Block]:
        job = self.job
        sources: dict[str, list[int]] = {}
        for task, done in job.done:
            row = sources.setdefault(task.source, [0] * 6)
            for at, value in enumerate((1, done.written, done.dropped, done.skipped, done.size)):
                row[at] += value
        for task, _ in job.failed:
            sources.setdefault(task.source, [0] * 6)[5] += 1
        rows: list[Row] = [
            (name, *(f"{count:,}" for count in counts), f"{size / 1e6:,.1f}", f"{failed:,}")
            for name, (*counts, size, failed) in sources.items()
        ]
        if rows:
            headings = ("source", "shards>", "samples>", "dropped>", "skipped>", "MB>", "failed>")
            yield Table(headings, rows)
        if job.there:
            yield f"{len(job.there):,} shards already existed and were skipped (--force processes them again)"
        if job.failed:
            failures: list[Row] = [
                (task.shard.text, failed.cause) for task, failed in job.failed[:MOST_LISTED]
            ]
            yield Table(("shard", "cause"), failures, title=f"failed: {len(job.failed):,}")
            details = [failed.detail for _, failed in job.failed if failed.detail]
            if details:
                yield details[0].rstrip()
            yield "repeat the command to retry these shards; the others are skipped"

    def as_json(self) -> dict[str, Any]:
        job = self.job
        return {
            "done": [_describe(task) | done._asdict() for task, done in job.done],
            "there": [_describe(task) for task in job.there],
            "failed": [_describe(task) | failed._asdict() for task, failed in job.failed],
        }


def _describe(task: ProcessTask) -> dict[str, str]:
    return {"source": task.source, "url": task.shard.text, "output": task.output}
