"""`wdspec check`: look at the data before training on it; no fault ends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack

import click

from wdspec.base.redaction import redacted_urls
from wdspec.cli.problems import CheckedSpec, chosen_codes, github_report, junit_report, styled, summary
from wdspec.cli.report import counted, print_json
from wdspec.cli.samples import only_source
from wdspec.cli.spec_options import SpecChoice, choosing_engine, choosing_spec
from wdspec.jobs.check.facts import DataProblem
from wdspec.jobs.check.job import CheckReport, check_data
from wdspec.jobs.check.report_file import LockedShards, ReportFile
from wdspec.jobs.engine import Engine
from wdspec.shards.lock import Lock
from wdspec.spec.codes import is_error
from wdspec.spec.problems import Problem
from wdspec.spec.spec import Spec


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
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github", "junit"]),
    default="text",
    show_default=True,
)
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
    start_engine: Callable[[], Engine],
    form: str,
) -> int:
    """Look at the data of a spec: whether every shard is there, and what is in some of them, or with --all in all.

    Reads and decodes as training does, through the functions that the spec names (WDS_SECURE=1 forbids them), and never
    stops at a fault. Then it compares: keys and samples that come twice, fields and shapes that differ, classes, shards
    that are sorted. Exit code: 0 if there are no errors, 1 if there are (with --strict, or warnings), 2 if the command
    was used wrongly. `wdspec rule D107` explains a code.
    """
    spec = choice.load()
    if source is not None:
        spec = only_source(spec, source)
    other = None
    if against is not None:
        other = SpecChoice(against, env=choice.env, variables=choice.variables).load()
    ignored = chosen_codes(ignore, lambda code: code.startswith(("D", "W512")), "data")
    with ExitStack() as stack:
        earlier: ReportFile | LockedShards | None = None
        if changed is not None:
            earlier = _read_lock(changed) or stack.enter_context(ReportFile(changed, must_exist=True))
        kept = None if report is None else stack.enter_context(ReportFile(report))
        found = check_data(
            spec,
            start_engine(),
            most=None if everything else most,
            other=other,
            kept=kept,
            earlier=earlier,
        ).without(ignored)
    if form == "json":
        print_json(found)
    else:
        for lines in {"text": _text, "github": _github, "junit": _junit}[form](found):
            click.echo(lines)
    return 1 if any(problem.is_error or strict for problem in found.problems) else 0


def _read_lock(path: str) -> LockedShards | None:
    """The shards in a lock; None for another file, or none. Raises UsageError for a lock that is damaged."""
    try:
        with open(path, "rb") as file:
            is_json = file.read(64).lstrip().startswith(b"{")
    except OSError:  # reported when it is opened as a report
        return None
    return LockedShards(Lock.read(path)) if is_json else None


def _text(report: CheckReport) -> Iterator[str]:
    """Problems shard by shard, with all that is known of the place; then how many there were."""
    for checked in _by_shard(report):
        yield from map(styled, checked.problems)
    for code, count in sorted(report.hidden.items()):
        yield f"{count:,} more of {code} are not listed, as they stand in shards with many of them"
    severities = Counter("error" if problem.is_error else "warning" for problem in report.problems)
    for code, count in report.hidden.items():
        severities["error" if is_error(code) else "warning"] += count
    shards = [looked for source in report.collection.own for looked in source.shards]
    unchanged = sum(looked.facts.is_unchanged for looked in shards)
    if unchanged:
        yield f"{counted(unchanged, 'shard')} as locked, and not looked at"
    yield summary(len(shards) - unchanged, severities, "shard")


def _junit(report: CheckReport) -> Iterator[str]:
    """A test case for each shard."""
    return junit_report(_by_shard(report), "wdspec check")


def _github(report: CheckReport) -> Iterator[str]:
    """Annotations of the spec, at its sources: shards are in no repository."""
    spec = report.collection.spec
    problems = [_at_source(problem, spec) for problem in report.problems]
    return github_report([CheckedSpec(spec.file or "the spec", problems)])


def _by_shard(report: CheckReport) -> Iterable[CheckedSpec]:
    """Problems of a shard with the shard, and those of a whole source with the source."""
    found: dict[str, list[Problem]] = {
        looked.shard.text: [] for source in report.collection.own for looked in source.shards
    }
    for problem in report.problems:
        file = problem.shard or problem.source or report.collection.spec.file or "the spec"
        found.setdefault(file, []).append(_as_problem(problem, redacted_urls(file)))
    return [CheckedSpec(redacted_urls(file), problems) for file, problems in found.items()]


def _as_problem(problem: DataProblem, file: str, line: int = 0, column: int = 0, shard: str = "") -> Problem:
    names = ("member", "key", "field", "offset")
    known = {name: value for name in names if (value := getattr(problem, name)) is not None}
    if "member" in known:
        known.pop("field", None)
    where = ", ".join(f"{'byte' if name == 'offset' else name} {value}" for name, value in known.items())
    message = redacted_urls(problem.message) + (f" [{where}]" if where else "")
    if shard:
        message = f"{redacted_urls(shard)}: {message}"
    return Problem(problem.code, message, "", file, line, column)


def _at_source(problem: DataProblem, spec: Spec) -> Problem:
    where = next((source.where for source in spec.sources if source.name == problem.source), None)
    if where is None or not where.line:
        return _as_problem(problem, spec.file or "the spec", shard=problem.shard)
    return _as_problem(problem, where.file, where.line, where.column, problem.shard)
