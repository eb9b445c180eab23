"""`wdspec process`: new shards of old ones, through a spec's own steps, in parallel, and again where it failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from wdspec.base.progress import progress
from wdspec.cli.report import Row, Table, print_json, show
from wdspec.cli.spec_options import EngineChoice, SpecChoice, choosing, choosing_engine

if TYPE_CHECKING:
    from wdspec.jobs.process import Job, Outcome, Report, ShardTask

MOST_LISTED = 20
"""Failed shards that the text report lists; the JSON one has all."""


@click.command()
@choosing
@click.option("--output", metavar="DIR", help="Where to write; the same as --set output=DIR.")
@choosing_engine
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="How often a failed shard is retried.",
)
@click.option("--force", is_flag=True, help="Do shards again whose output is there.")
@click.option("--dry-run", is_flag=True, help="Only list what would be read and written.")
def process(
    choice: SpecChoice,
    form: str,
    output: str | None,
    workers: EngineChoice,
    retries: int,
    force: bool,
    dry_run: bool,
) -> None:
    """Run the samples of a spec through its decoders, filters and maps into new shards, one for each shard read.

    `output:` in the spec, or --output, says where. Shares, shuffling and batches do not apply: every shard is read
    once, in order; `limit` is the most that is written of each. A shard appears when it is whole, and those that are
    there already are skipped, so the same command goes on after an interruption. Exits with 1 if a shard failed.
    """
    from wdspec.cli.samples import read_like_training
    from wdspec.jobs.process import job_of, run_job

    if output is not None:
        choice = replace(choice, overrides=(*choice.overrides, f"output={output}"))
    read_like_training()
    job = job_of(choice.load())
    if dry_run:
        _list(job, form)
        return
    with _progress(len(job.tasks)) as told:
        report = run_job(job, workers.make(), retries=retries, force=force, told=told)
    if form == "json":
        print_json(_as_json(report))
    else:
        show(*_parts(report))
    if report.failed:
        click.get_current_context().exit(1)


def _list(job: Job, form: str) -> None:
    if form == "json":
        print_json({"tasks": [_about(task) for task in job.tasks]})
    else:
        show(Table(("source", "shard", "output"), [(t.source, t.shard.text, t.output) for t in job.tasks]))


@contextmanager
def _progress(total: int) -> Iterator[Callable[[ShardTask, Outcome | None, bool], None]]:
    """A bar with the samples written, and a line for each failure."""
    from wdspec.jobs.process import ShardFailed

    written = skipped = 0
    with progress("shards", total, samples=("{:,} samples", 0), skipped=("{:,} skipped", 0)) as bar:

        def tell(task: ShardTask, outcome: Outcome | None, last: bool) -> None:
            nonlocal written, skipped
            if isinstance(outcome, ShardFailed):
                again = "" if last else "; will be tried again"
                bar.note(f"failed: {task.shard.text}: {outcome.cause}{again}")
            elif outcome is not None:
                written += outcome.written
                skipped += outcome.skipped
            bar.advance(1 if last else 0, samples=written, skipped=skipped)

        yield tell


def _parts(report: Report) -> Iterator[Table | str]:
    sources: dict[str, list[int]] = {}
    for task, done in report.done.items():
        row = sources.setdefault(task.source, [0] * 6)
        for at, value in enumerate((1, done.written, done.dropped, done.skipped, done.size)):
            row[at] += value
    for task in report.failed:
        sources.setdefault(task.source, [0] * 6)[5] += 1
    rows: list[Row] = [
        (name, *(f"{count:,}" for count in counts), f"{size / 1e6:,.1f}", f"{failed:,}")
        for name, (*counts, size, failed) in sources.items()
    ]
    if rows:
        headings = ("source", "shards>", "samples>", "dropped>", "skipped>", "MB>", "failed>")
        yield Table(headings, rows)
    if report.there:
        yield f"{len(report.there):,} shards were there already and were left as they are (--force does them again)"
    if report.failed:
        shown = islice(report.failed.items(), MOST_LISTED)
        failures: list[Row] = [(task.shard.text, failed.cause) for task, failed in shown]
        yield Table(("shard", "cause"), failures, title=f"failed: {len(report.failed):,}")
        details = [failed.detail for failed in report.failed.values() if failed.detail]
        if details:
            yield details[0].rstrip()
        yield "the same command tries these again, and leaves the others as they are"


def _as_json(report: Report) -> dict[str, Any]:
    return {
        "done": [_about(task) | done._asdict() for task, done in report.done.items()],
        "there": [_about(task) for task in report.there],
        "failed": [_about(task) | failed._asdict() for task, failed in report.failed.items()],
    }


def _about(task: ShardTask) -> dict[str, str]:
    return {"source": task.source, "url": task.shard.text, "output": task.output}
