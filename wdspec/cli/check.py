"""`wdspec check`: data looked at before it is trained on; no fault ends it.

What a check of data found, in the formats that problems of specs are reported in.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from wdspec.base.errors import did_you_mean
from wdspec.base.progress import Progress, progress
from wdspec.base.redaction import redacted_urls
from wdspec.cli.problems import CheckedSpec, github_report, junit_report, summary, text_report
from wdspec.cli.report import counted, size, without_secrets
from wdspec.cli.samples import skip_columns
from wdspec.cli.spec_options import EngineChoice, SpecChoice, choosing_engine, choosing_spec, source_named
from wdspec.jobs.check.check import CheckReport
from wdspec.jobs.check.data import CheckedSource
from wdspec.jobs.check.facts import DataProblem
from wdspec.spec.codes import is_error
from wdspec.spec.problems import Problem
from wdspec.spec.rules.code_pages import all_codes
from wdspec.spec.spec import Spec

if TYPE_CHECKING:
    from wdspec.jobs.check.facts import ShardFacts
    from wdspec.jobs.check.look import ShardLook
    from wdspec.jobs.check.report_file import LockedShards


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
    from wdspec.jobs.check.check import alone, check_data
    from wdspec.jobs.check.report_file import ReportFile
    # REMOVED IMPORT

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
    from wdspec.jobs.check.report_file import LockedShards
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


DataReport = Callable[[CheckReport], Iterator[str]]


def text(report: CheckReport) -> Iterator[str]:
    """Problems shard by shard, with all that is known of the place; then how many there were."""
    found = list(_by_shard(report))
    *lines, _ = text_report(found, "shard")  # the last counts what is about a source as another shard
    yield from lines
    for code, count in sorted(report.hidden.items()):
        yield f"{count:,} more of {code} are not listed, as they stand in shards with many of them"
    severities = Counter(problem.severity for checked in found for problem in checked.problems)
    for code, count in report.hidden.items():
        severities["error" if is_error(code) else "warning"] += count
    shards = [looked for source in report.collection.own for looked in source.shards]
    unchanged = sum(looked.facts.is_unchanged for looked in shards)
    if unchanged:
        yield f"{counted(unchanged, 'shard')} as locked, and not looked at"
    yield summary(len(shards) - unchanged, severities, "shard")


def junit(report: CheckReport) -> Iterator[str]:
    """A test case for each shard."""
    return junit_report(_by_shard(report), "wdspec check")


def github(report: CheckReport) -> Iterator[str]:
    """Annotations of the spec, at its sources: shards are in no repository."""
    spec = report.collection.spec
    checked = [
        CheckedSpec(spec.file or "the spec", [_at_source(problem, spec) for problem in report.problems])
    ]
    return github_report(checked)


def as_json(report: CheckReport) -> Iterator[str]:
    """One document: the problems, and what the samples of each source are."""
    yield json.dumps(
        {
            "problems": [without_secrets(problem.as_json()) for problem in report.problems],
            "hidden": dict(report.hidden),
            "sources": {source.name: _about(source) for source in report.collection.own},
        },
        indent=2,
    )


DATA_REPORTS: dict[str, DataReport] = {"text": text, "json": as_json, "github": github, "junit": junit}


def _by_shard(report: CheckReport) -> Iterator[CheckedSpec]:
    """What is about a shard with the shard, and what is about a whole source with that."""
    found: dict[str, list[Problem]] = {
        looked.shard.text: [] for source in report.collection.own for looked in source.shards
    }
    for problem in report.problems:
        file = problem.shard or problem.source or report.collection.spec.file or "the spec"
        found.setdefault(file, []).append(_problem(problem, redacted_urls(file)))
    yield from (CheckedSpec(redacted_urls(file), problems) for file, problems in found.items())


def _problem(problem: DataProblem, file: str, line: int = 0, column: int = 0) -> Problem:
    names = ("member", "key", "field", "offset")
    known = {name: value for name in names if (value := getattr(problem, name)) is not None}
    if "member" in known:
        known.pop("field", None)
    where = ", ".join(f"{'byte' if name == 'offset' else name} {value}" for name, value in known.items())
    message = redacted_urls(problem.message) + (f" [{where}]" if where else "")
    return Problem(problem.code, message, "", file, line, column)


def _at_source(problem: DataProblem, spec: Spec) -> Problem:
    wheres = {source.name: source.where for source in spec.sources}
    where = wheres.get(problem.source)
    shown = _problem(problem, spec.file or "the spec")
    if problem.shard:
        shown = Problem(shown.code, f"{redacted_urls(problem.shard)}: {shown.message}", "", shown.file)
    if where is None or not where.line:
        return shown
    return Problem(shown.code, shown.message, "", where.file, where.line, where.column)


def _about(source: CheckedSource) -> Mapping[str, object]:
    facts = source.facts
    return {
        "shards": len(source.shards),
        "read": len(source.read),
        "as_locked": sum(looked.facts.is_unchanged for looked in source.shards),
        "samples": facts.samples,
        "delivered": facts.delivered,
        "dropped": facts.dropped,
        "bytes": facts.bytes,
        "fields": {
            name: {
                "types": {kind: seen.times for kind, seen in each.kinds.items()},
                "modes": {mode: seen.times for mode, seen in each.modes.items()},
                "classes": None
                if each.classes is None
                else {text: seen.times for text, seen in each.classes.items()},
                "lengths": None
                if not each.lengths[0]
                else dict(zip(("count", "sum", "least", "greatest"), each.lengths, strict=True)),
            }
            for name, each in facts.fields.items()
        },
    }
