"""`wdspec check`: data looked at before it is trained on; no fault ends it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from wdspec.base.errors import did_you_mean
from wdspec.base.progress import Progress, progress
from wdspec.cli.support.engine_options import EngineChoice, choosing_engine
from wdspec.cli.support.skip_columns import skip_columns
from wdspec.cli.support.spec_options import SpecChoice, choosing_spec, source_named
from wdspec.cli.support.tables import size
from wdspec.spec.rules import all_codes

if TYPE_CHECKING:
    from wdspec.checking.locked_shards import LockedShards
    from wdspec.checking.shards.shard_facts import ShardFacts
    from wdspec.checking.shards.shard_look import ShardLook

SUMMARY = "Look at the data: every shard, and what is in them."
FORMATS = ("text", "json", "github", "junit")


@click.command()
@choosing_spec
@click.option("--all", "everything", is_flag=True, help="Read all shards in full.")
@click.option(
    "--sample",
    "most",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    help="Shards read in full of each source, where not all are; the others are looked for.",
)
@click.option("--source", metavar="NAME", help="Only this source.")
@click.option(
    "--against", metavar="SPEC", help="A spec that should have no sample of this one: train.yaml#val."
)
@click.option(
    "--report",
    metavar="FILE",
    help="Keep what each shard showed; shards that it knows, unchanged, are not read again.",
)
@click.option(
    "--changed",
    metavar="FILE",
    help="Read only shards that changed since this report, or this file of `wdspec lock`: of them, as --sample and "
    "--all say.",
)
@click.option("--strict", is_flag=True, help="Warnings fail the check too.")
@click.option("--ignore", metavar="CODE", multiple=True, help="Do not report this code. Repeatable.")
@choosing_engine
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
def check(
    choice: SpecChoice,
    everything: bool,
    most: int,
    source: str | None,
    against: str | None,
    report: str | None,
    changed: str | None,
    strict: bool,
    ignore: tuple[str, ...],
    workers: EngineChoice,
    form: str,
) -> int:
    """Look at the data of a spec: whether every shard is there, and what is in some of them, or with --all in all.

    Reads and decodes as training does, through the functions that the spec names (WDS_SECURE=1 forbids them), and never
    stops at a fault. Then it compares: keys and samples that come twice, fields and shapes that differ, classes, shards
    that are sorted. Exit code: 0 if there are no errors, 1 if there are (with --strict, or warnings), 2 if the command
    was used wrongly. `wdspec rule D107` explains a code.
    """
    from wdspec.checking.check_job import alone
    from wdspec.checking.report_file import ReportFile
    from wdspec.checking.run_check import check_data
    from wdspec.cli.reports.data_reports import DATA_REPORTS

    spec = choice.load()
    if source is not None:
        spec = alone(spec, source_named(source, spec).name)
    other = (
        None if against is None else SpecChoice(against, env=choice.env, variables=choice.variables).load()
    )
    ignored = _known(ignore)
    with ExitStack() as stack:
        earlier: ReportFile | LockedShards | None = None
        if changed is not None:
            earlier = _lock(changed) or stack.enter_context(ReportFile(changed, must_exist=True))
        kept = None if report is None else stack.enter_context(ReportFile(report))
        bar = _Bar(stack, skip_columns(spec))
        found = check_data(
            spec,
            workers.make(),
            most=None if everything else most,
            other=other,
            kept=kept,
            earlier=earlier,
            begun=bar.begin,
            told=bar.tell,
        )
    found = found.without(ignored)
    for lines in DATA_REPORTS[form](found):
        click.echo(lines)
    return 1 if any(problem.is_error or strict for problem in found.problems) else 0


def _lock(path: str) -> LockedShards | None:
    """The shards in a lock; None for another file, or none. Raises UsageError for a lock that is damaged."""
    from wdspec.checking.locked_shards import LockedShards
    from wdspec.shards.lock import Lock

    try:
        with open(path, "rb") as file:
            is_json = file.read(64).lstrip().startswith(b"{")
    except OSError:  # which is said of a report
        return None
    return LockedShards(Lock.read(path)) if is_json else None


def _known(codes: tuple[str, ...]) -> frozenset[str]:
    known = [code for code in all_codes() if code.startswith(("D", "W512"))]
    for code in codes:
        if code.upper() not in known:
            hint = did_you_mean(code.upper(), known) or "`wdspec rule` lists all codes"
            raise click.UsageError(f"cannot ignore {code}, which is no code of data; {hint}")
    return frozenset(map(str.upper, codes))


class _Bar:
    """A bar over shards, with samples, the rate, the problems so far, and samples that training would not get.

    Args:
        stack: closes it.
        columns: for these, as far as there may be some.
    """

    def __init__(self, stack: ExitStack, columns: dict[str, tuple[str, Any]]) -> None:
        self._stack, self._bar, self._columns = stack, Progress(), columns
        self._samples = self._bytes = self._problems = self._skipped = self._dropped = 0
        self._begun = time.monotonic()

    def begin(self, count: int) -> None:
        """Draws it for so many shards."""
        self._begun = time.monotonic()
        self._bar = self._stack.enter_context(
            progress(
                "shards",
                count,
                drawn=True,
                samples=("{:,} samples", 0),
                rate=("{}/s", "0 B"),
                problems=("{:,} problems", 0),
                **self._columns,
            )
        )

    def tell(self, look: ShardLook, facts: ShardFacts) -> None:
        """One shard was looked at."""
        if facts.samples is not None:
            self._samples += facts.samples.samples
            self._bytes += facts.samples.bytes
            self._dropped += facts.samples.dropped
            self._skipped += facts.samples.samples - facts.samples.delivered - facts.samples.dropped
        self._problems += len(facts.problems) + sum(facts.hidden.values())
        rate = self._bytes / max(1e-3, time.monotonic() - self._begun)
        self._bar.advance(
            1,
            samples=self._samples,
            rate=size(rate),
            problems=self._problems,
            skipped=self._skipped,
            dropped=self._dropped,
        )
